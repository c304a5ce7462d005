"""The fast path of the server's most frequent request: a plain GET of one key.

A request is plain if nothing but its path decides on its answer: no query, no body, no header that a read of
a key looks at. Its plan is sent in the loop, without a greenlet. Plan, answer and rendering are those of
every read of a key; what is not plain, or whose answer is not final, takes the way of all requests, from its
beginning. It answers half as many look-ups again: docs/decisions/server.md has the figures.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from keylane.adapters.redis.error_replies import RedisTimeoutError
from keylane.api.http.preferences import prefers_bytes
from keylane.api.http.request import is_host
from keylane.api.reads.key import plain_read, render_record
from keylane.errors import BadRequest, KeylaneError, OutsideScope
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.model.routes import BY_NAME
from keylane.ports import Deadline
from keylane.query.dictionaries import Expander
from keylane.query.lookup import Lookup, answer_of, is_final, plan_lookup
from keylane.state.codec import expand_none
from keylane.state.json_keys import record_key
from keylane.wiring.query import MOST_CALLERS
from keylane_server.greenlets import Arrival
from keylane_server.received import KEY_PATH, new_request_id, plain_headers, without_base

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.access.scopes import Scope as AccessScope
    from keylane.adapters.redis.connections import Node
    from keylane.adapters.redis.conversation import Ask
    from keylane.adapters.redis.state import RedisState
    from keylane.api.http.response import Response
    from keylane.app.authorizer import Decision
    from keylane.app.query import QueryApp
    from keylane.model.records import Answer, Layout
    from keylane.query.decoding import ValueDecoder
    from keylane.query.row_scopes import TopicScope
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


class PlainCaller(NamedTuple):
    """What decodes the values for a caller. Where rules decide what they see: the decision, and the rules."""

    decoder: ValueDecoder
    decision: Decision | None = None
    rules: TopicScope | None = None


class SentLookup(NamedTuple):
    """A request whose command has been sent."""

    request_id: str
    begun_s: float
    accept: str | None
    caller: PlainCaller
    lookup: Lookup
    asked: Ask
    exchange: Exchange


class PlainLookups:
    """Answers plain look-ups of one process. For the loop's thread."""

    def __init__(
        self,
        application: QueryApp,
        admission: AdmissionControl,
        authorizer: TokenAuthorizer | None,
        is_host: Callable[[str], bool] = is_host,
    ) -> None:
        """`is_host`: by which host it may be asked. Raises SettingsError, SettingsUnavailable."""
        self._is_host = is_host
        self._application = application
        parts: QueryParts = application.parts()
        state: Any = parts.store.state
        self._state: RedisState = state
        self._connections: dict[Node, SharedConnection] = state.cluster.connections
        self._admission = admission
        self._authorizer = authorizer
        self._counts_addresses = bool(admission.limits.of_address)
        settings = application.settings()
        self._base_path = settings.base_path.encode()
        self._served = settings.topics
        self._layouts, self._clock = parts.store.layouts, parts.store.clock
        self._dictionaries = parts.store.dictionaries
        self._timeout_ms = parts.settings.state_timeout_ms
        self._parts = parts
        self._scoped: dict[int, PlainCaller] = {}  # by the id of the decision, which is kept with it
        self._anyone = PlainCaller(parts.decoder(parts.registry_wait(), as_bytes=False))

    @classmethod
    def open(
        cls,
        application: QueryApp,
        admission: AdmissionControl,
        authorizer: TokenAuthorizer | None,
        is_host: Callable[[str], bool],
    ) -> Self | None:
        """Return what answers them; None where the application can't: each request is answered why."""
        try:
            return cls(application, admission, authorizer, is_host)
        except KeylaneError:
            return None

    def ask(self, scope: Scope) -> SentLookup | None:
        """Send what a plain request asks for; None for any other request, and where it can't be sent now."""
        if scope["method"] != "GET" or self._counts_addresses:
            return None
        begun_s = time.perf_counter()
        found = KEY_PATH.fullmatch(without_base(scope["raw_path"], self._base_path))
        headers = plain_headers(scope, NOT_PLAIN, self._is_host) if found else None
        if found is None or headers is None:
            return None
        accept = _accept_of(headers)
        layout = None if prefers_bytes(accept) else self._layout_of(found[1].decode())
        caller = None if layout is None else self._caller_of(headers, layout)
        if layout is None or caller is None:
            return None
        lookup = self._plan(layout, found[2], caller.rules)
        return None if lookup is None else self._send(caller, lookup, begun_s, accept)

    async def answer(self, sent: SentLookup) -> Response[Any] | None:
        """Wait for the reply and render it; None where the request has to take the way of all."""
        exchange, lookup = sent.exchange, sent.lookup
        try:
            if exchange.missing and exchange.error is None:
                arrival = exchange.waiting = Arrival()
                await arrival.future
        finally:
            self._admission.reads.leave()
        if exchange.error is not None:
            if isinstance(exchange.error, RedisTimeoutError):
                self._state.note_late(sent.asked)
            return None
        answer = self._answer_of(lookup, exchange.replies[0])
        if answer is None:
            return None
        if self._authorizer is not None and sent.caller.decision is not None:
            self._authorizer.count(sent.caller.decision)
        read = plain_read(answer.layout.topic, lookup.key, sent.request_id, sent.accept)
        response = render_record(answer, read, sent.caller.decoder, self._clock.now_ms())
        return self._application.finish(response, ROUTE, sent.request_id, sent.begun_s)

    def _layout_of(self, topic: str) -> Layout | None:
        """Return the layout of a topic; None where something else has to be asked, too."""
        layout = self._layouts.known(topic)
        if layout is None or not self._served.is_served(topic):
            return None
        options = layout.options
        return None if "registry" in (options.key_format, options.value_format) else layout

    def _plan(self, layout: Layout, key: bytes, rules: TopicScope | None) -> Lookup | None:
        """Return what to ask for a key; None for what is not a key of the topic."""
        if len(key) > KEY_LIMIT_BYTES:
            return None
        try:
            return plan_lookup(layout, record_key(layout.options, key), rules)
        except BadRequest:
            return None

    def _send(
        self, caller: PlainCaller, lookup: Lookup, begun_s: float, accept: str | None
    ) -> SentLookup | None:
        deadline = Deadline.after_ms(self._timeout_ms, self._clock)
        asked = self._state.ask_primary(lookup.lane.slot, (b"MGET", *lookup.names), deadline)
        if asked is None or not self._admission.reads.enter_at_once():
            return None
        exchange = self._connections[asked.node].send(asked.packed, 1, asked.deadline.at_s)
        return SentLookup(new_request_id(), begun_s, accept, caller, lookup, asked, exchange)

    def _answer_of(self, lookup: Lookup, reply: Any) -> Answer | None:
        """Return what a reply says; None where it is an error, or the key has to be read with more care.

        So has one whose value is compressed with a dictionary that has not been read yet.
        """
        if not isinstance(reply, list):
            return None
        expand = expand_none
        if lookup.layout.options.compression != "none":
            expand = Expander(lookup.layout, self._dictionaries).expand
        try:
            answer = answer_of(lookup, reply, expand)
        except KeylaneError:
            return None
        return answer if is_final(answer) else None

    def _caller_of(self, headers: dict[bytes, bytes], layout: Layout) -> PlainCaller | None:
        """Return who may read a topic; None where something else has to be asked, or there may be nobody."""
        authorizer = self._authorizer
        if authorizer is None:
            return self._anyone
        decision = authorizer.recall(headers.get(b"authorization", b""), ROUTE, (layout.topic,))
        if decision is None or decision.scope is None:
            return self._anyone if decision is not None else None
        known = self._scoped.get(id(decision))
        if known is not None and known.rules is not None and known.rules.layout is layout:
            return known
        caller = self._make_scoped(decision, decision.scope, layout)
        if caller is not None:
            if len(self._scoped) >= MOST_CALLERS:
                self._scoped.clear()
            self._scoped[id(decision)] = caller
        return caller

    def _make_scoped(self, decision: Decision, scope: AccessScope, layout: Layout) -> PlainCaller | None:
        """Return a caller to whom rules apply; None where these permit nothing of the topic."""
        parts = self._parts.within(scope)
        assert parts.store.scopes is not None  # noqa: S101 - for the type checker: of a scope
        try:
            rules = parts.store.scopes.of(layout)
        except OutsideScope:
            return None
        return PlainCaller(parts.decoder(parts.registry_wait(), as_bytes=False), decision, rules)


def _accept_of(headers: dict[bytes, bytes]) -> str | None:
    """Return the header `Accept`, None where it accepts anything."""
    value = headers.get(b"accept", _ANYTHING)
    return None if value == _ANYTHING else value.decode("latin-1")
