"""The torture's checks: the fold; every fault that a reader may see is reported, and nothing else."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
from tests.torture.checks import Facts, check_seen
from tests.torture.faults.world import Trouble
from tests.torture.leftovers import KnownKeys, explains
from tests.torture.oracle import Acknowledged, KeyLog, Logged
from tests.torture.readers import count_by_source
from tests.torture.reading import Seen
from tests.torture.schedule import Shape
from tests.torture.sources import SERVER, STORE, NoAnswer
from tests.torture.stack import KEYLANE_SLOT, slot_of

from keylane import routing
from keylane.errors import LaneBuilding, StateUnavailable, UnknownTopic
from keylane.model.records import Answer, HistoryEntry, Layout, Options, Position, Record, Watermark

KEY = b"1/000"
PARTITIONS = 6
HOME = routing.partition_for(KEY, PARTITIONS)
OTHER = (HOME + 1) % PARTITIONS
LAYOUT = Layout("plain", PARTITIONS)


class ALog:
    """A log of one key: (partition, offset, timestamp, value) each, in offset order within a partition."""

    def __init__(self, *records: tuple[int, int, int, bytes | None]) -> None:
        self.key_log = KeyLog(HOME)
        for partition, offset, time_ms, value in records:
            own = self.key_log.records.setdefault(partition, [])
            order_ms = max(time_ms, own[-1].order_ms if own else 0)
            own.append(Logged(partition, offset, time_ms, value, (), order_ms))

    def of(self, _: str, key: bytes) -> KeyLog:
        assert key == KEY
        return self.key_log


class AStack:
    """Two shards: the lanes' and that of `{keylane}`."""

    cluster = SimpleNamespace(shards=2)
    stripes = {"plain": {1}, "mixed": {1}}  # noqa: RUF012 - frozen

    def shard_of(self, slot: int) -> int:
        return int(slot == KEYLANE_SLOT)

    def layouts(self) -> dict[str, Layout]:
        return {"plain": LAYOUT}


LOG = ALog((HOME, 0, 10, b"a"), (HOME, 4, 20, None), (HOME, 7, 30, b"b"))


def seen(at_s: float, next_offset: int, offset: int | None, topic: str = "plain", **more) -> Seen:
    """A read that found the record at `offset`, under a watermark."""
    record = None
    partition, log = more.pop("partition", HOME), more.pop("log", LOG)
    if offset is not None:
        logged = log.key_log.at(partition, offset)
        record = Record(KEY, logged.value, partition, offset, logged.timestamp_ms)
    layout = dataclasses.replace(LAYOUT, topic=topic)
    watermark = Watermark(next_offset, more.pop("epoch", 1), complete_as_of_ms=more.pop("complete_ms", 1))
    return Seen(
        0, topic, KEY, at_s, at_s, Answer(layout, HOME, record, watermark), None, ended_ms=100, **more
    )


def acknowledged(*positions: tuple[int, int, int]) -> Acknowledged:
    """`positions`: time, partition, offset of writes that were acknowledged, to both topics."""
    noted = Acknowledged()
    for at_ms, partition, offset in positions:
        noted.note(at_ms, [(topic, partition, offset) for topic in ("plain", "mixed")])
    return noted


def faults(
    *own: Seen,
    log: ALog = LOG,
    troubles: tuple[Trouble, ...] = (),
    acked: tuple[tuple[int, int, int], ...] = (),
) -> list[str]:
    return list(check_seen([list(own)], Facts(log, acknowledged(*acked), list(troubles), AStack())))


def test_the_fold_is_the_last_record_of_a_partition_whatever_the_clocks_say():
    log = ALog((HOME, 0, 50, b"a"), (HOME, 1, 20, b"b"))
    assert log.key_log.newest().value == b"b"


@pytest.mark.parametrize(
    ("own", "stray", "winner"),
    [
        ((30,), (31,), b"stray"),
        ((31,), (30,), b"own"),
        ((30,), (30,), b"own"),  # a tie is the key's own partition's
        ((50, 20), (40,), b"own"),  # a record counts as the newest of those before it
        ((50,), (60, 10), b"stray"),
    ],
)
def test_across_partitions_the_highest_timestamp_so_far_decides(own, stray, winner):
    records = [(HOME, offset, time_ms, b"own") for offset, time_ms in enumerate(own)]
    records += [(OTHER, offset, time_ms, b"stray") for offset, time_ms in enumerate(stray)]
    assert ALog(*records).key_log.newest().value == winner


def test_a_history_is_the_newest_by_time_and_offset_with_tombstones():
    log = ALog((HOME, 0, 50, b"a"), (HOME, 1, 20, b"b"), (HOME, 2, 50, None))
    log.key_log.shape = Shape("rich", PARTITIONS, options=Options(history_count=2))
    assert [(record.timestamp_ms, record.offset) for record in log.key_log.history()] == [(50, 0), (50, 2)]


def test_what_is_the_fold_below_its_watermark_is_no_fault():
    assert faults(seen(1, 1, 0), seen(2, 4, 0), seen(3, 5, None), seen(4, 7, None), seen(5, 8, 7)) == []


@pytest.mark.parametrize(("next_offset", "offset"), [(1, None), (5, 0), (7, 7), (8, None), (8, 0)])
def test_any_other_content_than_the_fold_is_told(next_offset, offset):
    (fault,) = faults(seen(1, next_offset, offset))
    assert "the log has" in fault


def test_a_value_that_is_not_the_log_s_is_told():
    read = seen(1, 8, 7)
    spoilt = read.answer._replace(record=read.answer.record._replace(value=b"x"))
    assert len(faults(read._replace(answer=spoilt))) == 1


def test_a_lane_that_goes_back_is_told_unless_its_shard_was_in_trouble_meanwhile():
    back = seen(1, 8, 7), seen(2, 1, 0)
    assert any("went back" in fault for fault in faults(*back))
    assert faults(*back, troubles=(Trouble("lose-writes", 0, 1.5, 1.6),)) == []
    assert faults(*back, troubles=(Trouble("lose-writes", 1, 1.5, 1.6),))
    assert faults(*back, troubles=(Trouble("lose-writes", 0, 2.5, 2.6),))


def of_server(at_s: float, next_offset: int, offset: int | None, **more) -> Seen:
    """An answer over HTTP, which has neither epoch nor generation."""
    found = seen(at_s, next_offset, offset, epoch=0, **more)
    layout = dataclasses.replace(found.answer.layout, generation=0)
    return found._replace(answer=found.answer._replace(layout=layout), source=SERVER)


def test_an_answer_of_the_server_is_checked_like_any_other():
    assert faults(of_server(1, 1, 0), of_server(2, 5, None), of_server(3, 8, 7)) == []
    assert faults(of_server(1, 5, 0))
    assert faults(of_server(1, 8, 7, complete_ms=90), acked=((80, HOME, 8),))
    back = of_server(1, 8, 7), of_server(2, 1, 0)
    assert any("went back" in fault for fault in faults(*back))
    assert faults(*back, troubles=(Trouble("lose-writes", 0, 1.5, 1.6),)) == []


def test_trouble_of_any_shard_that_may_have_the_lane_excuses_an_answer_of_the_server():
    slots = {stripes: slot_of(dataclasses.replace(LAYOUT, stripes=stripes), KEY) for stripes in range(1, 9)}
    more = next(stripes for stripes, slot in slots.items() if slot != slots[1])
    stack = AStack()
    stack.stripes = {"plain": {1, more}}
    stack.shard_of = lambda slot: int(slot == slots[more])  # type: ignore[method-assign]
    facts, now = Facts(LOG, acknowledged(), [], stack), of_server(1, 8, 7)
    assert sorted(facts.shards_of(now)) == [0, 1]
    assert facts.shards_of(now._replace(source=STORE)) == [0]


def test_the_least_watermark_of_several_lanes_is_not_compared_with_that_of_one():
    least = of_server(2, 1, None, exact=False)._replace(is_of_lane=False)
    assert not any("the lane went back" in fault for fault in faults(of_server(1, 5, None), least))


def test_a_connection_that_broke_is_no_answer_and_no_fault():
    failed = Seen(0, "plain", KEY, 1, 2, None, NoAnswer("it broke"), source=SERVER)
    assert faults(failed) == []
    assert faults(failed._replace(error=StateUnavailable("away")))
    assert count_by_source([[failed, of_server(1, 8, 7)], [seen(1, 8, 7)]]) == {
        "store": 1,
        "server": 2,
        "server, failed": 1,
        "server, not answered": 1,
    }


def test_an_epoch_that_goes_back_is_told():
    assert any("went back" in fault for fault in faults(seen(1, 8, 7, epoch=2), seen(2, 8, 7, epoch=1)))


def test_a_failed_read_is_told_but_for_what_the_loss_of_its_shard_explains():
    failed = Seen(0, "plain", KEY, 1, 2, None, StateUnavailable("away"))
    building = failed._replace(error=LaneBuilding("plain", 0, None))
    unknown = failed._replace(error=UnknownTopic("plain"))
    emptied, other_emptied = (Trouble("empty-shard", shard, 0, 0, lost_data=True) for shard in range(2))
    away = Trouble("lose-shard", 0, 0, 1.5, unreachable=True)

    def excused_by(*troubles: Trouble) -> list[bool]:
        return [faults(each, troubles=troubles) == [] for each in (failed, building, unknown)]

    assert excused_by(emptied) == [False, True, False]
    assert excused_by(other_emptied) == [False, False, False]
    assert excused_by(emptied, other_emptied) == [False, True, True]
    assert excused_by(away) == [True, False, False]
    assert excused_by(dataclasses.replace(away, ended_s=0.5)) == [False, False, False]
    assert excused_by(Trouble("lose-writes", 0, 0)) == [False, False, False]


def test_a_replica_that_was_cut_off_before_a_generation_has_none_of_its_lanes(monkeypatch):
    cut_off = Trouble("stale-replica", 0, 0, 1.5)

    def is_excused(next_offset: int | None, *, by: Trouble = cut_off) -> bool:
        failed = Seen(0, "plain", KEY, 1, 2, None, LaneBuilding("plain", 0, next_offset))
        return faults(failed, troubles=(by,)) == []

    assert not is_excused(None)
    monkeypatch.setattr(AStack, "stripes", {"plain": {1, 4}})
    assert is_excused(None)
    assert not is_excused(7)
    assert not is_excused(None, by=dataclasses.replace(cut_off, ended_s=0.5))
    assert not is_excused(None, by=dataclasses.replace(cut_off, shard=1))


def test_a_position_waited_for_that_the_answer_is_short_of_is_told():
    assert faults(seen(1, 8, 7, waited_for=Position(HOME, 4))) == []
    assert faults(seen(1, 8, 7, waited_for=Position(HOME, 7))) == []
    assert faults(seen(1, 1, 0, waited_for=Position(HOME, 7)))
    assert faults(seen(1, 5, None, waited_for=Position(HOME, 7)))


MIXED_LOG = ALog((HOME, 0, 10, b"a"), (OTHER, 3, 20, b"b"), (OTHER, 5, 25, None), (HOME, 6, 40, b"c"))


def mixed(at_s: float, next_offset: int, offset: int | None, partition: int = HOME, **more) -> Seen:
    return seen(at_s, next_offset, offset, "mixed", partition=partition, log=MIXED_LOG, **more)


def test_a_stray_that_is_newer_than_the_lane_s_own_record_is_no_fault():
    reads = mixed(1, 1, 0), mixed(2, 1, 3, OTHER), mixed(3, 1, None), mixed(4, 7, 6)
    assert faults(*reads, log=MIXED_LOG) == []


@pytest.mark.parametrize(
    "reads",
    [
        (mixed(1, 1, 3, OTHER), mixed(2, 1, 0)),  # a key goes back
        (mixed(1, 1, 3, OTHER), mixed(2, 1, None), mixed(3, 2, 0)),  # a deleted key returns
        (mixed(1, 7, 0),),  # older than the lane's own
        (mixed(1, 7, None),),  # nothing, though the newest is not a tombstone
        (mixed(1, 1, 3, OTHER), mixed(2, 1, None), mixed(3, 1, 3, OTHER)),  # what was deleted is there again
        (mixed(1, 1, 6, HOME),),  # a record of its own partition beyond its watermark
        (mixed(1, 1, None), mixed(2, 1, 0)),  # absent because of the tombstone, then as before it
    ],
)
def test_in_a_mixed_topic_no_key_goes_back_and_none_returns(reads):
    assert faults(*reads, log=MIXED_LOG)


def test_a_stray_waited_for_is_there_whatever_a_failover_took_back():
    reads = mixed(1, 1, 0, waited_for=Position(OTHER, 3))
    assert faults(reads, log=MIXED_LOG)
    assert faults(reads, log=MIXED_LOG, troubles=(Trouble("lose-writes", 0, 0.1, 0.2),))
    assert faults(reads, log=MIXED_LOG, troubles=(Trouble("lose-writes", 1, 0.1, 0.2),))


SET_ONLY_LOG = ALog((OTHER, 3, 20, b"b"))


def test_a_key_that_only_has_a_stray_does_not_vanish():
    found = seen(1, 0, 3, "mixed", partition=OTHER, log=SET_ONLY_LOG)
    gone = seen(2, 0, None, "mixed", log=SET_ONLY_LOG)
    assert faults(gone, log=SET_ONLY_LOG) == []
    assert faults(found, found._replace(began_s=2), log=SET_ONLY_LOG) == []
    (fault,) = faults(found, gone, log=SET_ONLY_LOG)
    assert "went back" in fault
    assert faults(found, gone, log=SET_ONLY_LOG, troubles=(Trouble("lose-writes", 0, 1.5, 1.6),)) == []


def test_an_answer_that_is_complete_as_of_a_time_to_come_is_told():
    assert faults(seen(1, 8, 7, complete_ms=100)) == []
    assert "after it was read" in faults(seen(1, 8, 7, complete_ms=101))[0]


def test_a_lane_that_claims_to_be_complete_without_what_was_acknowledged_before_is_told():
    acked = ((20, HOME, 4), (30, HOME, 7))
    assert faults(seen(1, 8, 7, complete_ms=50), acked=acked) == []
    assert faults(seen(1, 5, None, complete_ms=30), acked=acked) == []
    assert "claims to be complete" in faults(seen(1, 5, None, complete_ms=31), acked=acked)[0]
    assert faults(seen(1, 5, None, complete_ms=31), acked=acked, troubles=(Trouble("lose-writes", 0, 0, 2),))


def test_a_stray_that_was_acknowledged_before_is_in_an_answer_that_is_complete_as_of_then():
    acked = ((20, OTHER, 3),)
    assert faults(mixed(1, 1, 0, complete_ms=20), log=MIXED_LOG, acked=acked) == []
    assert faults(mixed(1, 1, 0, complete_ms=21), log=MIXED_LOG, acked=acked)
    assert faults(mixed(1, 1, 3, OTHER, complete_ms=21), log=MIXED_LOG, acked=acked) == []
    assert faults(mixed(1, 1, None, complete_ms=21), log=MIXED_LOG, acked=acked) == []  # its tombstone


def test_a_record_counts_as_acknowledged_from_the_next_millisecond_on_and_clocks_that_go_back_add_nothing():
    noted = acknowledged((10, 0, 5), (12, 0, 9), (11, 0, 11))
    assert [noted.next_offset("plain", 0, at_ms) for at_ms in (10, 11, 12, 13)] == [0, 6, 6, 12]
    assert noted.next_offset("plain", 1, 99) == 0


LAYOUTS = {
    "plain": dataclasses.replace(LAYOUT, generation=2),
    "parted": dataclasses.replace(LAYOUT, topic="parted", options=Options(index=3)),
    "found": dataclasses.replace(LAYOUT, topic="found", options=Options(index=3, fields=(("n", "number"),))),
}
SLOT = routing.slot_for(HOME, 0, PARTITIONS, 1)
TAG = routing.hash_tag(SLOT).decode()


@pytest.mark.parametrize(
    ("key", "is_explained"),
    [
        (f"{{{TAG}}}:plain:2:v:1/000", True),
        (f"{{{TAG}}}:plain:2:v:1/001", False),  # the log has no such key
        (f"{{{TAG}}}:plain:1:v:1/000", False),  # another generation
        (f"{{{TAG}}}:gone:2:v:1/000", False),  # another topic
        ("{0}:plain:2:v:1/000", False),  # another slot
        (f"{{{TAG}}}:plain:2:w:{HOME}.0", True),
        (f"{{{TAG}}}:plain:2:w:{OTHER}.0", False),
        (f"{{{TAG}}}:plain:2:w:x", False),
        (f"{{{TAG}}}:plain:2:i:{HOME}.0.0", False),  # an index that has no parts
        (f"{{{TAG}}}:parted:1:i:{HOME}.0", False),
        (f"{{{TAG}}}:parted:1:i:{HOME}.0.2", True),
        (f"{{{TAG}}}:parted:1:q:{HOME}.0.3", False),
        (f"{{{TAG}}}:parted:1:w:{HOME}.0", True),
        (f"{{{TAG}}}:parted:1:f:{HOME}.0.0.2", False),  # a topic without fields
        (f"{{{TAG}}}:found:1:f:{HOME}.0.0.2", True),
        (f"{{{TAG}}}:found:1:f:{HOME}.0.1.2", False),
        (f"{{{TAG}}}:found:1:f:{HOME}.0.0.3", False),
        (f"{{{TAG}}}:found:1:f:{HOME}.0.0", False),
        (f"{{{TAG}}}:found:1:b:{HOME}.0.1", True),
        (f"{{{TAG}}}:found:1:i:{HOME}.0.1.1", False),
        (f"{{{TAG}}}:plain:2:e", True),
        ("{0}:plain:2:e", False),
        (f"{{{TAG}}}:plain:1:e", False),
        ("{keylane}:layout:plain", True),
        ("{keylane-v}:topic:plain", True),
        ("{keylane}:epoch:gone", False),
        ("{keylane-h}:topics", True),
        ("{keylane}:views", False),  # there is no view
        ("anything", False),
    ],
)
def test_a_key_that_no_layout_explains_is_found(key, is_explained):
    assert explains(key.encode(), LAYOUTS, KnownKeys([("plain", KEY)])) is is_explained


def with_options(log: ALog, *, mixed: bool = False, **options) -> ALog:
    log.key_log.shape = Shape("plain", PARTITIONS, mixed, options=Options(**options))
    return log


def test_a_key_that_keeps_its_first_value_has_that_one_until_a_tombstone():
    records = [
        (HOME, 0, 1, b"a"),
        (HOME, 1, 2, b"b"),
        (HOME, 2, 3, None),
        (HOME, 3, 4, b"c"),
        (HOME, 4, 5, b"d"),
    ]
    log = with_options(ALog(*records), insert_once=True)
    kept = [log.key_log.newest_at(next_offset) for next_offset in range(6)]
    assert [record and record.value for record in kept] == [None, b"a", b"a", None, b"c", b"c"]
    assert log.key_log.newest().value == b"c"
    assert faults(seen(1, 5, 3, log=log, waited_for=Position(HOME, 4)), log=log) == []
    assert faults(seen(1, 5, 4, log=log), log=log)


def test_a_record_is_there_until_its_time_is_over_and_not_after():
    log = with_options(ALog((HOME, 0, 1_000, b"a")), ttl_ms=500)

    def read(at_ms: int, offset: int | None) -> list[str]:
        return faults(seen(at_ms / 1000, 1, offset, log=log)._replace(ended_ms=at_ms), log=log)

    assert read(1_300, 0) == read(1_450, 0) == read(1_450, None) == read(1_550, 0) == read(1_700, None) == []
    assert "nothing" in read(1_300, None)[0]
    assert "time was over" in read(1_700, 0)[0]


def test_where_tombstones_are_soon_forgotten_an_older_stray_may_be_back_but_no_newer_record_vanishes():
    log = with_options(
        ALog((HOME, 0, 10, b"a"), (HOME, 1, 30, None), (OTHER, 3, 20, b"b")), mixed=True, marker_ms=5
    )
    back = seen(1, 2, None, "mixed", log=log), seen(2, 2, 3, "mixed", partition=OTHER, log=log)
    assert faults(*back, log=log) == []
    acked = ((40, OTHER, 3),)
    claimed = seen(1, 2, None, "mixed", log=log, complete_ms=50), back[1]
    assert "went back" in faults(*claimed, log=log, acked=acked)[0]  # the lane had it before the tombstone
    newer = with_options(ALog((HOME, 0, 40, b"a"), (OTHER, 3, 20, b"b")), mixed=True, marker_ms=5)
    assert faults(seen(1, 1, 3, "mixed", partition=OTHER, log=newer), log=newer)


def ranged(*own: Seen) -> list[Seen]:
    return [each._replace(exact=False, kind="range") for each in own]


def test_a_page_may_be_newer_than_its_watermark_and_not_older():
    assert faults(*ranged(seen(1, 1, 0), seen(2, 1, None), seen(3, 1, 7), seen(4, 5, 7))) == []
    assert faults(*ranged(seen(1, 5, 0)))
    assert faults(*ranged(seen(1, 8, None)))
    assert faults(*ranged(seen(1, 8, 7), seen(2, 8, 0)))


HISTORY_LOG = with_options(LOG, history_count=2)


def past(*offsets: int, next_offset: int = 8) -> list[str]:
    """The faults of a history with the records at these offsets."""
    logged = [LOG.key_log.at(HOME, offset) for offset in offsets]
    entries = tuple(
        HistoryEntry(
            Position(HOME, each.offset),
            each.timestamp_ms,
            None if each.value is None else Record(KEY, each.value, HOME, each.offset, each.timestamp_ms),
        )
        for each in logged
    )
    return faults(seen(1, next_offset, None)._replace(exact=False, entries=entries))


def test_a_history_has_the_newest_records_of_its_watermark_or_newer_ones():
    assert past(7, 4) == past(4, 0, next_offset=5) == past(7, 4, next_offset=5) == past(next_offset=0) == []


@pytest.mark.parametrize("offsets", [(), (7,), (4, 0), (4, 7), (7, 0)])
def test_a_history_that_lacks_a_record_or_is_out_of_order_is_told(offsets):
    assert past(*offsets)


@pytest.mark.parametrize(
    ("as_of_ms", "offset", "is_right"),
    [(9, None, True), (10, 0, True), (10, None, False), (19, 0, True), (20, 0, False), (20, None, True)],
)
def test_a_record_as_of_a_time_is_the_newest_by_then(as_of_ms, offset, is_right):
    found = faults(seen(1, 8, offset)._replace(exact=False, as_of_ms=as_of_ms))
    assert (found == []) is is_right


@pytest.mark.parametrize(
    ("marker_ms", "partition", "is_right"),
    [(500, OTHER, True), (500, HOME, False), (Options().marker_ms, OTHER, False)],
)
def test_a_late_stray_may_be_the_record_as_of_a_time_where_its_tombstones_marker_is_over(
    marker_ms, partition, is_right
):
    log = with_options(
        ALog((OTHER, 3, 5, b"s"), (HOME, 0, 5, b"a"), (HOME, 4, 20, None)),
        mixed=True,
        marker_ms=marker_ms,
        history_count=3,
    )
    offset = 3 if partition == OTHER else 0
    read = seen(1, 8, offset, partition=partition, log=log)._replace(exact=False, as_of_ms=25)
    assert (faults(read, log=log) == []) is is_right


THIRD = next(each for each in range(PARTITIONS) if each not in (HOME, OTHER))


@pytest.mark.parametrize(
    ("partition", "value", "is_right"), [(THIRD, None, True), (THIRD, b"c", False), (HOME, None, False)]
)
def test_a_late_stray_may_be_the_record_as_of_a_time_where_a_stray_tombstone_was_read_and_forgotten(
    partition, value, is_right
):
    records = (OTHER, 3, 5, b"s"), (HOME, 0, 20, b"a"), (partition, 1, 21, value)
    log = with_options(ALog(*records), mixed=True, marker_ms=500, history_count=3)
    read = seen(1, 1, 3, partition=OTHER, log=log)._replace(exact=False, as_of_ms=25)
    assert (faults(read, log=log) == []) is is_right


def viewed(at_s: float, count: int | None = None) -> Seen:
    """What a view without windows counts of the key."""
    found = {} if count is None else {(None, None): count}
    return Seen(0, "plain", KEY, at_s, at_s, None, None, kind="view", view="counts", counts=found)


def test_a_view_has_no_more_than_the_log_in_the_end_and_never_less_than_before():
    assert faults(viewed(1), viewed(2, 1), viewed(3, 2), viewed(4, 2)) == []
    assert "in the end" in faults(viewed(1, 3))[0]
    assert "then" in faults(viewed(1, 2), viewed(2, 1))[0]
    assert faults(viewed(1, 2), viewed(2, 1), troubles=(Trouble("lose-writes", 0, 1.5, 1.6),)) == []


def test_a_read_that_waits_for_a_stray_may_fail_while_its_lane_s_primary_is_away():
    def failed(partition: int, began_s: float, shard: int = 0) -> list[str]:
        wait = seen(began_s, 0, None, waited_for=Position(partition, 3))
        wait = wait._replace(ended_s=began_s + 3, answer=None, error=StateUnavailable("away"))
        return faults(wait, troubles=(Trouble("kill-primary", shard, 1, 5),))

    assert failed(OTHER, 1.5) == []
    assert failed(HOME, 1.5), "a replica answers"
    assert failed(OTHER, 1.5, shard=1), "the shard of other lanes"
    assert failed(OTHER, 4.5), "it failed long after a replica was promoted"
