"""What is asked of lanes: a topic's options as arguments of the library, and keys that change meanwhile."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.fakes import FakeTime

from keylane.adapters.redis.cluster import Node
from keylane.adapters.redis.error_replies import MovedError
from keylane.adapters.redis.resp import new_reader
from keylane.errors import StateUnavailable
from keylane.model.records import Layout, Options, Position, Watermark
from keylane.state import codec, lanes
from keylane_spark.lanes import function_library
from keylane_spark.lanes.lane import LONGEST_MS
from keylane_spark.lanes.lane_reader import LaneReader
from keylane_spark.lanes.option_arguments import OptionArguments, lua_names, option_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.ports import Deadline

FIELDS = OptionArguments._fields
LUA = {
    each.name: each.read_text(encoding="utf-8")
    for each in files("keylane_spark.lanes").joinpath("library").iterdir()
}


def test_the_library_begins_with_the_places_of_the_arguments_by_their_names():
    names, places = re.fullmatch(r"local ([A-Z_, ]+) = ([0-9, ]+)\n", lua_names().decode()).groups()  # type: ignore[union-attr]
    assert names.lower().split(", ") == list(FIELDS)
    assert list(map(int, places.split(", "))) == list(range(len(FIELDS)))
    assert function_library.CODE.count(lua_names()) == 1
    assert function_library.CODE.index(lua_names()) < function_library.CODE.index(b"local function")


def test_lua_uses_the_names_that_there_are_and_no_number_for_an_option():
    used = {name for text in LUA.values() for name in re.findall(r"args\[\w+ \+ ([A-Z_]+)\]", text)}
    assert used <= {each.upper() for each in FIELDS}
    assert {each.lower() for each in used} == set(FIELDS)
    assert [name for name, text in LUA.items() if re.search(r"args\[at( \+ \d+)?\]", text)] == []


@pytest.mark.parametrize(
    ("options", "given"),
    [
        (Options(), (Options().marker_ms, 0, 7, 0, 0, 0, 0, 0)),
        (
            Options(
                ttl_ms=1,
                history_count=2,
                history_age_ms=3,
                insert_once=True,
                index=4,
                marker_ms=5,
                guarded=True,
            ),
            (5, 1, 7, 1, 2, 3, 1, 4),
        ),
        (Options(ttl_ms=10**17), (Options().marker_ms, 1, 7, LONGEST_MS, 0, 0, 0, 0)),
    ],
)
def test_options_are_numbers_in_the_order_of_the_names(options: Options, given: tuple[int, ...]):
    assert option_arguments(options, 7) == tuple(b"%d" % each for each in given)


LAYOUT = Layout("orders", 1, generation=1)
KEY = b"k"
LANE = lanes.lane_of_key(LAYOUT, KEY)
NAME = LANE.value_prefix + KEY
TAKEN = LANE.value_prefix[:-2] + b"s:0.0"


class FakeCluster:
    """One node. `after_each`: what happens after each command that it has carried out."""

    def __init__(self, after_each: Callable[[FakeCluster], None] = lambda _: None) -> None:
        self.keys: dict[bytes, Any] = {}
        self._after_each = after_each

    def primary(self, slot: int) -> Node:  # noqa: ARG002
        return Node("127.0.0.1", 7000)

    def roundtrip(self, _: Node, packed: bytes, count: int, __: Deadline) -> list[Any]:
        reader = new_reader()
        reader.feed(packed)
        replies = []
        for _command in range(count):
            name, key, *rest = reader.gets()
            held = self.keys.get(key, b"" if name == b"GETRANGE" else None)
            replies.append(held.get(rest[0]) if isinstance(held, dict) else held)
            self._after_each(self)
        return replies

    def read(self, partition: int, offset: int) -> None:
        """The lane reads a record of the key."""
        own = partition == LANE.partition
        self.keys[NAME] = codec.encode_record(b"v", offset, 5, None if own else partition)
        if own:
            self.keys[LANE.watermark_key] = codec.encode_watermark(Watermark(offset + 1, 1, 0, 0))
        else:
            self.keys[TAKEN] = {b"%d" % partition: b"%d" % (offset + 1)}


def absent(cluster: FakeCluster, position: Position) -> set[bytes]:
    redis: Any = cluster
    return LaneReader(redis, FakeTime().clock).absent(LAYOUT, {KEY: position})


@pytest.mark.parametrize("partition", [0, 3])
def test_a_key_is_absent_where_its_lane_has_read_beyond_the_position_and_has_nothing(partition: int):
    cluster = FakeCluster()
    assert absent(cluster, Position(partition, 7)) == set()
    cluster.read(partition, 7)
    assert absent(cluster, Position(partition, 7)) == set()
    del cluster.keys[NAME]
    assert absent(cluster, Position(partition, 7)) == {KEY}
    assert absent(cluster, Position(partition, 8)) == set()
    assert absent(cluster, Position(1, 7)) == set()


@pytest.mark.parametrize("partition", [0, 3])
def test_a_record_that_the_lane_reads_between_two_questions_is_not_taken_for_an_absent_one(partition: int):
    cluster = FakeCluster(lambda each: each.read(partition, 7))
    assert absent(cluster, Position(partition, 7)) == set()


def test_a_slot_that_has_moved_is_no_answer():
    cluster = FakeCluster()
    cluster.keys[NAME] = MovedError("7000 127.0.0.1:7001")
    redis: Any = cluster
    with pytest.raises(StateUnavailable):
        LaneReader(redis, FakeTime().clock).stored(LAYOUT, [KEY])
