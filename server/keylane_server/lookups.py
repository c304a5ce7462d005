"""The short way of the server's most frequent request: a plain GET of one key.

A request is plain if nothing but its path decides on its answer: no query, no body, no header that a read of
a key looks at. Its look-up is planned and sent in the loop, without a greenlet; what is not plain, or has no
answer on this way (see `keylane.query.lookup`), takes the way of all requests, from its beginning.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from keylane.access.grants import Need
from keylane.adapters.redis.error_replies import RedisTimeoutError
from keylane.api.http.preferences import prefers_bytes
from keylane.api.reads.key import plain_read, render_record
from keylane.errors import KeylaneError
from keylane.model.routes import BY_NAME, PermissionKind
from keylane.ports import Deadline
from keylane.query.lookup import LookupPlan, Lookups, answer_of
from keylane_server.greenlets import Arrival
from keylane_server.received import KEY_PATH, new_request_id, plain_headers, without_base

if TYPE_CHECKING:
    from keylane.adapters.redis.connections import Node
    from keylane.adapters.redis.conversation import Ask
    from keylane.adapters.redis.state import RedisState
    from keylane.api.http.response import Response
    from keylane.app.query import QueryApp
    from keylane.wiring.query import QueryParts
    from keylane_server.access import TokenAuthorizer
    from keylane_server.admission import AdmissionControl
    from keylane_server.redis.shared_connection import Exchange, SharedConnection

Scope = dict[str, Any]
ROUTE = BY_NAME["get_key"]
NOT_PLAIN = frozenset(
    {
        *(b"content-length", b"transfer-encoding", b"prefer", b"keylane-min-position", b"x-api-key"),
        *(b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since"),
    }
)
"""Headers that may change the answer, or how the request is read: besides Host, Accept and Authorization."""
_ANYTHING = b"*/*"


class Lookup(NamedTuple):
    """A request whose command has been sent."""

    request_id: str
    begun_s: float
    accept: str | None
    plan: LookupPlan
    asked: Ask
    exchange: Exchange


class PlainLookups:
    """Answers plain look-ups of one process. For the loop's thread."""

    def __init__(
        self, application: QueryApp, admission: AdmissionControl, authorizer: TokenAuthorizer | None
    ) -> None:
        """Raises SettingsError, SettingsUnavailable."""
        self._application = application
        self._parts: QueryParts = application.parts()
        state: Any = self._parts.store.state
        self._state: RedisState = state
        self._connections: dict[Node, SharedConnection] = state.cluster.connections
        self._admission = admission
        self._authorizer = authorizer
        self._counts_addresses = bool(admission.limits.of_address)
        settings = application.settings()
        self._base_path = settings.base_path.encode()
        self._served = settings.topics
        self._lookups = Lookups(self._parts.store.layouts)
        self._decoder = self._parts.decoder(self._parts.registry_wait(), as_bytes=False)

    @classmethod
    def open(
        cls, application: QueryApp, admission: AdmissionControl, authorizer: TokenAuthorizer | None
    ) -> Self | None:
        """Return what answers them; None where the application can't: each request is answered why."""
        try:
            return cls(application, admission, authorizer)
        except KeylaneError:
            return None

    def ask(self, scope: Scope) -> Lookup | None:
        """Send what a plain request asks for; None for any other request, and where it can't be sent now."""
        if scope["method"] != "GET" or self._counts_addresses:
            return None
        begun_s = time.perf_counter()
        found = KEY_PATH.fullmatch(without_base(scope["raw_path"], self._base_path))
        headers = plain_headers(scope, NOT_PLAIN) if found else None
        if found is None or headers is None:
            return None
        accept = _accept_of(headers)
        topic, key = found[1].decode(), found[2]
        if prefers_bytes(accept) or not self._may_read(headers, topic):
            return None
        plan = self._lookups.plan(topic, key)
        return None if plan is None else self._send(plan, begun_s, accept)

    async def answer(self, lookup: Lookup) -> Response[Any] | None:
        """Wait for the reply and render it; None where the request has to take the way of all."""
        exchange = lookup.exchange
        try:
            if exchange.missing and exchange.error is None:
                arrival = exchange.waiting = Arrival()
                await arrival.future
        finally:
            self._admission.reads.leave()
        if exchange.error is not None:
            if isinstance(exchange.error, RedisTimeoutError):
                self._state.note_late(lookup.asked)
            return None
        answer = answer_of(lookup.plan, exchange.replies[0])
        if answer is None:
            return None
        read = plain_read(answer.layout.topic, lookup.plan.key, lookup.request_id, lookup.accept)
        response = render_record(answer, read, self._decoder, self._parts.now_ms)
        return self._application.finish(response, ROUTE, lookup.request_id, lookup.begun_s)

    def _send(self, plan: LookupPlan, begun_s: float, accept: str | None) -> Lookup | None:
        if plan.layout.options.value_format == "registry" or not self._served.is_served(plan.layout.topic):
            return None
        deadline = Deadline.after_ms(self._parts.settings.state_timeout_ms, self._parts.store.clock)
        asked = self._state.ask_primary(plan.slot, plan.packed, deadline)
        if asked is None or not self._admission.reads.enter_at_once():
            return None
        exchange = self._connections[asked.node].send(asked.packed, 1, asked.deadline.at_s)
        return Lookup(new_request_id(), begun_s, accept, plan, asked, exchange)

    def _may_read(self, headers: dict[bytes, bytes], topic: str) -> bool:
        authorizer = self._authorizer
        if authorizer is None:
            return True
        need = Need(PermissionKind.READ, (topic,))
        return not authorizer.is_due and authorizer.is_granted(headers.get(b"authorization", b""), need)


def _accept_of(headers: dict[bytes, bytes]) -> str | None:
    """Return the header `Accept`, None where it accepts anything."""
    value = headers.get(b"accept", _ANYTHING)
    return None if value == _ANYTHING else value.decode("latin-1")
