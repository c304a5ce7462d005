"""Stand-ins for the images that Keylane's containers are made from: `python3 tests/docker/stand_ins.py`.

For a machine with a Docker engine but no registry of images: they are made from Debian's packages and get the
names of the images they stand for, which are those of the Dockerfiles, compose.yaml and template.yaml. Needs
root, debootstrap, and `make setup` for Kafka's jars. The machine's own certificate authorities are included.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RECIPES = HERE / "stand_ins"
SUITES = ("bookworm", "trixie")
OWN = "keylane-stand-in"
_AUTHORITIES = Path("/usr/local/share/ca-certificates")
_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
_UNUSED = ("usr/share/doc", "usr/share/locale", "var/cache/apt/archives", "var/lib/apt/lists")


@dataclass(frozen=True, slots=True)
class StandIn:
    """A recipe, the repository that it stands for, and the files that it copies, by their names there."""

    recipe: str
    repository: str
    files: tuple[tuple[str, Path], ...] = ()


def stand_ins(jars: Path) -> tuple[StandIn, ...]:
    """Return all of them, in the order in which they can be built."""
    return (
        StandIn("python", "python"),
        StandIn("temurin", "eclipse-temurin"),
        StandIn("kafka", "apache/kafka", (("jars", jars), ("run", RECIPES / "kafka-run"))),
        StandIn("valkey", "valkey/valkey"),
        StandIn("lambda", "public.ecr.aws/lambda/python", (("bootstrap", RECIPES / "lambda-bootstrap"),)),
    )


def image_names() -> set[str]:
    """Return the full names of the images that the project's files ask for."""
    dockerfiles = [
        path.read_text("utf-8") for path in sorted((ROOT / "infra" / "docker").glob("*.Dockerfile"))
    ]
    named = {name for text in dockerfiles for name in re.findall(r"^FROM (\S+)", text, re.MULTILINE)}
    compose = (ROOT / "compose.yaml").read_text("utf-8")
    named |= set(re.findall(r"^\s+image: (\S+)", compose, re.MULTILINE))
    template = (ROOT / "template.yaml").read_text("utf-8")
    runtime = re.search(r"^  Runtime:\n    Type: String\n    Default: python(\S+)", template, re.MULTILINE)
    assert runtime, "template.yaml has no default runtime"
    return named | {f"public.ecr.aws/lambda/python:{runtime[1]}-x86_64"}


def import_debian(suite: str) -> None:
    """Make the image of a minimal Debian."""
    with tempfile.TemporaryDirectory(prefix="keylane-debian-") as folder:
        root = Path(folder) / "root"
        _run("debootstrap", "--variant=minbase", "--include=ca-certificates", suite, str(root))
        if _AUTHORITIES.is_dir():
            shutil.copytree(_AUTHORITIES, root / _AUTHORITIES.relative_to("/"), dirs_exist_ok=True)
        _run("chroot", str(root), "update-ca-certificates")
        for unused in _UNUSED:
            shutil.rmtree(root / unused)
            (root / unused).mkdir()
        archive = Path(folder) / "root.tar"
        _run("tar", "--create", "--file", str(archive), "--directory", str(root), "--numeric-owner", ".")
        changes = (f"ENV PIP_CERT={_BUNDLE}", f"ENV REQUESTS_CA_BUNDLE={_BUNDLE}", 'CMD ["bash"]')
        options = [each for change in changes for each in ("--change", change)]
        _run("docker", "import", *options, str(archive), f"{OWN}/debian:{suite}")


def build(stand_in: StandIn, names: set[str]) -> None:
    """Build a stand-in, and give it the names of `names` that are of its repository."""
    with tempfile.TemporaryDirectory(prefix="keylane-stand-in-") as folder:
        for name, source in stand_in.files:
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, Path(folder) / name)
        recipe = RECIPES / f"{stand_in.recipe}.Dockerfile"
        _run("docker", "build", "--tag", f"{OWN}/{stand_in.recipe}", "--file", str(recipe), folder)
    for name in sorted(names):
        if name.partition(":")[0] == stand_in.repository:
            _run("docker", "tag", f"{OWN}/{stand_in.recipe}", name)


def main() -> None:
    """Make all of them; those of Debian only if they are not there yet."""
    jars = Path(os.environ.get("KEYLANE_TOOLS", ROOT / ".keylane-tools")) / "jars"
    names, made = image_names(), stand_ins(jars)
    repositories = {each.repository for each in made}
    if unknown := sorted(name for name in names if name.partition(":")[0] not in repositories):
        sys.exit(f"no stand-in for {', '.join(unknown)}")
    for suite in SUITES:
        if not _is_there(f"{OWN}/debian:{suite}"):
            import_debian(suite)
    for each in made:
        build(each, names)


def _is_there(image: str) -> bool:
    return (
        subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode
        == 0
    )


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
