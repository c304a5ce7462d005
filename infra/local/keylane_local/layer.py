"""What the layer has to carry: layers/keylane/requirements.txt, of pyproject.toml and what is installed.

`python -m keylane_local.layer` writes it: every distribution that the functions' extras lead to, pinned, so
that the build resolves nothing. What Lambda's Python has itself is left out.
"""

from __future__ import annotations

import tomllib
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from keylane_local.tools import project_root

EXTRAS = ("produce", "registry", "msk-iam", "validation")
"""The extras of what functions import."""
OF_THE_RUNTIME = frozenset({"boto3", "botocore", "s3transfer"})
OF_A_COMMAND_LINE = frozenset({"click"})
"""The MSK signer's own program needs it, its module does not."""
_HEADER = "# Made from pyproject.toml by `make layer-requirements`: what the layer carries, all of it.\n"


def requirements() -> str:
    """The text of requirements.txt, for a Linux machine."""
    found: dict[str, str] = {}
    project = tomllib.loads((project_root() / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own = [
        *project["dependencies"],
        *(each for name in EXTRAS for each in project["optional-dependencies"][name]),
    ]
    waiting = [_named(Requirement(each)) for each in own]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen or name in OF_THE_RUNTIME | OF_A_COMMAND_LINE:
            continue
        seen.add((name, extras))
        distribution = metadata.distribution(name)
        found[name] = distribution.version
        waiting += [
            _named(each) for each in map(Requirement, distribution.requires or ()) if _is_wanted(each, extras)
        ]
    return _HEADER + "".join(f"{name}=={found[name]}\n" for name in sorted(found))


def _named(requirement: Requirement) -> tuple[str, frozenset[str]]:
    return canonicalize_name(requirement.name), frozenset(requirement.extras)


def _is_wanted(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    linux = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    return marker is None or any(marker.evaluate({**linux, "extra": extra}) for extra in extras or {""})


if __name__ == "__main__":
    (project_root() / "layers" / "keylane" / "requirements.txt").write_text(requirements(), encoding="utf-8")
