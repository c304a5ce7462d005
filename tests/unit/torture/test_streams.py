"""The torture's clients of changes and of tags, and its mappings: what is left out or untrue is reported."""

from __future__ import annotations

import dataclasses
import json
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.builders import a_watermark, value_key
from tests.support.changing_topic import ChangingTopic
from tests.torture import synced
from tests.torture.checks import Facts
from tests.torture.faults.world import Trouble
from tests.torture.journal import Journal
from tests.torture.listeners import Heard, Listener, SideListener
from tests.torture.oracle import KeyLog, Log, Logged
from tests.torture.readers import TagReads
from tests.torture.schedule import Shape
from tests.torture.streams import KeyCheck, StreamCheck, missing
from tests.torture.witness import SLOW_NODE
from tests.unit.torture.test_checks import AStack, acknowledged

from keylane.model.changes import ABSENT, GAP, RECORD, ChangeEvent
from keylane.model.records import Options
from keylane.state import codec
from keylane.state.lanes import lane_of_key
from keylane_client import Position, Record, SyncFailed, TopicVector

KEY, OTHER = b"1/000", b"1/001"
ALL_LOST = tuple(Trouble("empty-redis", shard, 0.0, 9.0, lost_data=True) for shard in range(2))


class TwoKeys(Log):
    """A log of one partition: (key, value) in offset order; offset and time count from 0."""

    def __init__(self, *records: tuple[bytes, bytes | None], shape: Shape = Shape("plain", 1)) -> None:  # noqa: B008
        self.next_offsets = {("plain", 0): len(records)}
        self.keys = {}
        self._offsets = {("plain", 0): [(offset, key) for offset, (key, _) in enumerate(records)]}
        for offset, (key, value) in enumerate(records):
            key_log = self.keys.setdefault(("plain", key), KeyLog(0, shape))
            key_log.records.setdefault(0, []).append(Logged(0, offset, offset, value, (), offset))


LOG = TwoKeys((KEY, b"a"), (OTHER, b"b"), (KEY, b"c"), (OTHER, None), (KEY, b"d"))


def sent(key: bytes, offset: int | None, value: bytes = b"") -> ChangeEvent:
    if offset is None:
        return ChangeEvent(ABSENT, "{}", "absent", key)
    document = {"partition": 0, "offset": offset, "position": f"0:{offset}", "value": value.decode()}
    return ChangeEvent(RECORD, json.dumps(document), f"0:{offset}@7", key)


def at(offset: int, incarnation: int = 7) -> ChangeEvent:
    return ChangeEvent(id=f"0:{offset}@{incarnation}")


def faults(*events: ChangeEvent, log: Log = LOG, troubles: tuple[Trouble, ...] = ()) -> list[str]:
    heard = [Heard(second, second, 100, [event]) for second, event in enumerate(events)]
    facts = Facts(log, acknowledged(), list(troubles), AStack())
    return list(StreamCheck("plain").check(heard, facts))


def test_a_stream_that_sends_the_last_of_several_changes_leaves_nothing_out():
    assert faults(at(0), sent(KEY, 2, b"c"), sent(OTHER, 1, b"b"), at(3), sent(OTHER, None), at(4)) == []


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ((at(0), sent(KEY, 0, b"a"), at(2)), "1/001: a stream announced 0:2, and b'b' at 0:1 was never sent"),
        ((at(0), sent(KEY, 0, b"a"), at(1), at(2), at(3)), "1/001: a stream announced 0:2"),
        ((at(2), sent(KEY, 0, b"a"), at(3)), "announced 0:3 without b'c' at 0:2: it sent b'a' at 0:0"),
        ((at(2), sent(KEY, None), at(3)), "announced 0:3 without b'c' at 0:2: it sent nothing"),
        ((at(3), sent(OTHER, 1, b"b"), at(4)), "announced 0:4 without a tombstone at 0:3: it sent b'b'"),
        ((at(0), sent(KEY, 2, b"c"), sent(KEY, 0, b"a")), "it had b'c' at 0:2: it sent b'a'"),
        ((at(0), sent(KEY, 0, b"x")), "the log has b'a' at 0:0, and a stream sent"),
        ((at(3), at(2)), "a stream went back from 0:3 to 0:2"),
        ((at(3), ChangeEvent(GAP, "{}")), "a stream has a gap, and nothing was removed"),
        ((at(5), at(0, 8)), "a stream begins again, though its topic does not"),
    ],
)
def test_what_a_stream_leaves_out_takes_back_or_makes_up_is_a_fault(events, fault):
    found = faults(*events)
    assert any(fault in each for each in found), found


def test_a_stream_may_go_back_in_trouble_but_what_it_announces_it_has_sent():
    lost = (Trouble("lose-writes", 0, 0.0, 9.0),)
    assert faults(at(3), at(2), sent(KEY, 2, b"c"), at(3), troubles=lost) == []
    assert faults(at(3), at(2), at(3), troubles=lost)


def test_a_topic_that_begins_again_with_an_emptied_redis_is_sent_from_its_first_record():
    begun = at(4), ChangeEvent(GAP, "{}"), at(0, 8)
    everything = sent(KEY, 4, b"d"), sent(OTHER, None), at(5, 8)
    assert faults(*begun, *everything, troubles=ALL_LOST) == []
    assert faults(*begun, sent(KEY, 4, b"d"), at(5, 8), troubles=ALL_LOST)


def test_a_record_whose_time_is_over_may_be_absent():
    shape = Shape("plain", 1, options=Options(ttl_ms=50))
    assert faults(at(0), sent(KEY, None), at(1), log=TwoKeys((KEY, b"a"), shape=shape)) == []
    assert faults(at(0), sent(KEY, None), at(1), log=TwoKeys((KEY, b"a")))


def test_an_absence_that_is_sent_again_is_not_that_of_the_next_tombstone():
    log = TwoKeys((KEY, b"a"), (KEY, None), (KEY, b"c"), (KEY, None))
    absent_twice = at(0), sent(KEY, 0, b"a"), sent(KEY, None), sent(KEY, None)
    assert faults(*absent_twice, sent(KEY, 2, b"c"), log=log) == []
    [fault] = faults(*absent_twice, sent(KEY, 2, b"c"), sent(KEY, None), sent(KEY, 2, b"c"), log=log)
    assert "the topic's stream went back" in fault
    assert fault.count("by connection 0") == 6, "what it heard at last"


def test_an_absence_whose_record_s_time_is_over_is_not_that_of_the_next_tombstone():
    shape = Shape("plain", 1, options=Options(ttl_ms=50))
    log = TwoKeys((KEY, b"a"), (KEY, b"b"), (KEY, None), shape=shape)
    assert faults(at(0), sent(KEY, 0, b"a"), sent(KEY, None), sent(KEY, 1, b"b"), log=log) == []


def test_a_client_of_a_key_must_have_its_last_record_in_the_end():
    topic = ChangingTopic()
    listener = Listener(topic.reader, topic.layout.topic, KEY)
    facts = Facts(LOG, acknowledged(), [], AStack())
    listener.topic = "plain"
    check = KeyCheck(listener, StreamCheck("plain"), facts, lambda: None)
    listener.hear(0.0, [sent(KEY, 2, b"c")])
    assert not check.has_newest()
    listener.hear(1.0, [sent(KEY, 4, b"d")])
    assert check.has_newest()
    assert check.faults == []


@pytest.mark.parametrize("was_slow", [True, False])
def test_a_client_that_gave_up_on_a_slow_node_after_the_schedule_may_go_back_too(was_slow):
    listener = Listener(ChangingTopic().reader, "plain", KEY)
    facts, began_s = Facts(LOG, acknowledged(), [], AStack()), time.monotonic()

    def note_troubles() -> None:
        if was_slow:
            facts.troubles.append(Trouble(SLOW_NODE, 0, began_s, began_s + 1.0))

    check = KeyCheck(listener, StreamCheck("plain", of_key=True), facts, note_troubles)
    for event in (sent(KEY, 4, b"d"), sent(KEY, 2, b"c"), sent(KEY, 4, b"d")):
        listener.hear(time.monotonic(), [event])
    assert check.has_newest()
    assert any("its own stream went back" in each for each in check.faults) is not was_slow


def test_a_client_that_comes_back_gets_what_it_missed_and_nothing_twice():
    topic = ChangingTopic()
    keys = [topic.key_in(partition) for partition in range(2)]
    topic.put(keys[0], b"1")
    listener = Listener(topic.reader, topic.layout.topic)
    listener.listen(0)
    assert [event.key for heard in listener.take() for event in heard.events] == [b""]
    topic.put(keys[1], b"2")
    for expected in ([keys[1]], []):
        listener.listen(0)
        assert [event.key for heard in listener.take() for event in heard.events if event.key] == expected


def test_a_client_of_a_side_topic_reads_the_keys_again_after_a_gap():
    topic = ChangingTopic()
    keys = [topic.key_in(partition) for partition in range(2)]
    for key in keys:
        topic.put(key, b"1")
    topic.time.now_ms -= 1_000
    listener = SideListener(topic.reader, topic.layout.topic, lambda: keys, Journal())
    listener.listen(0)
    assert listener.has == {key: f"{partition}:0" for partition, key in enumerate(keys)}
    topic.create_again()
    listener.listen(0)
    assert listener.has == dict.fromkeys(keys, "")


def test_a_client_that_was_away_while_tombstones_were_removed_reads_the_keys_again():
    topic, journal = ChangingTopic(), Journal()
    key = topic.key_in(0)
    topic.put(key, b"1")
    topic.time.now_ms -= 1_000
    listener = SideListener(topic.reader, topic.layout.topic, lambda: [key], journal)
    listener.listen(0)
    del topic.state.entries[value_key(topic.layout, key)]
    listener.listen(0)
    assert listener.has == {key: "0:0"}
    journal.forgets_since_s = time.monotonic()
    listener.listen(0)
    assert listener.has == {key: ""}


@pytest.mark.parametrize("excuse", ["", "incomplete", "may come back"])
def test_a_client_of_a_side_topic_has_what_the_state_has_unless_that_is_incomplete_or_promises_nothing(
    excuse,
):
    topic, journal = ChangingTopic(), Journal()
    key = topic.key_in(0)
    topic.put(key, b"1")
    listener = SideListener(topic.reader, topic.layout.topic, lambda: [key], journal)
    assert missing(listener) == f"{key.decode()}: it has None, the state '0:0'"
    if excuse == "incomplete":
        lane = lane_of_key(topic.layout, key)
        marked = codec.encode_watermark(a_watermark(1, incomplete=True))
        topic.state.entries[lane.watermark_key] = marked
    elif excuse:
        journal.may_come_back.add(key)
    assert (missing(listener) == "") == bool(excuse)


def test_what_was_read_after_a_gap_from_lanes_that_are_older_is_not_relied_on():
    topic = ChangingTopic()
    key = topic.key_in(0)
    topic.put(key, b"1")
    listener = SideListener(topic.reader, topic.layout.topic, lambda: [key], Journal())
    listener.listen(0)
    assert listener.has == {}


def test_a_304_for_another_value_is_reported_and_a_true_one_is_not():
    topic = ChangingTopic()
    key = topic.key_in(0)
    tags = TagReads(topic.store)
    topic.put(key, b"1")
    for _ in range(2):
        tags.read(topic.layout.topic, key)
    assert (tags.confirmed, tags.wrong) == (1, [])
    topic.create_again()
    topic.put(key, b"2")
    tags.read(topic.layout.topic, key)
    assert (tags.confirmed, tags.wrong) == (1, [])
    # As if the topic's incarnation were not in its tags.
    layout = topic.layout
    topic.layout = dataclasses.replace(layout, incarnation=layout.incarnation - 1)
    topic.create_again()
    topic.put(key, b"3")
    tags.read(topic.layout.topic, key)
    assert len(tags.wrong) == 1
    assert "304" in tags.wrong[0]


def a_record(key: bytes, offset: int, value: str, partition: int = 0) -> Record:
    return Record(
        "plain", key.decode(), value, Position(partition, offset), offset, None, timedelta(), "text"
    )


class AMapping(SimpleNamespace):
    trouble = None

    def copy(self) -> dict[str, Record]:
        return {record.key: record for record in self.records}


def faults_of_mapping(
    *records: Record, end: int = 5, log: Log = LOG, troubles: tuple[Trouble, ...] = ()
) -> list[str]:
    mapping: Any = AMapping(at=TopicVector({0: end}), records=records)
    return list(synced.compare("plain", mapping, Facts(log, acknowledged(), list(troubles), AStack())))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synced, "EQUAL_WITHIN_S", 0.0)


def test_a_mapping_that_is_the_fold_has_no_fault():
    assert faults_of_mapping(a_record(KEY, 4, "d")) == []


@pytest.mark.parametrize(
    ("records", "end", "fault"),
    [
        ((), 5, "1/000 is None, the log has b'd' at 0:4"),
        ((a_record(KEY, 2, "c"),), 5, "1/000 is (Position(partition=0, offset=2), 'c')"),
        ((a_record(KEY, 4, "x"),), 5, "'x'), the log has b'd'"),
        ((a_record(KEY, 4, "d"), a_record(OTHER, 1, "b")), 5, "1/001 is"),
        ((a_record(KEY, 4, "d"),), 4, "it is at {0: 4}, the log ends at {0: 5}"),
    ],
)
def test_what_a_mapping_lacks_keeps_or_makes_up_is_a_fault(records: tuple[Record, ...], end: int, fault: str):
    found = faults_of_mapping(*records, end=end)
    assert any(fault in each for each in found), found


def test_a_mapping_that_has_ended_is_a_fault():
    class Ended(AMapping):
        @property
        def at(self) -> TopicVector:
            raise SyncFailed("it ended") from ValueError("this is why")

    ended: Any = Ended(records=())
    [found] = synced.compare("plain", ended, Facts(LOG, acknowledged(), [], AStack()))
    assert "this is why" in found


def test_a_deleted_key_may_be_back_where_markers_do_not_last():
    log = TwoKeys((OTHER, b"b"), (OTHER, None), shape=Shape("plain", 1, options=Options(marker_ms=0)))
    back = faults_of_mapping(a_record(OTHER, 0, "b"), end=2, log=log)
    assert bool(back) != log.of("plain", OTHER).shape.is_forgetful


def test_a_mapping_has_strays_though_a_failover_took_them_back():
    log = TwoKeys((KEY, b"a"))
    log.of("plain", KEY).records[1] = [Logged(1, 0, 9, b"stray", (), 9)]
    assert faults_of_mapping(a_record(KEY, 0, "a"), end=1, log=log)
    lost = tuple(Trouble("lose-writes", shard, 0.0, 9.0) for shard in range(2))
    assert faults_of_mapping(a_record(KEY, 0, "a"), end=1, log=log, troubles=lost)
