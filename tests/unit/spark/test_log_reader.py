"""Ranges read from brokers that fail in every way, by a double of their connections."""

from __future__ import annotations

import itertools
import socket
import struct
from types import SimpleNamespace

import pytest
from kafka import errors as kafka_errors
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.consumer import FetchRequest
from tests.support.record_batches import GZIP, Sent, a_batch

from keylane.adapters.kafka.options import Connection
from keylane.errors import LogUnavailable, TopicChanged
from keylane.ports import Clock
from keylane_spark.log import compression, log_reader
from keylane_spark.log.broker_session import PartitionLeader
from keylane_spark.log.broker_socket import BrokerSocket
from keylane_spark.log.fetches import PlannedRange
from keylane_spark.log.log_reader import LeaderAway, LogRangeReader, RangeUnreadable

NOT_LEADER, OUT_OF_RANGE, FENCED = 6, 1, 74
NOT_AUTHORIZED, UNKNOWN = 29, -1
WANTED = PlannedRange("orders", 2, 0, 6, leader_epoch=4)
FIRST, SECOND, THIRD = (a_batch(Sent(offset), Sent(offset + 1)) for offset in (0, 2, 4))
HELD = {0: FIRST, 2: SECOND, 4: THIRD}


class Brokers:
    """What brokers answer: `script` has, for each fetch, an error, records, or None (what they hold)."""

    def __init__(self, *script, epochs=(4,)) -> None:
        self.script = list(script)
        self.epochs = itertools.chain(epochs[:-1], itertools.repeat(epochs[-1]))
        self.asked: list[tuple[int, int]] = []
        self.sessions = 0

    def __call__(self, *_) -> Brokers:
        self.sessions += 1
        self._epoch = next(self.epochs)
        self._in_flight = []
        return self

    def leader(self, *_) -> PartitionLeader:
        return PartitionLeader(1, self._epoch, None)

    def broker(self, _) -> Brokers:
        return self

    def send(self, request) -> None:
        (topic,) = request.topics
        self._in_flight.append(topic)
        self.asked += [(each.fetch_offset, each.current_leader_epoch) for each in topic.partitions]

    def receive(self) -> SimpleNamespace:
        topic = self._in_flight.pop(0)
        found = [self._answer(each) for each in reversed(topic.partitions)]
        named = SimpleNamespace(topic=topic.topic, topic_id=None, partitions=found)
        return SimpleNamespace(responses=[named], throttle_time_ms=0)

    def _answer(self, asked) -> SimpleNamespace:
        step = self.script.pop(0) if self.script else None
        if isinstance(step, Exception):
            raise step
        return SimpleNamespace(
            partition_index=asked.partition,
            error_code=step if isinstance(step, int) else 0,
            records=step if isinstance(step, bytes) else HELD[asked.fetch_offset],
            aborted_transactions=None,
            high_watermark=6,
        )

    def drop(self, _) -> None:
        self._in_flight = []

    def close(self) -> None:
        self._in_flight = []


@pytest.fixture(params=[False, True], ids=["alone", "begin-asked-before"])
def read(request, monkeypatch):
    """Reads the range from brokers with a script; the offsets that came, and what was raised."""

    def run(brokers: Brokers, wanted: PlannedRange = WANTED) -> tuple[list[int], Exception | None]:
        monkeypatch.setattr(log_reader, "BrokerSession", brokers)
        ticks = itertools.count(0, 0.5)
        clock = Clock(monotonic_s=lambda: next(ticks), pause_s=lambda _: None)
        reader = LogRangeReader(Connection("b:1"), clock=clock)
        seen: list[int] = []
        try:
            begin = (
                reader.fetch_begins([wanted], committed=True).get(wanted.source) if request.param else None
            )
            for rows in reader.read(wanted, committed=True, with_headers=False, begin=begin):
                seen += rows.offsets.tolist()
        except Exception as error:  # noqa: BLE001 (returned)
            return seen, error
        return seen, None

    return run


def test_a_range_is_read_to_its_end_and_each_request_names_the_leaders_epoch(read):
    brokers = Brokers()
    assert read(brokers) == ([0, 1, 2, 3, 4, 5], None)
    assert brokers.asked == [(0, 4), (2, 4), (4, 4)]


def test_a_connection_that_breaks_is_made_again_and_no_record_comes_twice(read):
    brokers = Brokers(None, ConnectionError("reset"), TimeoutError(), None)
    assert read(brokers) == ([0, 1, 2, 3, 4, 5], None)
    assert brokers.sessions == 3


def test_brokers_that_stay_away_end_the_task_with_an_error(read):
    seen, error = read(Brokers(None, *[ConnectionError("refused")] * 100))
    assert seen == [0, 1]
    assert isinstance(error, LogUnavailable)
    assert "refused" in str(error)


@pytest.mark.parametrize("code", [NOT_LEADER, FENCED])
@pytest.mark.parametrize("known", [4, None])
def test_a_new_leader_in_the_middle_of_a_range_ends_the_task(read, code, known):
    wanted = PlannedRange("orders", 2, 0, 6, leader_epoch=known)
    seen, error = read(Brokers(None, code, epochs=(4, 5)), wanted)
    assert seen == [0, 1]
    assert isinstance(error, TopicChanged)
    assert "new leader, of epoch 5 after 4" in str(error)


def test_metadata_of_a_former_leader_is_asked_for_again(read):
    brokers = Brokers(epochs=(3, 3, 4))
    assert read(brokers) == ([0, 1, 2, 3, 4, 5], None)
    assert brokers.sessions == 3
    assert {epoch for _, epoch in brokers.asked} == {4}


def test_offsets_that_are_gone_end_the_task_at_once(read):
    brokers = Brokers(None, OUT_OF_RANGE)
    seen, error = read(brokers)
    assert (seen, brokers.sessions) == ([0, 1], 1)
    assert "partition 2 of topic 'orders' no longer has offset 2" in str(error)


@pytest.mark.parametrize("nothing", [b"", SECOND[:40], SECOND[:-1]])
def test_a_log_from_which_nothing_more_comes_ends_the_task_with_an_error(read, nothing):
    seen, error = read(Brokers(None, *[nothing] * 100))
    assert seen == [0, 1]
    assert "nothing came from 2 on, though the batch ends at 6" in str(error)


def test_a_batch_with_a_changed_byte_ends_the_task_with_an_error(read):
    seen, error = read(Brokers(None, SECOND[:-1] + b"\xff"))
    assert seen == [0, 1]
    assert isinstance(error, LogUnavailable)
    assert "checksum" in str(error)


def test_what_will_not_pass_is_not_tried_again(read):
    brokers = Brokers(*[kafka_errors.TopicAuthorizationFailedError()] * 9)
    seen, error = read(brokers)
    assert seen == []
    assert brokers.sessions <= 2
    assert "TopicAuthorizationFailed" in str(error)


def several(monkeypatch, brokers: Brokers, count: int = 3) -> list[tuple[int, list[int]]]:
    """Reads ranges together; the partitions in their order, with the offsets that came."""
    monkeypatch.setattr(log_reader, "BrokerSession", brokers)
    reader = LogRangeReader(Connection("b:1"), clock=Clock(pause_s=lambda _: None))
    ranges = [PlannedRange("orders", partition, 0, 2, leader_epoch=4) for partition in range(count)]
    return [
        (planned.partition, [offset for rows in found for offset in rows.offsets.tolist()])
        for planned, found in reader.read_each(ranges, committed=True, with_headers=False)
    ]


def test_ranges_are_read_by_one_request_to_their_leader(monkeypatch):
    brokers, received = Brokers(), []

    def receive():
        received.append(len(brokers.asked))
        return Brokers.receive(brokers)

    monkeypatch.setattr(brokers, "receive", receive)
    assert several(monkeypatch, brokers) == [(0, [0, 1]), (1, [0, 1]), (2, [0, 1])]
    assert received == [3]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (FIRST[:-1] + b"\xff", "the batch at offset 0 does not match its checksum"),
        (a_batch(Sent(0, value=b"v" * 1001), Sent(1), codec=GZIP), "a batch has more than 1,000 bytes"),
        (NOT_AUTHORIZED, "TopicAuthorizationFailedError"),
        (UNKNOWN, "UnknownError"),
    ],
    ids=["damaged", "large", "not authorized", "unknown"],
)
def test_a_range_that_can_not_be_read_ends_alone_and_says_why(monkeypatch, answer, reason):
    monkeypatch.setattr(compression, "MAX_BYTES", 1000)
    monkeypatch.setattr(compression, "_TOO_LARGE", "a batch has more than 1,000 bytes")
    brokers = Brokers(None, answer, None, answer)
    monkeypatch.setattr(log_reader, "BrokerSession", brokers)
    reader = LogRangeReader(Connection("b:1"), clock=Clock(pause_s=lambda _: None))
    ranges = [PlannedRange("orders", partition, 0, 2, leader_epoch=4) for partition in range(3)]
    seen, left = {}, {}
    for planned, found in reader.read_each(ranges, committed=True, with_headers=False):
        try:
            seen[planned.partition] = [offset for rows in found for offset in rows.offsets.tolist()]
        except RangeUnreadable as error:
            left[planned.partition] = str(error)
    assert seen == {0: [0, 1], 2: [0, 1]}
    assert left.keys() == {1}
    assert left[1].startswith("partition 1 of topic 'orders' can't be read: ")
    assert reason in left[1]


def test_what_a_leader_may_not_send_at_once_is_asked_for_together(monkeypatch):
    brokers, received = Brokers(b"", b"", None, None), []

    def receive():
        received.append(len(brokers.asked))
        return Brokers.receive(brokers)

    monkeypatch.setattr(brokers, "receive", receive)
    assert several(monkeypatch, brokers, 4) == [(each, [0, 1]) for each in range(4)]
    assert received == [4, 6]


@pytest.mark.parametrize("step", [NOT_LEADER, b"", ConnectionError("reset")])
def test_what_did_not_come_with_the_others_is_asked_for_again(monkeypatch, step):
    brokers = Brokers(None, step)
    assert several(monkeypatch, brokers) == [(0, [0, 1]), (1, [0, 1]), (2, [0, 1])]
    assert len(brokers.asked) > 3


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    yield BrokerSocket(ours, BrokerVersionData(api_versions={1: (4, 12)}), "tests"), theirs
    ours.close()
    theirs.close()


def a_request() -> FetchRequest:
    return FetchRequest(replica_id=-1, max_wait_ms=1, min_bytes=1, max_bytes=1, topics=[])


@pytest.mark.parametrize("cut", [b"", b"\0\0", struct.pack(">i", 100) + bytes(40)])
def test_a_response_that_is_cut_is_an_error_and_never_the_end(pair, cut):
    ours, theirs = pair
    ours.send(a_request())
    theirs.sendall(cut)
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionError, match="closed"):
        ours.receive()


def test_a_response_to_another_request_is_an_error(pair):
    ours, theirs = pair
    ours.send(a_request())
    theirs.sendall(struct.pack(">iib", 100, 99, 0) + bytes(95))
    with pytest.raises(kafka_errors.CorrelationIdError, match="99 instead of 1"):
        ours.receive()


class ManyBrokers(Brokers):
    """Two brokers: partitions with an odd number are led by broker 1, which may be silent or gone."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
        self.asked_of: list[int] = []

    def leader(self, _, partition: int) -> PartitionLeader:
        return PartitionLeader(partition % 2, self._epoch, None)

    def broker(self, node) -> Brokers:
        if node == 1:
            self.asked_of.append(node)
            raise self.error
        return self

    def drop(self, _) -> None:
        """The other broker's answers still come."""


@pytest.mark.parametrize("error", [ConnectionError("refused"), TimeoutError("silent")])
def test_a_broker_that_is_away_ends_its_own_ranges_alone_and_is_waited_for_once(monkeypatch, error):
    brokers = ManyBrokers(error)
    monkeypatch.setattr(log_reader, "BrokerSession", brokers)
    ticks = itertools.count(0, 0.1)
    clock = Clock(monotonic_s=lambda: next(ticks), pause_s=lambda _: None)
    reader = LogRangeReader(Connection("b:1"), away_s=0.5, clock=clock)
    ranges = [PlannedRange("orders", partition, 0, 4, leader_epoch=4) for partition in range(8)]
    seen: dict[int, list[int]] = {}
    left: dict[int, str] = {}
    attempts = []
    for planned, found in reader.read_each(ranges, committed=True, with_headers=False):
        seen[planned.partition] = []
        try:
            for rows in found:
                seen[planned.partition] += rows.offsets.tolist()
        except LeaderAway as away:
            left[planned.partition] = str(away)
        attempts.append(len(brokers.asked_of))
    assert seen == {each: [] if each % 2 else [0, 1, 2, 3] for each in range(8)}
    assert left.keys() == {1, 3, 5, 7}
    assert all(str(error) in why or type(error).__name__ in why for why in left.values())
    assert attempts[1] == attempts[-1], "the other ranges of that broker wait for it again"
    # The next batch asks it again.
    before = len(brokers.asked_of)
    for _, found in reader.read_each(ranges[1:2], committed=True, with_headers=False):
        with pytest.raises(LeaderAway):
            next(found)
    assert len(brokers.asked_of) > before
