"""Who may do what: bearer tokens and API keys, by the grants of the authorizer function (KEYLANE_ACCESS)."""

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Executor

from keylane.access.grants import Grant, Need, grant_of
from keylane.app.authorizer import AccessRequest, NotAuthorized, decide
from keylane.errors import KeylaneError, SettingsUnavailable
from keylane.ports import Clock
from keylane.wiring.authorizer import GrantsSource
from keylane_server.greenlets import begin, call_in_thread
from keylane_server.received import ReceivedRequest

__all__ = ["NotAllowed", "NotAuthorized", "TokenAuthorizer"]
GRANTED_LIMIT = 10_000
"""How many pairs of a token and what it was granted are remembered."""
LONGEST_GRANTED = 1_024
"""Of a header whose grants are remembered: spaces before the token count."""
LOOK_S = 5.0
"""How often it is looked whether the grants are due to be read again."""
_log = logging.getLogger("keylane.serve")


class NotAllowed(Exception):
    """The token does not grant the request."""


class TokenAuthorizer:
    """Decides as the authorizer function does. A thread reads the grants: they may be in a secret store."""

    def __init__(self, environment: Mapping[str, str], clock: Clock, executor: Executor) -> None:
        self._source = GrantsSource(environment, clock)
        self._executor = executor
        self._grants: Mapping[str, Grant] = {}
        self._granted: set[tuple[bytes, Need]] = set()
        self._look_at_s = 0.0

    def reload(self) -> None:
        """Read the grants where that is due, as a request. Raises SettingsError, SettingsUnavailable."""
        self._look_at_s = time.monotonic() + LOOK_S
        self._replace(call_in_thread(self._executor, self._source.current))

    @property
    def _is_due(self) -> bool:
        """Whether to look now whether the grants are due to be read again."""
        return time.monotonic() >= self._look_at_s

    def _reload_or_log(self) -> None:
        """Read the grants where that is due; where they can't be read for long, nobody is allowed."""
        try:
            self.reload()
        except SettingsUnavailable as error:
            self._replace({})
            _log.error("every request is refused, because the grants can't be read: %s", error)
        except KeylaneError as error:
            _log.error("the grants are not changed: %s", error)

    def _replace(self, grants: Mapping[str, Grant]) -> None:
        if grants is not self._grants:
            self._grants = grants
            self._granted.clear()

    def is_granted(self, authorization: bytes, need: Need) -> bool:
        """Return whether the token of an Authorization header grants what a request needs.

        What was granted is remembered until the grants are read again. False may mean only that `caller_of`
        has to decide, or that it has to have the grants read again.
        """
        if self._is_due or len(authorization) > LONGEST_GRANTED:
            return False
        asked = authorization, need
        if asked in self._granted:
            return True
        grant = grant_of(self._grants, authorization.decode("latin-1"))
        if grant is None or not grant.allows(need):
            return False
        if len(self._granted) >= GRANTED_LIMIT:
            self._granted.clear()
        self._granted.add(asked)
        return True

    def caller_of(self, request: ReceivedRequest) -> str:
        """Return the name of the token, from Authorization or x-api-key. Raises NotAuthorized, NotAllowed.

        It has the grants read again where that is due, and does not wait for them.
        """
        if self._is_due:
            begin(self._reload_or_log, _ignore)
        headers = request.last
        authorization = headers.get("authorization", "")
        if not authorization and (key := headers.get("x-api-key")):
            authorization = f"Bearer {key}"
        # The query is parsed for those who have a token.
        query = request.query if grant_of(self._grants, authorization) else {}
        asked = AccessRequest(request.method, request.path, query, authorization)
        caller, is_allowed = decide(self._grants, asked, request.target)
        if not is_allowed:
            raise NotAllowed
        return caller


def _ignore(_: object, error: BaseException | None) -> None:
    if error is not None:
        _log.error("%s", error)
