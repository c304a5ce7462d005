"""The torture's checks: the fold; every fault that a reader may see is reported, and nothing else."""

from __future__ import annotations

import dataclasses

import pytest
from tests.torture.checks import check_seen
from tests.torture.nemesis import Trouble
from tests.torture.oracle import KeyLog, Logged
from tests.torture.readers import Seen

from keylane import routing
from keylane.errors import LaneBuilding, StateUnavailable
from keylane.model.records import Answer, Layout, Position, Record, Watermark

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
    def shard_of(self, _: int) -> int:
        return 0


LOG = ALog((HOME, 0, 10, b"a"), (HOME, 4, 20, None), (HOME, 7, 30, b"b"))


def seen(at_s: float, next_offset: int, offset: int | None, topic: str = "plain", **more) -> Seen:
    """A read that found the record at `offset`, under a watermark."""
    record = None
    partition, log = more.pop("partition", HOME), more.pop("log", LOG)
    if offset is not None:
        logged = log.key_log.at(partition, offset)
        record = Record(KEY, logged.value, partition, offset, logged.timestamp_ms)
    layout = dataclasses.replace(LAYOUT, topic=topic)
    answer = Answer(layout, HOME, record, Watermark(next_offset, more.pop("epoch", 1)))
    return Seen(0, topic, KEY, at_s, at_s, answer, None, **more)


def faults(*own: Seen, log: ALog = LOG, troubles: tuple[Trouble, ...] = ()) -> list[str]:
    return list(check_seen([list(own)], log, list(troubles), AStack()))


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
    assert [(record.timestamp_ms, record.offset) for record in log.key_log.history(2)] == [(50, 0), (50, 2)]


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


def test_an_epoch_that_goes_back_is_told():
    assert any("went back" in fault for fault in faults(seen(1, 8, 7, epoch=2), seen(2, 8, 7, epoch=1)))


def test_a_failed_read_is_told_but_for_an_emptied_cluster_that_is_being_built():
    failed = Seen(0, "plain", KEY, 1, 2, None, StateUnavailable("away"))
    building = failed._replace(error=LaneBuilding("plain", 0, None))
    emptied = (Trouble("empty-redis", 0, 0),)
    assert len(faults(failed)) == len(faults(building)) == 1
    assert len(faults(failed, troubles=emptied)) == 1
    assert faults(building, troubles=emptied) == []


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
    ],
)
def test_in_a_mixed_topic_no_key_goes_back_and_none_returns(reads):
    assert faults(*reads, log=MIXED_LOG)


def test_a_stray_waited_for_may_lack_after_a_failover_of_its_lane_alone():
    reads = mixed(1, 1, 0, waited_for=Position(OTHER, 3))
    assert faults(reads, log=MIXED_LOG)
    assert faults(reads, log=MIXED_LOG, troubles=(Trouble("lose-writes", 0, 0.1, 0.2),)) == []
    assert faults(reads, log=MIXED_LOG, troubles=(Trouble("lose-writes", 1, 0.1, 0.2),))
