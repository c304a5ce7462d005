"""The version of a release: that of the package `keylane`, which all else is compared with."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import keylane
import keylane_client

_SECTION = re.compile(r"^## \[([^\]]+)\]", re.MULTILINE)


class NotReleasable(Exception):
    """The checkout, or what was built from it, is not what a release has to be. The text says why."""


def check_versions(root: Path, tag: str = "") -> str:
    """Return the version. `tag`: "v0.1.0", or "" before there is one. Raises NotReleasable."""
    if problems := list(_differences(root, keylane.__version__, tag)):
        raise NotReleasable("; ".join(problems))
    return keylane.__version__


def _differences(root: Path, version: str, tag: str) -> Iterator[str]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    client = f"keylane-client[cli]=={version}"
    if keylane_client.__version__ != version:
        yield f"keylane is {version}, and keylane_client {keylane_client.__version__}"
    package = json.loads((root / "clients" / "typescript" / "package.json").read_text(encoding="utf-8"))
    if package["version"] != version:
        yield f"keylane is {version}, and clients/typescript {package['version']}"
    if client not in project["dependencies"]:
        yield f"pyproject.toml does not require {client}"
    if version not in _SECTION.findall((root / "CHANGELOG.md").read_text(encoding="utf-8")):
        yield f"CHANGELOG.md has no section [{version}]"
    if tag and tag != f"v{version}":
        yield f"the tag is {tag}, and keylane is {version}"
