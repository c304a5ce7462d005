"""What the layer has to carry: layers/keylane/requirements.txt, of pyproject.toml and what is installed.

`python -m keylane_build.layer` writes it: every distribution that the functions' extras lead to, pinned, so
that the build resolves nothing. What Lambda's Python has itself is left out.
"""

from __future__ import annotations

import tomllib
from importlib import metadata
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Collection

EXTRAS = ("produce", "registry", "msk-iam", "validation")
"""The extras of what functions import."""
OF_THE_RUNTIME = frozenset({"boto3", "botocore", "s3transfer"})
OF_A_COMMAND_LINE = frozenset({"click"})
"""The MSK signer's own program needs it, its module does not."""
_HEADER = "# Made from pyproject.toml by `make layer-requirements`: what the layer carries, all of it.\n"
_LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}


def pins(extras: Collection[str], without: Collection[str]) -> dict[str, str]:
    """Name and version of all that the project's `extras` lead to on Linux, but for `without`."""
    found: dict[str, str] = {}
    project = tomllib.loads((project_root() / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own = [
        *project["dependencies"],
        *(each for name in extras for each in project["optional-dependencies"][name]),
    ]
    waiting = [_named(Requirement(each)) for each in own]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen or name in without:
            continue
        seen.add((name, wanted))
        distribution = metadata.distribution(name)
        found[name] = distribution.version
        needed = map(Requirement, distribution.requires or ())
        waiting += [_named(each) for each in needed if _is_wanted(each, wanted)]
    return dict(sorted(found.items()))


def requirements() -> str:
    """The text of requirements.txt."""
    found = pins(EXTRAS, OF_THE_RUNTIME | OF_A_COMMAND_LINE)
    return _HEADER + "".join(f"{name}=={version}\n" for name, version in found.items())


def _named(requirement: Requirement) -> tuple[str, frozenset[str]]:
    return canonicalize_name(requirement.name), frozenset(requirement.extras)


def _is_wanted(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({**_LINUX, "extra": extra}) for extra in extras or {""})


if __name__ == "__main__":
    (project_root() / "layers" / "keylane" / "requirements.txt").write_text(requirements(), encoding="utf-8")
