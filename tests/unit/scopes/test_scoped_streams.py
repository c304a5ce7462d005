"""The routes of streams: what they open for a caller with a scope."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.builders import NOW_MS, a_layout, a_watermark, an_application, query_parts_over
from tests.support.indexed_state import IndexedState, StoredRecord

from keylane.access.scopes import KeyRule, PermittedRows, Scope, ScopeRule
from keylane.api.http.request import Request
from keylane.app import query
from keylane.config.api import ApiSettings
from keylane.model.changes import RECORD, ChangeEvent
from keylane.model.records import Answer, Layout, Options, Record
from keylane.state.field_index import indexes_of

OPTIONS = Options(index=1, fields=(("tenant", "text"),))
ACME = PermittedRows("own", where=(("tenant", ("acme",)),))


@dataclass
class OpenedStreams:
    """What a server would stream: what was opened, and which of them were closed."""

    layout: Layout = field(default_factory=lambda: a_layout(None, 1, options=OPTIONS))
    opened: list[tuple[Any, ...]] = field(default_factory=list)
    closed: int = 0

    def __post_init__(self) -> None:
        self.state = IndexedState()
        self.state.add(self.layout, [StoredRecord(b"k1", b'{"tenant": "acme"}', 1, NOW_MS)])
        self.parts = replace(query_parts_over(self.state), open_stream=self.open)
        self._application = an_application(query.OPERATIONS, self.parts, ApiSettings())

    def open(self, *given: Any) -> OpenedStreams:
        self.opened.append(given)
        return self

    def close(self) -> None:
        self.closed += 1

    def ask(self, rows: PermittedRows, path: str, **query: str) -> Any:
        scope = Scope("eve", (ScopeRule(rows, read=("*",)),))
        named = {name: [value] for name, value in query.items()}
        full = f"/topics/{self.layout.topic}{path}"
        return self._application.respond(Request("GET", full, named, {}, id="request-1", scope=scope))

    def event(self, key: bytes, tenant: str) -> ChangeEvent:
        entries, _ = indexes_of(OPTIONS).entries({"tenant": tenant})
        record = Record(key, b"{}", 0, 7, NOW_MS, entries=entries)
        return ChangeEvent(RECORD, "{}", "0:7", key, Answer(self.layout, 0, record, a_watermark()))


def test_a_stream_of_a_topic_is_shared_and_each_listener_chooses():
    streams = OpenedStreams()
    assert streams.ask(ACME, "/changes", prefix="k").body is streams
    ((source, since, is_wanted, choose),) = streams.opened
    assert (since, is_wanted(b"k1"), is_wanted(b"x")) == (None, True, False)
    assert "eve" not in repr(source.identity)
    assert choose(streams.event(b"k2", "zoo")) is None
    assert choose(streams.event(b"k2", "acme")).name == RECORD


def test_a_stream_that_can_t_begin_is_closed():
    streams = OpenedStreams()
    streams.state.away = False

    def fail(*_: Any) -> OpenedStreams:
        streams.state.away = True
        return streams

    streams.open = fail  # type: ignore[method-assign]
    streams._application = an_application(
        query.OPERATIONS, replace(streams.parts, open_stream=fail), ApiSettings()
    )
    assert streams.ask(ACME, "/changes").status_code == 503
    assert streams.closed == 1


def test_a_stream_of_a_key_is_read_within_the_scope():
    streams = OpenedStreams()
    rows = PermittedRows("own", KeyRule("k2"))
    assert streams.ask(rows, "/keys/k1/changes").body is streams
    ((source, *_),) = streams.opened
    source.start()
    (event,), _ = source.catch_up(None, lambda _: True)
    assert (event.name, event.id) == ("absent", "absent")
