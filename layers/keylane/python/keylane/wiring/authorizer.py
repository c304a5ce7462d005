"""What the authorizer works with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from keylane.adapters.aws import references
from keylane.ports import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.access.grants import Grant


ACCESS_S = 60.0
"""How long the authorizer goes by the grants that it has read."""


def access_maker() -> Callable[[], dict[str, Grant]]:
    """Give the maker of the authorizer's grants, read anew each minute. Raises SettingsError when called."""
    from keylane.config.access import read_grants  # noqa: PLC0415

    clock = Clock()
    kept: list[tuple[float, dict[str, Grant]]] = []

    def make() -> dict[str, Grant]:
        if not kept or clock.monotonic_s() - kept[0][0] > ACCESS_S:
            kept[:] = [(clock.monotonic_s(), read_grants(references.resolved(os.environ)))]
        return kept[0][1]

    return make
