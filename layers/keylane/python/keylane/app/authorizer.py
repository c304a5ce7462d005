"""Which token may do what, by the grants of KEYLANE_ACCESS: for Lambda's authorizer and for the server."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple

from keylane.access.grants import (
    LEAST_CHARACTERS,
    Grant,
    grant_of,
    need_of,
    short_token_of,
    why_unknown,
)
from keylane.config.api import ApiSettings
from keylane.model.routes import Target, find
from keylane.wiring.application import read_api_settings
from keylane.wiring.authorizer import GrantsSource
from keylane.wiring.runtime import Runtime

_log = logging.getLogger("keylane")


class NotAuthorized(Exception):
    """The request has no known token; the text says what is wrong with it."""


class AccessRequest(NamedTuple):
    """What is asked for: as the fields of a `Request`, with the header `Authorization` alone."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    authorization: str


class Decision(NamedTuple):
    """Whose token it is, and whether it grants the request."""

    caller: str
    is_allowed: bool


def build(runtime: Runtime, environment: Mapping[str, str]) -> "Authorizer":
    """Return what decides. The grants are read by the first request."""
    source = GrantsSource(environment, runtime.clock)
    return Authorizer(source.current, cache(partial(read_api_settings, environment)))


class Authorizer:
    """Decides by the grants that `read_grants` returns. What the two functions raise, it raises."""

    def __init__(
        self, read_grants: Callable[[], Mapping[str, Grant]], read_settings: Callable[[], ApiSettings]
    ) -> None:
        self._read_grants = read_grants
        self._read_settings = read_settings

    def decide(self, request: AccessRequest) -> Decision:
        """Return whether the token grants the request. Raises NotAuthorized."""
        path = self._read_settings().path_of(request.path)
        return decide(self._read_grants(), request, find(request.method, path))


def decide(grants: Mapping[str, Grant], request: AccessRequest, target: Target) -> Decision:
    """Return whether the token grants a request that leads there. Raises NotAuthorized."""
    grant = grant_of(grants, request.authorization)
    if grant is None:
        if name := short_token_of(grants, request.authorization):
            _log.error("the token of %s has fewer than %d characters: it is refused", name, LEAST_CHARACTERS)
        raise NotAuthorized(why_unknown(request.authorization))
    need = need_of(target, request.query)
    is_allowed = need is not None and grant.allows(need)
    if not is_allowed:
        _log.warning("%s may not %s %s", grant.name, request.method[:20], target.path[:300])
    return Decision(grant.name, is_allowed)
