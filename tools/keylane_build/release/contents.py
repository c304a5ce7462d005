"""What the wheels and sdists contain: the files of git that belong in them, all of them, and nothing else."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

SHIPPED = "keylane_local/shipped"
"""Where tools/hatch_build.py puts what is not Python."""
_OF_HATCHLING = frozenset({"PKG-INFO", ".gitignore"})
_LOCAL_PATH = re.compile(r"^\s+(?:CodeUri|ContentUri|TemplateURL): (?P<path>[\w./-]+)$", re.MULTILINE)
_NEVER = frozenset({"tests", "bench", ".github"})


def tracked(project: Path) -> list[str]:
    """Return the paths of git's files below a folder, relative to it."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=project, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.split("\0") if name and (project / name).exists()]


def expect_in_wheel(settings: Mapping[str, Any], files: Collection[str]) -> set[str]:
    """Return the names that a wheel should have. `settings`: those of hatch's target `wheel`."""
    names = set()
    for package in map(PurePosixPath, settings["packages"]):
        below = [PurePosixPath(name) for name in files if package in PurePosixPath(name).parents]
        names |= {str(each.relative_to(package.parent)) for each in below}
    for pattern in settings.get("hooks", {}).get("custom", {}).get("shipped", ()):
        # A folder's files, or those that a pattern without folders in its `*` finds.
        found = [each for each in files if each.startswith(f"{pattern}/") or _matches(each, pattern)]
        names |= {f"{SHIPPED}/{each}" for each in found}
    return names


def check_wheel(project: Path, wheel: Path) -> Iterator[str]:
    """Yield a sentence for each file that is missing in the wheel, or should not be there."""
    text = (project / "pyproject.toml").read_text(encoding="utf-8")
    wanted = expect_in_wheel(
        tomllib.loads(text)["tool"]["hatch"]["build"]["targets"]["wheel"], tracked(project)
    )
    names = read_members(wheel).keys()
    found = {name for name in names if not name.partition("/")[0].endswith(".dist-info")}
    yield from (f"{wheel.name} lacks {name}" for name in sorted(wanted - found))
    yield from (f"{wheel.name} has {name}, which it should not" for name in sorted(found - wanted))
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        yield f"{wheel.name} has no licence"


def check_sdist(project: Path, sdist: Path) -> Iterator[str]:
    """Yield a sentence for each file that git does not have, or that is for the checkout alone."""
    names = {name.partition("/")[2] for name in read_members(sdist)}
    yield from (
        f"{sdist.name} has {name}, which git does not have"
        for name in sorted(names - set(tracked(project)) - _OF_HATCHLING)
    )
    unwanted = sorted(name for name in names if _NEVER & set(PurePosixPath(name).parts))
    yield from (f"{sdist.name} has {name}, which is for the checkout alone" for name in unwanted)


def check_template(archive: Path) -> Iterator[str]:
    """Yield a sentence for each local path of an archive's template that the archive lacks."""
    files = read_members(archive)
    for match in _LOCAL_PATH.finditer(files["template.yaml"].decode()):
        path = match["path"]
        if path not in files and not any(name.startswith(f"{path}/") for name in files):
            yield f"{archive.name} lacks {path}, which its template names"


def check_paths(archive: Path, machine: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each file of an archive that names a path of the machine that built it."""
    for name, data in read_members(archive).items():
        yield from (f"{archive.name}: {name} names {path}" for path in machine if path.encode() in data)


def paths_of_machine(root: Path) -> set[str]:
    """Return paths that nothing which was built here may name."""
    # Names of root's home are in files that have nothing to do with this machine.
    return {str(root), sys.prefix, str(Path.home())} - {"/", "/root", "/usr"}


def read_members(archive: Path) -> dict[str, bytes]:
    """Return name and bytes of each file of a zip or tar archive; of another file, its own."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as files:
            return {each.filename: files.read(each) for each in files.infolist() if not each.is_dir()}
    if not tarfile.is_tarfile(archive):
        return {archive.name: archive.read_bytes()}
    with tarfile.open(archive) as packed:
        opened = ((each.name, packed.extractfile(each)) for each in packed.getmembers())
        return {name: file.read() for name, file in opened if file}


def _matches(name: str, pattern: str) -> bool:
    return name.count("/") == pattern.count("/") and fnmatch(name, pattern)
