"""What a client does where a server rejects its credentials: a password may have been rotated.

1. The settings are read again, with the secret store's present values.
2. The server gets those, or the former ones: the store and the nodes of a cluster do not change at once.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Generic, TypeVar

from keylane.errors import KeylaneError
from keylane.ports import Deadline

RENEWAL_PAUSE_S = 2.0
"""How long the credentials are not read again; their store may answer from a cache."""

_log = logging.getLogger("keylane")


class LoginSettings:
    """Base of frozen dataclasses. `renewed` reads the settings again; None: they have no store."""

    __slots__ = ()
    username: str | None
    password: str | None
    renewed: Callable[[], Any] | None

    @property
    def credentials(self) -> tuple[str | None, str | None]:
        """User name and password."""
        return self.username, self.password


S = TypeVar("S", bound=LoginSettings)


class RotatedLogin(Generic[S]):
    """The credentials with which one client logs in. `service` begins the log's sentences."""

    def __init__(self, service: str, settings: S) -> None:
        self._service = service
        self._settings = settings
        self._former: S | None = None
        self._renewable_at_s = 0.0

    def attempts(self, deadline: Deadline) -> Iterator[S]:
        """Yield the settings to try. The caller takes the next ones only where those before were rejected."""
        rejected = self._settings
        yield rejected
        self.renew(deadline)
        for settings in (self._settings, self._former):
            if settings is not None and settings.credentials != rejected.credentials:
                yield settings

    def renew(self, deadline: Deadline) -> None:
        """Read the credentials again, at most once every RENEWAL_PAUSE_S."""
        now_s = deadline.clock.monotonic_s()
        if self._settings.renewed is None or now_s < self._renewable_at_s:
            return
        self._renewable_at_s = now_s + RENEWAL_PAUSE_S
        try:
            found = self._settings.renewed()
        except KeylaneError as error:
            _log.warning("%s rejects the credentials, and they can't be read again: %s", self._service, error)
            return
        if found.credentials != self._settings.credentials:
            self._former = self._settings
            changed: Any = replace(self._settings, username=found.username, password=found.password)  # type: ignore[type-var]
            self._settings = changed
            _log.warning("%s rejected the credentials: those of the secret store are used now", self._service)
