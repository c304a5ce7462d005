"""`python -m keylane_build.release --to dist`: build, check and try a release. Nothing is published."""

import argparse
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from keylane_build.image_requirements import pin_extras, render_image
from keylane_build.release import contents, licences, trial
from keylane_build.release.archives import build_archives
from keylane_build.release.npm_package import NotPackable, build_package
from keylane_build.release.versions import NotReleasable, check_versions
from keylane_local.tools import project_root, tools_dir

SUMS = "SHA256SUMS"
IMAGES = ("job", "server", "keylane")
_HEADER = "# All packages of keylane[local], for pip install --require-hashes on Linux and Python 3.11.\n"


def main() -> int:
    """Build, check and try what was asked for; return the exit code."""
    parser = argparse.ArgumentParser(prog="keylane_build.release")
    parser.add_argument("--to", type=Path, default=project_root() / "dist", help="default: dist")
    parser.add_argument("--tag", default="", help="the tag of the release, to be compared with its version")
    parser.add_argument("--packages", action="store_true", help="Python's packages alone")
    parser.add_argument("--only", default="", choices=["", *trial.TRIALS], help="one trial alone")
    options = parser.parse_args()
    try:
        version = check_versions(project_root(), options.tag)
        _build(options.to, version, packages=options.packages)
        found = trial.run_trials(options.to, version, project_root() / "constraints.txt", options.only)
        _refuse(list(licences.check_licences(found)))
    except (NotPackable, NotReleasable) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    if found:
        text = licences.render_licences(found)
        (options.to / f"keylane-{version}-licences.md").write_text(text, encoding="utf-8")
    _write_sums(options.to)
    return 0


def _build(folder: Path, version: str, *, packages: bool) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    python, root = str(tools_dir() / "release" / "bin" / "python"), project_root()
    machine = contents.paths_of_machine(root)
    problems = []
    for project in (root, root / "clients" / "python"):
        # The wheel is built from the sdist, which so is complete.
        subprocess.run([python, "-m", "build", "--no-isolation", "--outdir", folder, project], check=True)
    for project, name in ((root, "keylane"), (root / "clients" / "python", "keylane_client")):
        wheel, sdist = folder / f"{name}-{version}-py3-none-any.whl", folder / f"{name}-{version}.tar.gz"
        problems += [*contents.check_wheel(project, wheel), *contents.check_sdist(project, sdist)]
    subprocess.run([python, "-m", "twine", "check", "--strict", *folder.iterdir()], check=True)
    if not packages:
        build_package(root, folder)
        build_archives(root, folder, version)
        templates = sorted(folder.glob("keylane-template-*.zip"))
        problems += [each for path in templates for each in contents.check_template(path)]
        pins = render_image(pin_extras(["local"]), _HEADER)
        (folder / f"keylane-{version}-requirements.txt").write_text(pins, encoding="utf-8")
        _build_images(root, version)
    problems += [each for path in folder.iterdir() for each in contents.check_paths(path, machine)]
    _refuse(problems)


def _refuse(problems: list[str]) -> None:
    if problems:
        raise NotReleasable("\n".join(problems))


def _build_images(root: Path, version: str) -> None:
    engine = shutil.which("docker")
    if not engine or subprocess.run([engine, "info"], capture_output=True, check=False).returncode:
        print(
            "The images are left out: no container engine answers. `make release` builds them where one does."
        )
        return
    for image in IMAGES:
        name = image if image == "keylane" else f"keylane-{image}"
        command = [engine, "build", "--tag", f"{name}:{version}"]
        subprocess.run([*command, "--file", f"infra/docker/{image}.Dockerfile", "."], cwd=root, check=True)


def _write_sums(folder: Path) -> None:
    """Write the checksums of all other files, as `sha256sum --check` reads them."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")
    print("".join(f"{path.stat().st_size / 1e6:7.1f} MB {path.name}\n" for path in files), end="")


if __name__ == "__main__":
    sys.exit(main())
