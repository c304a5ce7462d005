"""How to log in to the Schema Registry, and what happens where it rejects that.

1. The settings are read again, with the secret store's present values: a password may have been rotated.
2. The registry gets those, or the former ones: the store may be ahead of the registry.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from keylane.errors import KeylaneError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keylane.ports import Deadline

RENEWAL_PAUSE_S = 2.0
"""How long the credentials are not read again; their store may answer from a cache."""

_log = logging.getLogger("keylane")


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """How to reach the registry. `url`: http or https, with the path of its API.

    `renewed` reads the settings again; it is called where the registry rejects the credentials.
    """

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    renewed: Callable[[], RegistrySettings] | None = field(default=None, repr=False, compare=False)

    @property
    def credentials(self) -> tuple[str | None, str | None]:
        """User name and password."""
        return self.username, self.password


class RegistryLogin:
    """The credentials of one registry."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._former: RegistrySettings | None = None
        self._renewable_at_s = 0.0

    def attempts(self, deadline: Deadline) -> Iterator[RegistrySettings]:
        """Yield the settings to try. The caller takes the next ones only where those before were rejected."""
        rejected = self._settings
        yield rejected
        self._renew(deadline)
        for settings in (self._settings, self._former):
            if settings is not None and settings.credentials != rejected.credentials:
                yield settings

    def _renew(self, deadline: Deadline) -> None:
        now_s = deadline.clock.monotonic_s()
        if self._settings.renewed is None or now_s < self._renewable_at_s:
            return
        self._renewable_at_s = now_s + RENEWAL_PAUSE_S
        try:
            found = self._settings.renewed()
        except KeylaneError as error:
            _log.warning("the Schema Registry rejects the login, and it can't be read again: %s", error)
            return
        if found.credentials != self._settings.credentials:
            self._former = self._settings
            self._settings = replace(self._settings, username=found.username, password=found.password)
            _log.warning("the Schema Registry rejected the login: that of the secret store is used now")
