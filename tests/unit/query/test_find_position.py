"""A find that has to have a position, over nodes of which one is behind; what lanes answer is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import NOW_MS, a_layout, a_watermark, entries_of, layout_entry
from tests.support.fakes import FakeState, FakeTime

from keylane.errors import PositionNotReached
from keylane.model.records import Layout, Options, Position
from keylane.query.conditions import EQUAL, Asked
from keylane.query.find import count_found, find
from keylane.query.finder import FindScan
from keylane.query.layouts import Layouts
from keylane.query.store import ReadTerms, Store
from keylane.state import codec
from keylane.state.lanes import given_key, lane_at, lane_of_key, lanes_of_topic, strays_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.ports import Call, Deadline

OPTIONS = Options(index=1, fields=(("status", "text"),))
VALUE = b'{"status": "open"}'
TERMS = ReadTerms(timeout_ms=1000)
ASKED = (Asked("status", EQUAL, "open"),)


@dataclass
class NodesOfLanes(FakeState):
    """Primaries and replicas of the lanes of a topic, each with at most one record.

    `behind`: lanes whose primary does not answer in time, so that a replica does, which lacks the record.
    """

    rows: dict[bytes, tuple[bytes, bytes]] = field(default_factory=dict)
    behind: set[bytes] = field(default_factory=set)
    scripts: list[bool] = field(default_factory=list)

    def run(self, calls: Sequence[Call], deadline: Deadline, *, primary_only: bool = False) -> list[Any]:
        return [self._answer(call, deadline, primary_only=primary_only) for call in calls]

    def _answer(self, call: Call, deadline: Deadline, *, primary_only: bool) -> Any:
        if call.words[0] == b"ZLEXCOUNT":
            return 1
        if call.words[0] != b"EVALSHA_RO":
            return super().run([call], deadline, primary_only=primary_only)[0]
        self.scripts.append(primary_only)
        watermark_key = call.words[3]
        is_behind = watermark_key in self.behind and not primary_only
        member = None if is_behind else self.rows.get(watermark_key)
        watermark = codec.encode_watermark(a_watermark(0)) if is_behind else self.entries[watermark_key]
        return [watermark, [member[0]] if member else [], [member[1]] if member else [], 0]


@pytest.fixture
def layout() -> Layout:
    return a_layout(partition_count=2, options=OPTIONS)


@pytest.fixture
def nodes(layout: Layout) -> NodesOfLanes:
    state = NodesOfLanes()
    state.entries |= layout_entry(layout)
    for lane in lanes_of_topic(layout):
        state.entries[lane.watermark_key] = codec.encode_watermark(a_watermark(1))
    return state


def store_of(nodes: NodesOfLanes) -> Store:
    clock = FakeTime(NOW_MS).clock
    return Store(nodes, Layouts(nodes, clock, 30), clock)


def key_in(layout: Layout, partition: int) -> bytes:
    keys = (b"key-%d" % number for number in range(1000))
    return next(key for key in keys if lane_of_key(layout, key).partition == partition)


def put(nodes: NodesOfLanes, layout: Layout, key: bytes, offset: int, source: int | None = None) -> None:
    lane = lane_of_key(layout, key)
    fields = entries_of(VALUE, OPTIONS)
    member = b"open\0" + key
    nodes.rows[lane.watermark_key] = member, codec.encode_record(VALUE, offset, NOW_MS, source, fields=fields)
    nodes.behind.add(lane.watermark_key)


def keys_found(nodes: NodesOfLanes, layout: Layout, position: Position | None) -> list[bytes]:
    scan = FindScan(ASKED, None, 10, min_position=position, position_ms=100)
    page = find(store_of(nodes), layout.topic, scan, TERMS, lambda _, record: record)
    return [key for key, _ in page.rows]


@pytest.mark.parametrize("source", [None, 1], ids=["of its own partition", "a stray"])
def test_a_page_with_a_position_is_read_from_primaries_which_have_it(
    nodes: NodesOfLanes, layout: Layout, source: int | None
):
    key = key_in(layout, 0)
    put(nodes, layout, key, 0, source)
    assert keys_found(nodes, layout, None) == []
    assert keys_found(nodes, layout, Position(source or 0, 0)) == [key]
    assert not any(nodes.scripts[:2])
    assert all(nodes.scripts[2:])


def test_a_count_with_a_position_is_of_primaries_too(nodes: NodesOfLanes, layout: Layout):
    put(nodes, layout, key_in(layout, 0), 0)
    scan = FindScan((*ASKED, Asked("status", EQUAL, "open")), None, 10, min_position=Position(0, 0))
    found = count_found(store_of(nodes), layout.topic, scan, TERMS, lambda _, record: record)
    assert found.count == 1
    assert nodes.scripts
    assert all(nodes.scripts)


def test_a_primary_that_was_behind_until_a_failover_is_an_error_and_not_a_page(
    nodes: NodesOfLanes, layout: Layout, monkeypatch: pytest.MonkeyPatch
):
    lane = lanes_of_topic(layout)[0]
    answer = nodes._answer

    def fail_over(call: Call, deadline: Deadline, *, primary_only: bool) -> Any:
        if call.words[0] == b"EVALSHA_RO":
            nodes.entries[lane.watermark_key] = codec.encode_watermark(a_watermark(0))
        return answer(call, deadline, primary_only=primary_only)

    monkeypatch.setattr(nodes, "_answer", fail_over)
    with pytest.raises(PositionNotReached):
        keys_found(nodes, layout, Position(0, 0))


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_stray_that_a_failover_took_back_is_an_error_and_not_a_page_without_it(
    nodes: NodesOfLanes, layout: Layout, when: str, monkeypatch: pytest.MonkeyPatch
):
    lane, first = lane_of_key(layout, key_in(layout, 0)), lane_at(layout, 1, 0)
    nodes.entries[first.watermark_key] = codec.encode_watermark(a_watermark(1, gave_strays=True))
    nodes.hashes[given_key(layout, first)] = {str(lane).encode(): b"1"}
    taken = nodes.hashes[strays_key(layout, lane)] = {b"1": b"1"}
    assert keys_found(nodes, layout, Position(1, 0)) == []
    nodes.scripts.clear()
    answer = nodes._answer

    def fail_over(call: Call, deadline: Deadline, *, primary_only: bool) -> Any:
        if call.words[0] == b"EVALSHA_RO":
            taken[b"1"] = b"0"
        return answer(call, deadline, primary_only=primary_only)

    monkeypatch.setattr(nodes, "_answer", fail_over)
    if when == "before":
        taken[b"1"] = b"0"
    with pytest.raises(PositionNotReached):
        keys_found(nodes, layout, Position(1, 0))
    assert bool(nodes.scripts) == (when == "meanwhile")


def test_a_position_is_there_once_all_stripes_of_its_partition_have_it(nodes: NodesOfLanes):
    layout = a_layout(partition_count=2, stripes=2, options=OPTIONS)
    nodes.entries |= layout_entry(layout)
    for lane in lanes_of_topic(layout):
        nodes.entries[lane.watermark_key] = codec.encode_watermark(a_watermark(int(lane.stripe == 1)))
    with pytest.raises(PositionNotReached):
        keys_found(nodes, layout, Position(0, 0))
    assert not nodes.scripts


def test_a_page_that_an_index_drives_ends_once_its_records_are_large(
    nodes: NodesOfLanes, layout: Layout, monkeypatch: pytest.MonkeyPatch
):
    for partition in (0, 1):
        put(nodes, layout, key_in(layout, partition), 0)
    monkeypatch.setattr("keylane.query.finder.PAGE_BYTES", len(VALUE))
    scan = FindScan(ASKED, None, 10, min_position=Position(0, 0))
    page = find(store_of(nodes), layout.topic, scan, TERMS, lambda _, record: record)
    assert len(page.rows) == 1
    assert page.next_after is not None
