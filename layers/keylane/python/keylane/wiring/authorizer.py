"""The grants that the authorizer goes by."""

import logging
from collections.abc import Mapping

from keylane.access.grants import Grant
from keylane.adapters.aws import references
from keylane.config.access import read_grants
from keylane.errors import SettingsUnavailable
from keylane.ports import Clock

GRANTS_TTL_S = 60.0
"""How long the grants are used before they are read again."""
STALE_S = 15 * 60.0
"""How long they are used at most while they can't be read again."""
RETRY_S = 5.0
_log = logging.getLogger("keylane")


class GrantsSource:
    """The grants of the environment, re-read each minute: the value of a reference may have changed.

    While Secrets Manager or Parameter Store does not answer, the last grants stay valid for STALE_S.
    """

    def __init__(self, environment: Mapping[str, str], clock: Clock) -> None:
        self._environment = environment
        self._clock = clock
        self._grants: dict[str, Grant] = {}
        self._read_s: float | None = None
        self._next_read_s = 0.0

    def current(self) -> dict[str, Grant]:
        """Return the grants by the SHA-256 of their tokens. Raises SettingsError, SettingsUnavailable."""
        now_s = self._clock.monotonic_s()
        if self._read_s is None or now_s >= self._next_read_s:
            try:
                self._grants = read_grants(references.resolved(self._environment))
            except SettingsUnavailable as error:
                if self._read_s is None or now_s - self._read_s > STALE_S:
                    raise
                _log.warning("the grants of %.0f s ago are used: %s", now_s - self._read_s, error)
                self._next_read_s = now_s + RETRY_S
                return self._grants
            self._read_s, self._next_read_s = now_s, now_s + GRANTS_TTL_S
        return self._grants
