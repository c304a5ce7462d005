"""Patches of LocalStack that are applied by name, if they are for the installed version.

PROCESS_EXECUTOR_PATCHES has the names, separated by commas, or `all`. Without it LocalStack stays as it is.
A patch that cannot be applied is logged, and LocalStack starts without it. This module needs nothing of it.
"""

import logging
from collections.abc import Callable, Mapping

LOG = logging.getLogger(__name__)
VARIABLE = "PROCESS_EXECUTOR_PATCHES"
ALL = "all"
SERIES = "4.14"
"""The patches replace internals of this series of LocalStack, so they are for no other one."""


def choose(names: str, patches: Mapping[str, Callable[[], None]]) -> list[str]:
    """Return the names of the patches that the variable's value asks for, in the order of `patches`."""
    wanted = {each.strip() for each in names.split(",") if each.strip()}
    if ALL in wanted:
        return list(patches)
    for name in sorted(wanted - patches.keys()):
        LOG.warning("%s: there is no patch %s; choose from %s, %s", VARIABLE, name, ALL, ", ".join(patches))
    return [name for name in patches if name in wanted]


def apply_patches(names: str, patches: Mapping[str, Callable[[], None]], version: str) -> list[str]:
    """Apply the patches that the variable's value asks for; return the names of those that were applied."""
    chosen = choose(names, patches)
    if chosen and not version.startswith(f"{SERIES}."):
        LOG.warning(
            "%s: not applied, because they are for LocalStack %s and this is %s: %s",
            VARIABLE,
            SERIES,
            version,
            ", ".join(chosen),
        )
        return []
    return [name for name in chosen if _applies(name, patches[name])]


def _applies(name: str, patch: Callable[[], None]) -> bool:
    try:
        patch()
    except Exception:
        LOG.exception("the patch %s could not be applied: LocalStack starts without it", name)
        return False
    LOG.info("patch applied: %s: %s", name, (patch.__doc__ or "").split("\n")[0])
    return True
