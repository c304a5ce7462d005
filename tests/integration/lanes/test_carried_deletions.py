"""Deletions that the log no longer shows: one generation knows them, the next one has read what is left."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.servers.own import SlotMove, full, primary_and_replica
from tests.support import lanes as t

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.errors import Fenced, StateUnavailable, StraysLost
from keylane.model.records import Layout, Options
from keylane.state import codec, redis_keys
from keylane_spark.lanes.lane import LaneTarget, OffsetRange, lanes_of
from keylane_spark.lanes.lane_reader import LaneReader
from keylane_spark.serving.carried_deletions import DeletionCarrier

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from keylane_spark.lanes.lane_writer import LaneWriter

NUMBERS = itertools.count()
OLD, NEW = 3, 7
"""The partitions of the generation that serves, and of the next one."""
PARTITIONS = range(NEW)


class Row(NamedTuple):
    """One record of the log; a value of None is a tombstone."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None
    time: int


def moved_key(number: int = 0) -> bytes:
    """A key that has another partition in the next generation."""
    keys = (b"%d" % each for each in itertools.count())
    moved = (key for key in keys if routing.partition_for(key, OLD) != routing.partition_for(key, NEW))
    return next(itertools.islice(moved, number, None))


KEY, OTHER = moved_key(0), moved_key(1)
FROM, TO = routing.partition_for(KEY, OLD), routing.partition_for(KEY, NEW)


@dataclass
class Generations:
    """A generation that serves and the next one, between which there was growth (unless `built` says so)."""

    nodes: str
    served: Layout
    built: Layout
    epoch: int = 0
    clusters: list[Cluster] = field(default_factory=list)

    @classmethod
    def of(cls, nodes: str, built_partitions: int = NEW, **options) -> Generations:
        topic = f"carried-{next(NUMBERS)}"
        served = Layout(topic, OLD, generation=1, options=Options(**options))
        made = cls(nodes, served, replace(served, generation=2, partition_count=built_partitions))
        made.open()
        return made

    def open(self) -> None:
        """A job starts."""
        self.epoch += 1
        self.clusters.append(Cluster(t.settings(self.nodes)))
        self.writer = t.writer_over(self.clusters[-1], self.epoch)
        for layout in (self.served, self.built):
            lanes = [lane for number in PARTITIONS for lane in LaneTarget.of_partition(layout, number)]
            self.writer.open([(lane, 0) for lane in lanes])

    def read(self, layout: Layout, rows: Iterable[Row]) -> None:
        """A generation reads records, as the job does."""
        for row in rows:
            lane = self.lane(layout, row.key)
            source = None if lane.partition == row.partition else row.partition
            data = codec.encode_record(row.value, row.offset, row.time, source)
            chunk = t.chunk_of(
                lane, (row.key, data), end_offset=row.offset + 1, has_tombstones=row.value is None
            )
            if source is None:
                self.writer.apply(lane, OffsetRange(0, row.offset + 1), chunk)
            else:
                self.writer.put_strays(lane, chunk, source)
            self.writer.flush()

    def read_both(self, *rows: Row) -> None:
        for layout in (self.served, self.built):
            self.read(layout, rows)

    @staticmethod
    def lane(layout: Layout, key: bytes) -> LaneTarget:
        return LaneTarget.of(layout, routing.partition_for(key, layout.partition_count), 0)

    def carrier(self, writer: LaneWriter | None = None) -> DeletionCarrier:
        cluster = Cluster(t.settings(self.nodes))
        self.clusters.append(cluster)
        reader = LaneReader(cluster, t.CLOCK)
        return DeletionCarrier(reader, writer or self.writer, self.served, self.built)

    def carry(self) -> int:
        carrier = self.carrier()
        for _ in carrier.steps():
            pass
        return carrier.carried

    def expire_marker(self, key: bytes = KEY) -> None:
        """A day goes by."""
        name = self.lane(self.served, key).key_prefix + key
        with t.client(self.nodes) as client:
            if codec.is_tombstone(client.getrange(name, 0, 29)):
                client.delete(name)

    def value(self, layout: Layout, key: bytes = KEY) -> bytes | None:
        records, _ = t.held(self.nodes, self.lane(layout, key), [key])
        return records[key].value if key in records else None

    def values(self, layout: Layout, keys: Iterable[bytes]) -> dict[bytes, bytes | None]:
        return {key: self.value(layout, key) for key in keys}


@pytest.fixture
def make(redis_cluster) -> Iterator[type[Generations]]:
    made: list[Generations] = []

    def of(**fields) -> Generations:
        made.append(Generations.of(redis_cluster, **fields))
        return made[-1]

    yield of
    for each in made:
        for cluster in each.clusters:
            cluster.close()


SET = Row(FROM, 0, KEY, b"v", 100)
DELETED = Row(TO, 0, KEY, None, 200)


def deleted_without_a_trace(of, *, is_expired: bool = True, **options) -> Generations:
    """The key moved, was deleted, and compaction took the tombstone before the next generation read it."""
    made = of(**options)
    made.read(made.served, [SET, DELETED])
    if is_expired:
        made.expire_marker()
    made.read(made.built, [SET])
    assert (made.value(made.served), made.value(made.built)) == (None, b"v")
    return made


@pytest.mark.parametrize("is_expired", [False, True])
@pytest.mark.parametrize("options", [{}, {"marker_ms": 0}, {"index": True, "history_count": 5}])
def test_a_key_that_is_deleted_where_it_is_served_is_deleted_in_the_next_generation(
    make, redis_cluster, is_expired, options
):
    made = deleted_without_a_trace(make, is_expired=is_expired, **options)
    kept = Row(routing.partition_for(OTHER, OLD), 5, OTHER, b"kept", 150)
    made.read_both(kept)
    assert made.carry() == 1
    assert made.values(made.built, (KEY, OTHER)) == {KEY: None, OTHER: b"kept"}
    lane = made.lane(made.built, KEY)
    with t.client(redis_cluster) as client:
        marker = client.get(lane.key_prefix + KEY)
        assert (marker is None) == (options == {"marker_ms": 0})
        assert client.zscore(lane.key_prefix[:-2] + b"i:%d.0" % TO, KEY) is None
        if "history_count" in options:
            *_, last = client.zrange(lane.key_prefix[:-2] + b"h:" + KEY, 0, -1)
            assert codec.decode_history_entry(KEY, last, TO).record is None
    assert made.carry() == 0


def test_a_marker_keeps_out_an_older_stray_that_the_next_generation_reads_later(make):
    made = make()
    made.read(made.served, [DELETED])
    assert made.carry() == 1
    late = Row(FROM, 7, KEY, b"late", 150)
    made.read_both(late)
    assert made.values(made.served, [KEY]) == made.values(made.built, [KEY]) == {KEY: None}
    made.read_both(Row(FROM, 8, KEY, b"newer", 250))
    assert made.values(made.served, [KEY]) == made.values(made.built, [KEY]) == {KEY: b"newer"}


def test_a_marker_of_another_partition_keeps_out_an_older_record_of_the_lane_s_own_that_is_read_later(make):
    """The next lane has met no stray: without its flag it would not compare."""
    made = make(built_partitions=OLD)
    made.read(made.served, [DELETED._replace(partition=(FROM + 1) % OLD)])
    assert made.carry() == 1
    made.read_both(SET)
    assert made.values(made.served, [KEY]) == made.values(made.built, [KEY]) == {KEY: None}


def test_a_marker_keeps_the_order_that_its_key_had_reached(make):
    """The tombstone's own time is earlier than that of the record which it deleted."""
    made = make()
    made.read(made.served, [Row(TO, 0, KEY, b"v", 900), Row(TO, 1, KEY, None, 300)])
    assert made.carry() == 1
    made.read_both(Row(FROM, 0, KEY, b"older", 800))
    assert made.values(made.served, [KEY]) == made.values(made.built, [KEY]) == {KEY: None}


@pytest.mark.parametrize("is_expired", [False, True])
@pytest.mark.parametrize("partition", [FROM, TO])
def test_a_key_that_is_set_again_between_the_look_and_the_deletion_stays(make, is_expired, partition):
    made = deleted_without_a_trace(make, is_expired=is_expired)
    again = Row(partition, 9, KEY, b"again", 300)
    carry = made.writer.carry

    def set_again_first(lane: LaneTarget, tombstones: dict[bytes, bytes]) -> None:
        made.read_both(again)
        carry(lane, tombstones)

    made.writer.carry = set_again_first
    assert made.carry() == 1
    assert made.values(made.served, [KEY]) == made.values(made.built, [KEY]) == {KEY: b"again"}


@pytest.mark.parametrize("partition", [FROM, TO])
def test_a_record_that_the_serving_lane_has_not_read_yet_is_not_taken_for_a_deleted_one(make, partition):
    """The next generation is ahead: what it has read alone is new."""
    made = make()
    before = [Row(FROM, 3, OTHER, b"x", 50), Row(FROM, 4, KEY, None, 60), Row(TO, 4, KEY, None, 70)]
    made.read_both(*before)
    made.expire_marker()
    made.read(made.built, [Row(partition, 5, KEY, b"new", 100)])
    assert made.carry() == 0
    assert made.value(made.built) == b"new"


def test_what_is_no_string_where_it_is_served_is_not_taken_for_a_deleted_key(make, redis_cluster):
    made = deleted_without_a_trace(make)
    with t.client(redis_cluster) as client:
        client.rpush(made.lane(made.served, KEY).key_prefix + KEY, "odd")
    assert made.carry() == 0
    assert made.value(made.built) == b"v"


def test_a_job_that_ends_in_the_middle_leaves_the_rest_to_the_next_and_carries_no_more_itself(make):
    keys = [moved_key(number) for number in range(40)]
    made = make()
    rows = [
        Row(routing.partition_for(key, OLD), number, key, b"v", 100 + number)
        for number, key in enumerate(keys)
    ]
    gone = [
        Row(routing.partition_for(row.key, NEW), 100 + row.offset, row.key, None, 500 + row.offset)
        for row in rows
    ]
    made.read(made.served, [*rows, *gone])
    for key in keys[::2]:
        made.expire_marker(key)
    made.read(made.built, rows)
    first = made.carrier().steps()
    next(first)
    some = [value for value in made.values(made.built, keys).values() if value is not None]
    assert some
    made.open()
    with pytest.raises(Fenced):
        list(first)
    assert [value for value in made.values(made.built, keys).values() if value is not None]
    assert made.carry() == len(some)
    assert set(made.values(made.built, keys).values()) == {None}


def test_a_lane_that_has_failed_over_takes_no_deletions_until_it_is_opened_again(make, redis_cluster):
    made = deleted_without_a_trace(make)
    lane = made.lane(made.built, KEY)
    t.fail_over(redis_cluster, lane)
    with pytest.raises(StraysLost):
        made.carry()
    made.open()
    assert made.carry() == 1


def test_a_full_node_takes_deletions_of_another_generation(make, cluster):
    made = deleted_without_a_trace(make, index=True, history_count=3)
    primary, _ = primary_and_replica(cluster, made.lane(made.built, KEY).slot)
    with full(primary):
        assert made.carry() == 1
    assert made.value(made.built) is None


def test_while_a_slot_migrates_or_moves_the_look_counts_for_nothing(make, cluster):
    """Its keys may move to a node that has been scanned already, from one that has not."""
    made = deleted_without_a_trace(make)
    move = SlotMove(cluster, made.lane(made.built, KEY).slot)
    empty = SlotMove(cluster, next(lane.slot for lane in lanes_of(made.built) if lane.partition != TO))
    for each in (move, empty):
        each.begin()
        try:
            with pytest.raises(StateUnavailable):
                made.carry()
        finally:
            each.undo()
    steps = made.carrier().reader.keys(made.built)
    next(steps)
    move.begin()
    move.arrive()
    with pytest.raises(StateUnavailable):
        list(steps)
    with contextlib.suppress(StraysLost):  # it is on another node, which looks like a failover
        made.carry()
    made.open()
    made.carry()
    assert made.value(made.built) is None
    move.turn_round()
    move.begin()
    move.arrive()


KEYS = [moved_key(number) for number in range(3)]
RECORDS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, 5]), st.sampled_from(KEYS), st.none() | st.binary(max_size=3), st.booleans()
    ),
    max_size=16,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(  # The key never moved: a producer placed its tombstone elsewhere.
    records=[(FROM, KEY, b"v", False), ((FROM + 1) % OLD, KEY, None, True)],
    reached=2,
    expired={KEY},
    same=True,
)
@given(
    records=RECORDS, reached=st.integers(0, 16), expired=st.sets(st.sampled_from(KEYS)), same=st.booleans()
)
def test_whatever_compaction_took_the_next_generation_has_what_the_serving_one_has(
    make, records, reached, expired, same
):
    """Tombstones marked so are compacted away, with what they deleted in their partition, before the look.

    The records from `reached` on are written after it.
    """
    made = make(built_partitions=OLD if same else NEW, index=True)
    offsets: dict[int, int] = dict.fromkeys(PARTITIONS, 0)
    rows, gone = [], []
    for number, (partition, key, value, is_gone) in enumerate(records):
        rows.append(Row(partition, offsets[partition], key, value, 1000 + number))
        offsets[partition] += 1
        if value is None and is_gone and number < reached:
            gone.append(rows[-1])
    early, late = rows[:reached], rows[reached:]
    made.read(made.served, early)
    for key in expired:
        made.expire_marker(key)
    left = [
        row
        for row in early
        if not any(
            (row.partition, row.key) == (each.partition, each.key) and row.offset <= each.offset
            for each in gone
        )
    ]
    made.read(made.built, left)
    made.carry()
    for some in ((), late):
        made.read_both(*some)
        assert made.values(made.built, KEYS) == made.values(made.served, KEYS)
    assert index_of(made) == sorted(key for key in KEYS if made.value(made.served, key) is not None)


def index_of(made: Generations) -> list[bytes]:
    found = []
    with t.client(made.nodes) as client:
        for lane in lanes_of(made.built):
            tag = lane.key_prefix[1 : lane.key_prefix.index(b"}")]
            name = redis_keys.index_key(tag, lane.topic, made.built.generation, lane.partition, 0)
            found += client.zrange(name, 0, -1)
    return sorted(found)
