"""Changes of a topic: how far the state is, and which keys the log has up to there; through fakes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.support.builders import NOW_MS, a_layout, a_watermark, layout_entry
from tests.support.fakes import FakeKafka, FakeState, FakeTime

from keylane.errors import LaneBuilding, UnknownTopic
from keylane.model.kafka import LogRecord
from keylane.model.records import Position
from keylane.ports import Deadline
from keylane.query.changes import BATCH_RECORDS, ChangedKeys, find_changed_keys, read_next_offsets
from keylane.query.layouts import Layouts
from keylane.query.store import Store
from keylane.state import codec
from keylane.state.lanes import lanes_of_topic

PARTITIONS = 2


@dataclass
class ChangingTopic:
    """A topic of two partitions, two stripes each, in the state and in the log."""

    state: FakeState = field(default_factory=FakeState)
    kafka: FakeKafka = field(default_factory=FakeKafka)

    def __post_init__(self) -> None:
        self.layout = a_layout(partition_count=PARTITIONS, stripes=2)
        self.state.entries |= layout_entry(self.layout)
        self.log = self.kafka.create(self.layout.topic, PARTITIONS)
        self.clock = FakeTime(NOW_MS).clock

    def append(self, partition: int, *keys: bytes | None) -> None:
        log = self.log[partition]
        log.add(*(LogRecord(log.high + number, key, b"1") for number, key in enumerate(keys)))

    def apply(self, partition: int, stripe: int, next_offset: int) -> None:
        lane = next(
            each
            for each in lanes_of_topic(self.layout)
            if (each.partition, each.stripe) == (partition, stripe)
        )
        self.state.entries[lane.watermark_key] = codec.encode_watermark(a_watermark(next_offset))

    def ends(self) -> dict[int, int]:
        store = Store(self.state, Layouts(self.state, self.clock, 30), self.clock)
        return read_next_offsets(store, self.layout.topic, 1000)

    def changed(self, since: dict[int, int], until: dict[int, int]) -> ChangedKeys:
        deadline = Deadline.after_ms(1000, self.clock)
        return find_changed_keys(self.kafka, self.layout.topic, since, until, deadline)


@pytest.fixture
def topic() -> ChangingTopic:
    return ChangingTopic()


def test_a_partition_is_as_far_as_the_last_of_its_stripes(topic: ChangingTopic):
    for partition, stripe, next_offset in ((0, 0, 5), (0, 1, 3), (1, 0, 9), (1, 1, 9)):
        topic.apply(partition, stripe, next_offset)
    assert topic.ends() == {0: 3, 1: 9}


def test_a_lane_that_has_not_begun_and_a_topic_that_is_unknown_are_errors(topic: ChangingTopic):
    with pytest.raises(LaneBuilding):
        topic.ends()
    topic.state.entries.clear()
    with pytest.raises(UnknownTopic):
        topic.ends()


def test_only_what_the_state_has_is_reported_and_each_key_once(topic: ChangingTopic):
    topic.append(0, b"a", b"b", b"a", b"not yet")
    topic.append(1, b"c", None)
    found = topic.changed({0: 0, 1: 0}, {0: 3, 1: 2})
    assert found == ChangedKeys([b"b", b"a", b"c"], {0: 3, 1: 2}, [])
    assert topic.changed(found.next_offsets, {0: 3, 1: 2}) == ChangedKeys([], {0: 3, 1: 2}, [])


def test_a_partition_that_was_added_is_read_from_its_first_record(topic: ChangingTopic):
    topic.append(1, b"new")
    assert topic.changed({0: 0}, {0: 0, 1: 1}) == ChangedKeys([b"new"], {0: 0, 1: 1}, [])


def test_aborted_records_are_read_and_offsets_without_records_are_passed(topic: ChangingTopic):
    topic.append(0, b"a")
    topic.log[0].aborted.add(0)
    topic.log[0].high = 7
    assert topic.changed({0: 0}, {0: 7}).keys == [b"a"]
    assert topic.changed({0: 1}, {0: 7}) == ChangedKeys([], {0: 7}, [])


def test_records_that_were_removed_are_a_gap(topic: ChangingTopic):
    topic.append(0, *(b"%d" % number for number in range(10)))
    topic.log[0].records = topic.log[0].records[6:]
    topic.log[0].low = 6
    found = topic.changed({0: 2}, {0: 10})
    assert found == ChangedKeys([], {0: 6}, [Position(0, 2)])
    assert topic.changed(found.next_offsets, {0: 10}).keys == [b"6", b"7", b"8", b"9"]


def test_a_batch_is_bounded(topic: ChangingTopic):
    count = BATCH_RECORDS + 1
    topic.append(0, *(b"%d" % number for number in range(count)))
    found = topic.changed({0: 0}, {0: count})
    assert (len(found.keys), found.next_offsets) == (BATCH_RECORDS, {0: BATCH_RECORDS})
