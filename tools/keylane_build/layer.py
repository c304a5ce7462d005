"""The layer's packages: `python -m keylane_build.layer` writes layers/keylane/requirements.txt.

It pins every distribution that the functions' extras of pyproject.toml require, at the installed versions, so
that the build of the layer resolves nothing. Packages of Lambda's runtime are left out. pip names the hashes
of the wheels for each runtime and architecture of the template, and the build accepts no other files.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Collection, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from keylane_local.tools import project_root

EXTRAS = ("produce", "registry", "msk-iam", "validation", "issuers")
"""The extras that functions import."""
IN_THE_RUNTIME = frozenset({"boto3", "botocore", "s3transfer"})
FOR_PROGRAMS = frozenset({"click"})
"""Required by the MSK signer's command line only."""
CLIENT = "keylane-client"
"""Ours: it comes from no package index, and nothing on AWS imports it."""
_HEADER = "# Generated from pyproject.toml by `make layer-requirements`: all packages of the layer.\n"
RUNTIMES = ("3.11", "3.12", "3.13")
ARCHITECTURES = ("x86_64", "aarch64")
PLATFORMS = ("manylinux_2_28", "manylinux2014", "manylinux_2_17")
"""Those of layers/keylane/build_layer.py, which imports nothing of the project."""
_LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}


def pin_requirements(extras: Collection[str], without: Collection[str]) -> dict[str, str]:
    """Return name and version of all packages that `extras` require on Linux, except `without`."""
    found: dict[str, str] = {}
    project = tomllib.loads((project_root() / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own = [
        *project["dependencies"],
        *(each for name in extras for each in project["optional-dependencies"][name]),
    ]
    waiting = [_name_and_extras(Requirement(each)) for each in own]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen or name in without or name == CLIENT:
            continue
        seen.add((name, wanted))
        distribution = metadata.distribution(name)
        found[name] = distribution.version
        needed = map(Requirement, distribution.requires or ())
        waiting += [_name_and_extras(each) for each in needed if _is_wanted(each, wanted)]
    return dict(sorted(found.items()))


def pin_layer() -> dict[str, str]:
    """Return name and version of all packages of the layer."""
    return pin_requirements(EXTRAS, IN_THE_RUNTIME | FOR_PROGRAMS)


def render_requirements(
    pins: Mapping[str, str], hashes: Mapping[str, Collection[str]], header: str = _HEADER
) -> str:
    """Return the content of a file of requirements, with the hashes of each package's files."""
    lines = [header]
    for name, version in pins.items():
        parts = [f"{name}=={version}", *(f"--hash=sha256:{each}" for each in sorted(hashes[name]))]
        lines.append(" \\\n    ".join(parts) + "\n")
    return "".join(lines)


def find_hashes(pins: Mapping[str, str], runtimes: Collection[str] = RUNTIMES) -> dict[str, set[str]]:
    """Return the SHA-256 of each package's wheels, as the package index gives them to pip."""
    found: dict[str, set[str]] = defaultdict(set)
    for runtime in runtimes:
        for architecture in ARCHITECTURES:
            for wheel in _choose_wheels(pins, runtime, architecture):
                name = canonicalize_name(wheel["metadata"]["name"])
                found[name].add(wheel["download_info"]["archive_info"]["hashes"]["sha256"])
    return found


def _choose_wheels(pins: Mapping[str, str], runtime: str, architecture: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command += ["--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:"]
        command += ["--target", folder, "--report", str(report), "--python-version", runtime]
        command += [f"--platform={platform}_{architecture}" for platform in PLATFORMS]
        command += [f"{name}=={version}" for name, version in pins.items()]
        subprocess.run(command, check=True)
        wheels: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["install"]
        return wheels


def _name_and_extras(requirement: Requirement) -> tuple[str, frozenset[str]]:
    return canonicalize_name(requirement.name), frozenset(requirement.extras)


def _is_wanted(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({**_LINUX, "extra": extra}) for extra in extras or {""})


if __name__ == "__main__":
    pinned = pin_layer()
    (project_root() / "layers" / "keylane" / "requirements.txt").write_text(
        render_requirements(pinned, find_hashes(pinned)), encoding="utf-8"
    )
