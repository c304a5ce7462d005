"""The layer's packages: `python -m keylane_build.layer` writes layers/keylane/requirements.txt.

It pins every distribution that the functions' extras of pyproject.toml require, at the installed versions, so
that the build of the layer resolves nothing. Packages of Lambda's runtime are left out.
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
"""The extras that functions import."""
IN_THE_RUNTIME = frozenset({"boto3", "botocore", "s3transfer"})
FOR_PROGRAMS = frozenset({"click"})
"""Required by the MSK signer's command line only."""
_HEADER = "# Generated from pyproject.toml by `make layer-requirements`: all packages of the layer.\n"
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
        if (name, wanted) in seen or name in without:
            continue
        seen.add((name, wanted))
        distribution = metadata.distribution(name)
        found[name] = distribution.version
        needed = map(Requirement, distribution.requires or ())
        waiting += [_name_and_extras(each) for each in needed if _is_wanted(each, wanted)]
    return dict(sorted(found.items()))


def render_requirements() -> str:
    """Return the content of requirements.txt."""
    found = pin_requirements(EXTRAS, IN_THE_RUNTIME | FOR_PROGRAMS)
    return _HEADER + "".join(f"{name}=={version}\n" for name, version in found.items())


def _name_and_extras(requirement: Requirement) -> tuple[str, frozenset[str]]:
    return canonicalize_name(requirement.name), frozenset(requirement.extras)


def _is_wanted(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({**_LINUX, "extra": extra}) for extra in extras or {""})


if __name__ == "__main__":
    (project_root() / "layers" / "keylane" / "requirements.txt").write_text(
        render_requirements(), encoding="utf-8"
    )
