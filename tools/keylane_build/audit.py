"""`python -m keylane_build.audit`: what ships, and whether an advisory is known for it.

For the layer, the job's package and each image it writes an SBOM (CycloneDX) into build/sbom. pip-audit is
asked once, about all packages. A known vulnerability fails. Advisories that cannot be reached do not: the
output says what was not audited.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from keylane_build import image_requirements, job_package, layer
from keylane_build.stack.scanners import program
from keylane_local.tools import project_root

FOLDER = "build/sbom"
SIDE_BY_SIDE = 2
"""How many programs run at once."""


def shipped() -> dict[str, list[str]]:
    """Return the pinned packages of each thing that ships."""
    images = {f"image-{image}": image_requirements.pin_image(image) for image in image_requirements.EXTRAS}
    pinned = {"layer": layer.pin_layer()} | images
    found = {what: [f"{name}=={version}" for name, version in pins.items()] for what, pins in pinned.items()}
    return found | {"job": job_package.list_requirements()}


def write_sbom(requirements: Path, target: Path) -> None:
    """Write a CycloneDX document of the packages in a requirements file. Raises CalledProcessError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [program("cyclonedx-py"), "requirements", str(requirements), "--of", "JSON", "-o", str(target)]
    subprocess.run([*command, "--output-reproducible"], check=True)


def run_audit(requirements: Path) -> str:
    """Return the JSON of pip-audit, "" if it could not run."""
    command = [program("pip-audit"), "--requirement", str(requirements), "--no-deps", "--disable-pip"]
    command += ["--progress-spinner", "off", "--format", "json"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def describe_audit(output: str) -> tuple[list[str], list[str], list[str]]:
    """Return audited packages, packages that could not be audited, and a sentence for each vulnerability."""
    try:
        dependencies: Sequence[dict[str, Any]] = json.loads(output)["dependencies"]
    except ValueError:
        return [], [], []
    audited = [each["name"] for each in dependencies if "vulns" in each]
    skipped = [each["name"] for each in dependencies if "vulns" not in each]
    found = [
        f"{each['name']} {each['version']} has {vulnerability['id']}: fixed in"
        f" {', '.join(vulnerability['fix_versions']) or 'no version'}"
        for each in dependencies
        for vulnerability in each.get("vulns", ())
    ]
    return audited, skipped, found


def render_audit(output: str) -> str:
    """Return what the audit has shown."""
    audited, skipped, found = describe_audit(output)
    if not audited:
        return "NOT AUDITED: pip-audit could not reach the advisories. Run it where PyPI can be reached"
    missing = f"; NOT AUDITED: {', '.join(skipped)}" if skipped else ""
    return "\n".join([f"{len(audited)} packages, {len(found)} vulnerabilities{missing}", *found])


def main() -> int:
    """Write the SBOMs and run the audit; return 1 if a vulnerability is known."""
    found = shipped()
    everything = sorted({pin for pins in found.values() for pin in pins})
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(SIDE_BY_SIDE) as programs:
        audited = programs.submit(run_audit, _requirements(folder, "everything", everything))
        written = [
            programs.submit(write_sbom, _requirements(folder, name, pins), _sbom(name))
            for name, pins in found.items()
        ]
        for each in written:
            each.result()
        output = audited.result()
    print(f"{', '.join(sorted(found))}: {render_audit(output)}", flush=True)
    return 1 if describe_audit(output)[2] else 0


def _sbom(name: str) -> Path:
    return project_root() / FOLDER / f"{name}.json"


def _requirements(folder: str, name: str, pins: list[str]) -> Path:
    path = Path(folder) / f"{name}.txt"
    path.write_text("\n".join(pins) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())
