"""The lines of a snapshot: what a client is sent, whom rules apply to, and how it ends."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import an_application, layout_entry, query_settings
from tests.support.written_topic import WrittenTopic

from keylane.access.scopes import KeyRule, PermittedRows, Scope, ScopeRule
from keylane.api.http.request import Request
from keylane.api.reads import snapshot
from keylane.app import query
from keylane.config.api import ApiSettings
from keylane.errors import NotStreamed
from keylane.model.records import Options
from keylane.query import lane_snapshot
from keylane.query.row_scopes import RowScopes
from keylane.wiring.query import QueryParts
from keylane.wiring.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TENANTS = Options(index=1, fields=(("tenant", "text"),))
ACME = PermittedRows("own", where=(("tenant", ("acme",)),))


@dataclass
class SnapshotHost:
    """What a server does: it makes the lines when they are read. `between`: is called after the first."""

    topic: WrittenTopic = field(default_factory=lambda: WrittenTopic(1, partitions=1, options=TENANTS))
    between: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        reader = self.topic.reader
        parts = QueryParts(
            query_settings(),
            reader.store,
            lambda: pytest.fail("nothing here has a schema"),
            reader.log,
            Runtime().open_stream,
            lambda begin, _: begin(),
        )
        self.application = an_application(query.OPERATIONS, parts, ApiSettings())

    def respond(self, rows: PermittedRows | None = None, accept: str = "", **given: str) -> Any:
        scope = None if rows is None else Scope("eve", (ScopeRule(rows, read=("*",)),))
        named = {name: [value] for name, value in given.items()}
        headers = {"accept-encoding": accept} if accept else {}
        path = f"/topics/{self.topic.layout.topic}/snapshot"
        return self.application.respond(Request("GET", path, named, headers, id="request-1", scope=scope))

    def lines(self, rows: PermittedRows | None = None, **given: str) -> list[dict[str, Any]]:
        response = self.respond(rows, **given)
        assert response.status_code == 200, response.body
        return list(self._read(response.body))

    def _read(self, pieces: Iterator[bytes]) -> Iterator[dict[str, Any]]:
        for number, piece in enumerate(pieces):
            assert not piece or piece.endswith(b"\n")
            yield from map(json.loads, piece.splitlines())
            if number == 0:
                self.between()

    def put(self, key: bytes, tenant: str | None) -> None:
        self.topic.write(key, None if tenant is None else b'{"tenant": "%s"}' % tenant.encode())
        self.topic.apply_all()

    def put_among_others(self, key: bytes, tenant: str) -> None:
        """Put a record, and others in which a scan goes on after it."""
        self.topic.state.step_keys = 1
        self.put(key, tenant)
        for number in range(8):
            self.put(b"other-%d" % number, "zoo")


@pytest.fixture
def host() -> SnapshotHost:
    return SnapshotHost()


def keys_of(lines: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    return [(line["key"], "absent" in line) for line in lines if "key" in line]


def test_lines_are_begin_rows_lanes_and_end(host: SnapshotHost):
    host.put(b"a", "acme")
    begin, row, lane, end = host.lines()
    cursor = begin["begin"].pop("cursor")
    assert begin == {"begin": {"topic": "written", "lanes": 1, "at": "0:1@7"}}
    assert [line["lane"]["lane"] for line in host.lines(cursor=cursor) if "lane" in line] == ["0.0"]
    assert (row["key"], row["position"], row["value"]) == ("a", "0:0", {"tenant": "acme"})
    assert lane["lane"].keys() == {"lane", "partition", "next_offset", "as_of_ms", "cursor"}
    assert (lane["lane"]["lane"], lane["lane"]["next_offset"]) == ("0.0", 1)
    assert end == {"end": {"at": "0:1@7"}}


def test_large_rows_give_way_to_others(host: SnapshotHost):
    for key in (b"a", b"b", b"c"):
        host.topic.write(key, b'{"filler":"%b"}' % (b"x" * 40_000))
    host.topic.apply_all()
    assert len(keys_of(host.lines())) == 3
    assert host.topic.time.ways == 1


@pytest.mark.parametrize("value", [b'{"tenant": "acme",\n "n": 1}', b'{"tenant": "acme",\r\n\r"n": 1}\n'])
def test_a_value_with_line_breaks_is_one_line(host: SnapshotHost, value: bytes):
    host.topic.write(b"a", value)
    host.topic.apply_all()
    _, row, lane, end = host.lines()
    assert row["value"] == {"tenant": "acme", "n": 1}
    assert [next(iter(each)) for each in (lane, end)] == ["lane", "end"]


def test_lanes_are_read_apart_and_go_on_with_the_cursor_of_any_of_them():
    host = SnapshotHost(WrittenTopic(1, partitions=4))
    for number in range(40):
        host.put(b"k%d" % number, "acme")
    whole = host.lines()
    cursor = whole[0]["begin"]["cursor"]
    parts = [host.lines(lanes=lanes, cursor=cursor) for lanes in ("0-0", "1-2", "3-9")]
    assert [[line["lane"]["lane"] for line in part if "lane" in line] for part in parts] == [
        ["0.0"],
        ["1.0", "2.0"],
        ["3.0"],
    ]
    assert sorted(key for part in parts for key in keys_of(part)) == sorted(keys_of(whole))
    assert all(part[-1] == {"end": {}} for part in parts)
    behind = next(line["lane"]["cursor"] for line in parts[1] if "lane" in line)
    rest = host.lines(lanes="1-2", cursor=behind)
    assert [line["lane"]["lane"] for line in rest if "lane" in line] == ["2.0"]
    assert host.lines(lanes="4-5")[1:] == [{"end": {}}]


@pytest.mark.parametrize("lanes", ["", "1", "2-1", "-1", "a-b", "1-2-3", "0-1234567", "\u0661-\u0662"])
def test_what_is_no_range_of_lanes_is_refused(host: SnapshotHost, lanes: str):
    response = host.respond(lanes=lanes)
    assert (response.status_code, json.loads(response.body)["parameter"]) == (400, "lanes")


def test_a_part_of_a_topic_that_was_built_again_is_refused(host: SnapshotHost):
    cursor = host.lines()[0]["begin"]["cursor"]
    host.topic.build_again()
    response = host.respond(lanes="0-0", cursor=cursor)
    assert response.status_code == 409
    assert json.loads(response.body)["type"] == "urn:keylane:problem:snapshot-outdated"


def test_rows_come_in_pieces_and_each_lane_is_sent_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(snapshot, "ROWS_AT_ONCE", 2)
    host = SnapshotHost(WrittenTopic(1, partitions=1))
    host.topic.state.step_keys = 100
    for number in range(5):
        host.put(b"k%d" % number, "acme")
    pieces = list(host.respond().body)
    assert [piece.count(b'"key"') for piece in pieces] == [0, 0, 2, 2, 1, 0, 0, 0]
    assert [number for number, piece in enumerate(pieces) if not piece] == [1, 6]
    assert b'"lane"' in pieces[5]


def test_a_time_to_live_is_in_the_first_line():
    host = SnapshotHost(WrittenTopic(1, options=Options(ttl_ms=5_000)))
    assert host.lines()[0]["begin"]["ttl_ms"] == 5_000


def test_keys_are_shown_as_they_are_asked_for(host: SnapshotHost):
    host.put(b"ab", "acme")
    assert keys_of(host.lines(prefix="YQ==", key_format="base64")) == [("ab", False)]
    assert keys_of(host.lines(prefix="b")) == []


def test_of_a_condition_what_leaves_is_removed(host: SnapshotHost):
    host.put_among_others(b"a", "acme")
    lines = host.respond(tenant="acme").body
    assert [bool(next(lines)), bool(next(lines))] == [True, False]
    assert keys_of([json.loads(next(lines))]) == [("a", False)]
    host.put(b"a", "zoo")
    rest = [json.loads(line) for piece in lines for line in piece.splitlines()]
    assert keys_of(rest) == [("a", True)]


@pytest.mark.parametrize("rows", [ACME, PermittedRows("own", KeyRule("a"))])
def test_a_scoped_caller_gets_permitted_rows_and_no_name_of_another_key(
    host: SnapshotHost, rows: PermittedRows
):
    host.put_among_others(b"a", "acme")
    lines = host.respond(rows).body
    assert [bool(next(lines)), bool(next(lines))] == [True, False]
    assert keys_of([json.loads(next(lines))]) == [("a", False)]
    host.put(b"other-0", None)
    host.put(b"c", "zoo")
    host.put(b"a", None)
    rest = [json.loads(line) for piece in lines for line in piece.splitlines()]
    assert keys_of(rest) == [("a", True)]
    assert "end" in rest[-1]


def test_the_stream_that_goes_on_after_a_snapshot_is_of_the_same_rules(host: SnapshotHost):
    found = set()
    for rows in (None, ACME, PermittedRows("own", fields=("tenant",))):
        begin, *_, end = host.lines(rows)
        scope = Scope("eve", (ScopeRule(rows, read=("*",)),)) if rows else None
        own = RowScopes(scope, lambda _, record: record, lambda *_: ()) if scope else None
        layout = host.topic.layout
        incarnation = own.of(layout).incarnation if own else layout.incarnation
        assert begin["begin"]["at"].endswith(f"@{incarnation}")
        assert end["end"]["at"].endswith(f"@{incarnation}")
        found.add(incarnation)
    assert len(found) == 3


def test_a_snapshot_is_of_the_newest_layout(host: SnapshotHost):
    assert host.lines()[0]["begin"]["at"].endswith("@7")
    host.topic.state.entries |= layout_entry(replace(host.topic.layout, incarnation=8))
    assert host.lines()[0]["begin"]["at"].endswith("@8")


def test_rules_that_compare_fields_permit_so_many_rows_of_a_lane(
    host: SnapshotHost, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lane_snapshot, "MOST_NOTED", 3)
    for number in range(4):
        host.put(b"%d" % number, "acme")
    assert "end" in host.lines()[-1]
    assert host.lines(ACME)[-1]["problem"]["type"] == "urn:keylane:problem:scope-too-wide"


def test_a_condition_on_a_hidden_field_is_403(host: SnapshotHost):
    hidden = PermittedRows("own", fields=("amount",))
    assert host.respond(hidden, tenant="acme").status_code == 403


def test_what_goes_wrong_in_the_middle_is_the_last_line(host: SnapshotHost):
    host.put(b"a", "acme")
    host.between = lambda: setattr(host.topic.state, "away", True)
    last = host.lines()[-1]["problem"]
    assert (last["status"], last["instance"]) == (503, "request-1")
    assert last["type"] == "urn:keylane:problem:state-unavailable"


def test_an_unforeseen_error_is_a_problem_without_its_text(host: SnapshotHost):
    def fail() -> None:
        raise ZeroDivisionError("secret")

    host.topic.state.before = fail
    last = host.lines()[-1]["problem"]
    assert (last["status"], "secret" in json.dumps(last)) == (500, False)


def test_a_cursor_goes_on_at_a_lane_and_belongs_to_its_caller():
    host = SnapshotHost(WrittenTopic(1, partitions=2, options=TENANTS))
    first, second = (line["lane"] for line in host.lines() if "lane" in line)
    lanes = [line["lane"] for line in host.lines(cursor=first["cursor"]) if "lane" in line]
    assert [lane["lane"] for lane in lanes] == [second["lane"]]
    assert host.lines(cursor=second["cursor"])[1:] == [{"end": {}}]
    for other in ({"prefix": "a"}, {"tenant": "acme"}, {"rows": ACME}):
        response = host.respond(cursor=first["cursor"], **other)
        assert (response.status_code, json.loads(response.body)["parameter"]) == (400, "cursor")


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        ("gzip", "gzip"),
        ("gzip, zstd", "zstd"),
        ("gzip;q=1, zstd;q=0.5", "gzip"),
        ("*", "zstd"),
        ("gzip;q=0", None),
        ("br", None),
        ("", None),
    ],
)
def test_the_content_coding_is_what_the_client_prefers(host: SnapshotHost, accept: str, coding: str | None):
    assert host.respond(accept=accept).headers.get("Content-Encoding") == coding


def test_a_function_answers_501_before_it_opens_kafka(host: SnapshotHost):
    parts = replace(host.application.parts(), open_lines=Runtime().open_lines)
    with pytest.raises(NotStreamed):
        parts.open_lines(lambda: pytest.fail("it begins"), None)
