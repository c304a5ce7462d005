"""The fast path of plain look-ups: which requests it plans, and which replies it takes for final."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import (
    NOW_MS,
    a_lane,
    a_layout,
    a_watermark,
    entries_of,
    layout_entry,
    value_key,
)
from tests.support.compressed import dictionary_of, frame_of, order
from tests.support.fakes import FakeState, FakeTime

from keylane.access.scopes import KeyRule, PermittedRows, Scope, ScopeRule
from keylane.adapters.redis.resp import encode_command
from keylane.adapters.redis.state import RedisState
from keylane.api.http.router import Application
from keylane.app.authorizer import Decision
from keylane.app.query import OPERATIONS
from keylane.config.api import ApiSettings
from keylane.config.functions import QuerySettings
from keylane.metrics.meter import NO_METER
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.model.records import Options
from keylane.ports import Deadline
from keylane.query.layouts import Layouts
from keylane.query.store import Store
from keylane.state import codec
from keylane.state.compression import Dictionary
from keylane.state.lanes import lane_of_key
from keylane.wiring.query import QueryParts
from keylane_server.admission import AdmissionControl, Limits
from keylane_server.lookups import PlainLookups
from keylane_server.redis.shared_connection import Exchange

if TYPE_CHECKING:
    from keylane.api.http.response import Response
    from keylane.model.records import Layout
    from keylane.model.routes import Route

LAYOUT = a_layout(stripes=2)
KEY = b"N14228"
NODE = "a node"


class OneNode:
    """A connected node that serves all slots, and a connection that answers with `reply`."""

    meter = NO_METER

    def __init__(self) -> None:
        self.slots = [(NODE,)] * 16_384
        self.connections = {NODE: self}
        self.reply: Any = None
        self.sent: list[bytes] = []

    def send(self, packed: bytes, reply_count: int, expires_s: float) -> Exchange:
        self.sent.append(packed)
        exchange = Exchange(reply_count, expires_s)
        exchange.missing, exchange.replies = 0, [self.reply]
        return exchange


class Server:
    """The fast path over one node, for topics whose layouts were read."""

    def __init__(self, *layouts: Layout, authorizer: Any = None) -> None:
        self.time, self.node = FakeTime(), OneNode()
        self.stored = FakeState({})
        self.layouts = Layouts(self.stored, self.time.clock, 10)
        for layout in layouts:
            self.read(layout)
        node: Any = self.node
        store = Store(RedisState(node), self.layouts, self.time.clock)
        settings = QuerySettings.from_environment({"KEYLANE_REDIS_NODES": "h:1"})
        unused: Any = None
        parts = QueryParts(settings, store, unused, unused, unused, unused)
        application = Application(OPERATIONS, lambda: parts, ApiSettings, meter=NO_METER, clock=store.clock)
        self.admission = AdmissionControl(Limits())
        self.lookups = PlainLookups(application, self.admission, authorizer)

    def read(self, layout: Layout) -> None:
        """Have the layout read: it is known for ten seconds."""
        self.stored.entries.update(layout_entry(layout))
        self.layouts.refresh(layout.topic, Deadline.after_ms(100, self.time.clock))

    def ask(self, key: bytes, topic: str = LAYOUT.topic, token: str = "") -> Any:
        scope = {
            "method": "GET",
            "raw_path": b"/topics/%b/keys/%b" % (topic.encode(), key),
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())],
        }
        return self.lookups.ask(scope)

    def answer(self, reply: Any, **asked: Any) -> Response[Any] | None:
        self.node.reply = reply
        sent = self.ask(**{"key": KEY, **asked})
        assert sent is not None
        found = asyncio.run(self.lookups.answer(sent))
        assert self.admission.reads.running == 0
        return found


@pytest.mark.parametrize("key", [KEY, b"a", b"k" * KEY_LIMIT_BYTES])
def test_a_plain_look_up_is_one_command_for_the_value_and_its_lane_s_watermark(key: bytes):
    server = Server(LAYOUT)
    assert server.ask(key) is not None
    lane = lane_of_key(LAYOUT, key)
    assert server.node.sent == [encode_command(b"MGET", lane.value_prefix + key, lane.watermark_key)]


def test_a_compressed_value_is_answered_once_its_dictionary_was_read():
    layout = replace(LAYOUT, topic="compressed", options=Options(compression="zstd"))
    server = Server(layout)
    dictionary = dictionary_of([order(number) for number in range(200)])
    frame = frame_of(order(1), dictionary)
    value = codec.encode_record(frame, 42, NOW_MS, compressed=True)
    server.node.reply = [value, codec.encode_watermark(a_watermark())]

    def answer() -> Response[Any] | None:
        return asyncio.run(server.lookups.answer(server.ask(KEY, layout.topic)))

    assert answer() is None  # it takes the way of all, which reads the dictionary
    server.lookups._dictionaries.keep(layout, Dictionary(dictionary))
    found = answer()
    assert found is not None
    assert (found.status_code, found.body) == (200, order(1).decode())


@pytest.mark.parametrize("key", [b"", b"k" * (KEY_LIMIT_BYTES + 1)])
def test_what_is_no_key_is_not_asked_for(key: bytes):
    assert Server(LAYOUT).ask(key) is None


def test_a_topic_is_asked_for_as_long_as_its_layout_is_known():
    server = Server()
    assert server.ask(KEY) is None
    server.read(LAYOUT)
    assert server.ask(KEY) is not None
    server.time.move(10.1)
    assert server.ask(KEY) is None


def test_a_look_up_goes_by_the_newest_layout():
    server = Server()
    for layout in (LAYOUT, replace(LAYOUT, generation=LAYOUT.generation + 1, stripes=1)):
        server.read(layout)
        assert server.ask(KEY).lookup.lane == lane_of_key(layout, KEY)


@pytest.mark.parametrize(
    "options", [Options(key_format="registry"), Options(value_format="registry")], ids=str
)
def test_what_needs_a_schema_registry_is_not_asked_for(options: Options):
    assert Server(a_layout(options=options)).ask(KEY) is None


def test_a_key_is_asked_for_by_the_value_of_its_field():
    layout = replace(LAYOUT, options=Options(key_fields=(("id", "integer"),)))
    server = Server(layout)
    assert server.ask(b"7").lookup.key == b'{"id":7}'
    assert server.ask(b"seven") is None


MARK = codec.encode_watermark(a_watermark())
VALUE = codec.encode_record(b"1", 3, NOW_MS)


def test_a_final_answer_is_rendered():
    entries = a_lane(LAYOUT, KEY, b"1")
    mark = entries[lane_of_key(LAYOUT, KEY).watermark_key]
    found = Server(LAYOUT).answer([entries[value_key(LAYOUT, KEY)], mark])
    assert found is not None
    assert (found.status_code, found.body) == (200, "1")
    absent = Server(LAYOUT).answer([None, mark])
    assert absent is not None
    assert (absent.status_code, absent.problem) == (404, "key-absent")


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(RuntimeError("MOVED"), id="a redirect"),
        pytest.param(b"?", id="no array"),
        pytest.param([VALUE, None], id="a lane without a watermark"),
        pytest.param([VALUE, codec.encode_watermark(a_watermark(superseded=True))], id="superseded"),
        pytest.param([VALUE, codec.encode_watermark(a_watermark(complete_as_of_ms=0))], id="building"),
        pytest.param([VALUE, MARK[:-1]], id="a watermark that is cut off"),
        pytest.param([VALUE[:5], MARK], id="a record that is cut off"),
        pytest.param([b"\x09" + VALUE[1:], MARK], id="an unknown version"),
    ],
)
def test_a_reply_that_needs_more_than_a_look_is_left_to_the_way_of_all(reply: Any):
    assert Server(LAYOUT).answer(reply) is None


ROWS = replace(LAYOUT, topic="rows", options=Options(fields=(("tenant", "text"),)))


class Rules:
    """What the rules of callers permit of `rows`, by their tokens. `counted`: what was decided by a rule."""

    def __init__(self, **rows: PermittedRows) -> None:
        self._decisions: dict[str, Decision] = {}
        for token, permitted in rows.items():
            scope = Scope(token, (ScopeRule(permitted, read=("rows",)),))
            self._decisions[token] = Decision(token, is_allowed=True, scope=scope)
        self.counted: list[Decision] = []

    def recall(self, authorization: bytes, route: Route, names: tuple[str, ...]) -> Decision | None:
        assert (route.name, names) == ("get_key", ("rows",))
        return self._decisions.get(authorization.decode().removeprefix("Bearer "))

    def count(self, decision: Decision) -> None:
        self.counted.append(decision)


def a_row(**value: Any) -> list[bytes]:
    data = json.dumps(value).encode()
    return [codec.encode_record(data, 3, NOW_MS, fields=entries_of(data, ROWS.options)), MARK]


def test_rules_decide_on_keys_rows_and_fields_of_a_look_up():
    rules = Rules(
        own=PermittedRows("own", KeyRule("N1", is_prefix=True)),
        other=PermittedRows("other", KeyRule("X", is_prefix=True)),
        tenant=PermittedRows("tenant", where=(("tenant", ("a",)),)),
        fields=PermittedRows("fields", fields=("n",)),
        nothing=PermittedRows("nothing", where=(("missing", ("a",)),)),
    )
    server = Server(ROWS, authorizer=rules)
    row, lane = a_row(tenant="a", n=1), lane_of_key(ROWS, KEY)

    def answer(token: str, reply: list[bytes]) -> tuple[int, Any, int]:
        found = server.answer(reply, topic="rows", token=token)
        assert found is not None
        return (
            found.status_code,
            found.body if found.status_code == 200 else found.problem,
            len(found.headers),
        )

    whole = (200, '{"tenant": "a", "n": 1}')
    assert answer("own", row)[:2] == whole
    absent = answer("own", [None, MARK])  # type: ignore[list-item]
    assert absent[:2] == (404, "key-absent")
    assert answer("tenant", row)[:2] == whole
    assert answer("tenant", a_row(tenant="b", n=1)) == absent
    assert answer("fields", row)[:2] == (200, '{"n": 1}')
    assert answer("other", [MARK]) == absent
    assert server.node.sent[-1] == encode_command(b"MGET", lane.watermark_key)
    assert [each.caller for each in rules.counted] == ["own", "own", "tenant", "tenant", "fields", "other"]
    for token in ("nothing", "a stranger"):
        assert server.ask(KEY, "rows", token) is None


def test_rules_are_made_again_for_a_newer_layout():
    server = Server(ROWS, authorizer=Rules(tenant=PermittedRows("tenant", where=(("tenant", ("a",)),))))
    for _ in range(2):
        found = server.answer(a_row(tenant="a"), topic="rows", token="tenant")
        assert found is not None
        assert found.status_code == 200
    server.read(replace(ROWS, generation=ROWS.generation + 1, options=Options()))
    assert server.ask(KEY, "rows", "tenant") is None, "the topic has no field of the rule any more"
