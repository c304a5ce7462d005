"""The checksums of what Ivy downloads: `python jars.py FOLDER LIST` checks a folder, as the job's image does.

Ivy compares a file with the checksum that the same server gives. The list is ours, so a server that serves
another file is found. Standard library only: the set-up imports it, and the image has nothing else of this
package when it runs it.
"""

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

LIST = Path("infra", "jars.sha256")
"""In the checkout: lines of `sha256sum`."""
_KINDS = ("*.jar", "*.tar.gz")


class WrongChecksum(Exception):
    """A file is not the one that the list has, or is not in it. The text names the file."""


def checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each jar and archive of a folder, by name."""
    files = (path for kind in _KINDS for path in folder.glob(kind))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def read(file: Path) -> dict[str, str]:
    """Return the checksums of a list, by name."""
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines())
    return {name: found for found, name in lines}


def render(found: dict[str, str]) -> str:
    """Return the list of these checksums."""
    return "".join(f"{found[name]}  {name}\n" for name in sorted(found))


def verify(folder: Path, file: Path) -> None:
    """Raise WrongChecksum unless every jar and archive of `folder` is the one of the list."""
    wanted = read(file)
    for name, found in checksums(folder).items():
        if name not in wanted:
            raise WrongChecksum(
                f"{name} is not in {file.name}: `make jar-checksums` adds it, once you trust it"
            )
        if found != wanted[name]:
            raise WrongChecksum(f"{name} has the SHA-256 {found}, and {file.name} has {wanted[name]}")


def main(arguments: Iterable[str]) -> int:
    """Check the folder; return the exit code."""
    folder, file = map(Path, arguments)
    try:
        verify(folder, file)
    except WrongChecksum as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
