"""The grants that the authorizer goes by."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from keylane.adapters.aws import references
from keylane.config.access import read_grants

if TYPE_CHECKING:
    from keylane.access.grants import Grant
    from keylane.ports import Clock

GRANTS_TTL_S = 60.0
"""How long the grants are used before they are read again."""


class GrantsSource:
    """The grants of the environment, re-read each minute: the value of a reference may have changed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._grants: dict[str, Grant] = {}
        self._read_s: float | None = None

    def current(self) -> dict[str, Grant]:
        """Return the grants by the SHA-256 of their tokens. Raises SettingsError, SettingsUnavailable."""
        now_s = self._clock.monotonic_s()
        if self._read_s is None or now_s - self._read_s > GRANTS_TTL_S:
            self._grants = read_grants(references.resolved(os.environ))
            self._read_s = now_s
        return self._grants
