"""Many records on their way, over a client whose reports are scripted: what a real broker does at times."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from tests.support.fakes import FakeTime

from keylane.adapters.kafka.clients import RejectionListener
from keylane.adapters.kafka.options import Security
from keylane.adapters.kafka.refusals import REMEMBERED_S, Refusals
from keylane.adapters.kafka.shipment import Shipment
from keylane.errors import (
    ConnectionRejected,
    LogUnavailable,
    ProduceFailed,
    Superseded,
    Unacknowledged,
    UnknownPartition,
    UnknownTopic,
)
from keylane.model.records import NewRecord, Position
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

TOO_LARGE = KafkaError.MSG_SIZE_TOO_LARGE
OTHER = KafkaError._INVALID_DIFFERENT_RECORD
BAD_TIME = KafkaError.INVALID_TIMESTAMP


@dataclass
class ScriptedProducer:
    """librdkafka's producer: `judge` gives, for a batch of values, each one's error code, None for written.

    What `judge` gives -1 for is never reported on. `refuse` raises when a record is handed over.
    `knows_offsets`: whether the broker says where it wrote. `is_alone`: each record is a batch of its own.
    `dies`: the error that serving callbacks raises, once.
    """

    time: FakeTime
    judge: Callable[[list[bytes]], list[int | None]] = lambda batch: [None] * len(batch)
    refuse: Callable[[str], None] = lambda _: None
    knows_offsets: bool = True
    log: list[bytes] = field(default_factory=list)
    batches: list[list[bytes]] = field(default_factory=list)
    purged: int = 0
    is_alone: bool = False
    dies: KafkaError | None = None
    looked_up: list[str] = field(default_factory=list)
    _waiting: list[tuple[bytes, Any]] = field(default_factory=list)

    def produce(self, topic: str, value: bytes, *_: Any, on_delivery: Any, **__: Any) -> None:
        self.refuse(topic)
        self._waiting.append((value, on_delivery))

    def flush(self, timeout_s: float) -> None:
        self.poll(timeout_s)

    def poll(self, timeout_s: float) -> None:
        died, self.dies = self.dies, None
        if died is not None:
            raise KafkaException(died)
        waiting, self._waiting = self._waiting, []
        if not waiting:
            self.time.move(timeout_s)
        for batch in [[each] for each in waiting] if self.is_alone else [waiting] if waiting else []:
            self._write(batch)

    def _write(self, batch: list[tuple[bytes, Any]]) -> None:
        self.batches.append([value for value, _ in batch])
        for (value, report), code in zip(batch, self.judge(self.batches[-1]), strict=True):
            if code is None:
                self.log.append(value)
                offset = len(self.log) - 1 if self.knows_offsets else -1001
                report(None, Message(topic="t", partition=0, offset=offset))
            elif code != -1:
                report(KafkaError(code), None)

    def purge(self, **_: Any) -> None:
        self.purged += 1
        self._waiting.clear()

    def list_topics(self, topic: str, **_: Any) -> None:
        self.looked_up.append(topic)


def a_shipment(records: list[NewRecord], producer: ScriptedProducer, timeout_ms: float = 1_000) -> Shipment:
    return Shipment(records, Deadline.after_ms(timeout_ms, producer.time.clock), Refusals())


def ship(
    producer: ScriptedProducer,
    records: list[NewRecord],
    refusals: Refusals | None = None,
    *,
    shares_batches: bool = False,
) -> list[Any]:
    limit = Deadline.after_ms(1_000, producer.time.clock)
    shipment = Shipment(
        records, limit, Refusals() if refusals is None else refusals, shares_batches=shares_batches
    )
    for group in shipment.groups():
        producer.is_alone = group.is_alone
        shipment.send(producer, group.indices, [0] * len(group.indices), RejectionListener(Security()))
    return shipment.results()


def records_of(*pairs: tuple[bytes, bytes]) -> list[NewRecord]:
    return [NewRecord("t", key, value) for key, value in pairs]


def test_record_is_not_sent_again_where_a_newer_one_with_its_key_was_written():
    codes = {b"1": OTHER, b"2": BAD_TIME, b"3": OTHER, b"4": None}
    tries: list[int] = []

    def judge(batch: list[bytes]) -> list[int | None]:
        tries.append(len(batch))
        return [codes[value] for value in batch] if len(tries) == 1 else [None] * len(batch)

    producer = ScriptedProducer(FakeTime(), judge)
    results = ship(producer, records_of((b"a", b"1"), (b"x", b"2"), (b"b", b"3"), (b"a", b"4")))
    assert producer.log == [b"4", b"2", b"3"]
    overtaken, bad, again, newer = results
    assert isinstance(overtaken, Superseded)
    assert "another record" in str(overtaken)
    assert (bad, again, newer) == (Position(0, 1), Position(0, 2), Position(0, 0))


def is_bad(value: bytes) -> int | None:
    return BAD_TIME if value.startswith(b"bad") else None


def as_librdkafka(batch: list[bytes]) -> list[int | None]:
    """One bad record gives its error to the complete batch. Of several each has its own, the others OTHER."""
    bad = [value for value in batch if is_bad(value)]
    if len(bad) == 1:
        return [BAD_TIME] * len(batch)
    return [is_bad(value) or OTHER for value in batch] if bad else [None] * len(batch)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_only_the_bad_records_of_a_batch_are_refused(count: int):
    producer = ScriptedProducer(FakeTime(), as_librdkafka)
    values = [b"good%d" % number for number in range(10)]
    values[3 : 3 + count] = [b"bad"] * count
    results = ship(producer, records_of(*((b"%d" % number, each) for number, each in enumerate(values))))
    assert producer.log == [value for value in values if value != b"bad"]
    assert [isinstance(each, ProduceFailed) for each in results] == [value == b"bad" for value in values]


def test_of_many_records_the_bad_ones_are_found_by_halves():
    producer = ScriptedProducer(FakeTime(), as_librdkafka)
    values = [b"bad" if number == 777 else b"good" for number in range(1_000)]
    results = ship(producer, records_of(*((b"%d" % number, each) for number, each in enumerate(values))))
    assert [number for number, each in enumerate(results) if isinstance(each, ProduceFailed)] == [777]
    assert len(producer.batches) < 150, "it is not sent record by record"


def test_a_single_record_is_sent_alone_where_batches_are_shared():
    """With a stranger's record in its batch, once."""
    for shares_batches, kind in ((False, ProduceFailed), (True, Position)):
        codes: list[int | None] = [BAD_TIME]
        producer = ScriptedProducer(
            FakeTime(), lambda batch, codes=codes: [codes.pop() if codes else None] * len(batch)
        )
        [result] = ship(producer, records_of((b"a", b"1")), shares_batches=shares_batches)
        assert isinstance(result, kind)


def test_what_a_topic_has_refused_goes_alone_from_then_on_with_the_records_of_its_keys():
    producer, refusals = ScriptedProducer(FakeTime(), as_librdkafka), Refusals()
    far_ms = producer.time.clock.now_ms() + 100_000
    bad = NewRecord("t", b"x", b"bad", timestamp_ms=int(far_ms))
    assert isinstance(ship(producer, [bad], refusals)[0], ProduceFailed)
    producer.batches.clear()
    others = records_of((b"a", b"1"), (b"x", b"2"), (b"b", b"3"))
    results = ship(producer, [*others, bad], refusals)
    assert producer.batches == [[b"1", b"3"], [b"2"], [b"bad"]], "nothing was sent twice"
    assert [type(each) for each in results] == [Position] * 3 + [ProduceFailed]
    producer.time.move(REMEMBERED_S + 1)
    producer.batches.clear()
    ship(producer, [*others, bad], refusals)
    assert producer.batches[0] == [b"1", b"2", b"3", b"bad"], "the topic may take them by now"


def test_a_client_that_ends_leaves_what_it_has_uncertain_and_what_it_did_not_take_to_another():
    ended = KafkaError(KafkaError._FATAL, "fenced", fatal=True)
    producer = ScriptedProducer(FakeTime(), dies=ended)
    shipment = a_shipment(records_of((b"a", b"1"), (b"b", b"2")), producer)
    shipment.send(producer, [0], [0], RejectionListener(Security()))
    assert (shipment.fatal, producer.purged) == (ended, 1)
    producer.refuse = refuse_as(KafkaError._FATAL)
    shipment.send(producer, [1], [0], RejectionListener(Security()))
    assert shipment.not_sent([0, 1]) == [1]
    assert [type(each) for each in shipment.results()] == [Unacknowledged, LogUnavailable]


def refuse_as(code: int) -> Callable[[str], None]:
    def refuse(topic: str) -> None:
        raise KafkaException(KafkaError(code))

    return refuse


@pytest.mark.parametrize("code", [7, 20, 45, 47, 59])
def test_errors_after_which_a_record_may_be_in_the_log_are_uncertain(code: int):
    [result] = ship(ScriptedProducer(FakeTime(), lambda _: [code]), records_of((b"a", b"1")))
    assert isinstance(result, ProduceFailed)
    assert (result.uncertain, result.retriable) == (True, True)


def test_batch_that_is_too_large_is_sent_record_by_record_and_keeps_its_order():
    def judge(batch: list[bytes]) -> list[int | None]:
        return [TOO_LARGE if sum(map(len, batch)) > 10 else None] * len(batch)

    producer = ScriptedProducer(FakeTime(), judge)
    values = [b"%03d" % number for number in range(8)]
    values[5] = b"x" * 11
    results = ship(producer, records_of(*((b"k", value) for value in values)))
    assert producer.log == [value for value in values if value[:1] != b"x"]
    assert [type(result) for result in results] == [Position] * 5 + [Superseded] + [Position] * 2


def test_unreported_records_are_purged_at_the_deadline_and_uncertain():
    producer = ScriptedProducer(FakeTime(), lambda batch: [None, *[-1] * (len(batch) - 1)])
    written, *others = ship(producer, records_of((b"a", b"1"), (b"b", b"2"), (b"c", b"3")))
    assert written == Position(0, 0)
    assert [type(result) for result in others] == [Unacknowledged] * 2
    assert producer.purged == 1


def test_second_try_that_is_not_reported_is_uncertain_whatever_the_first_one_came_to():
    tries: list[int] = []

    def judge(batch: list[bytes]) -> list[int | None]:
        tries.append(len(batch))
        return [OTHER, KafkaError.POLICY_VIOLATION] if len(tries) == 1 else [-1] * len(batch)

    results = ship(ScriptedProducer(FakeTime(), judge), records_of((b"a", b"1"), (b"b", b"2")))
    assert [type(result) for result in results] == [Unacknowledged, ProduceFailed]


def test_a_record_whose_offset_kafka_does_not_return_is_uncertain():
    producer = ScriptedProducer(FakeTime(), knows_offsets=False)
    [result] = ship(producer, records_of((b"a", b"1")))
    assert type(result) is Unacknowledged
    assert "may or may not have been written" in str(result)


def test_record_that_the_client_does_not_take_was_surely_not_written():
    def refuse(topic: str) -> None:
        raise BufferError

    [result] = ship(ScriptedProducer(FakeTime(), refuse=refuse), records_of((b"a", b"1")))
    assert type(result) is LogUnavailable
    assert "not written" in str(result)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(KafkaError._UNKNOWN_TOPIC, UnknownTopic), (KafkaError._UNKNOWN_PARTITION, UnknownPartition)],
)
def test_an_unknown_topic_is_looked_up_once_a_request(code: int, kind: type):
    producer = ScriptedProducer(FakeTime(), refuse=refuse_as(code))
    results = ship(producer, [NewRecord("t", b"k", b"v", 7)] * 100)
    assert all(isinstance(result, kind) for result in results)
    assert producer.looked_up == ["t"]


def test_a_rejection_ends_the_wait_soon_and_what_was_handed_over_before_is_not_sent_again():
    """Written, bad in itself, and not reported when the refusal is heard."""
    listener = RejectionListener(Security())

    def judge(batch: list[bytes]) -> list[int | None]:
        listener(KafkaError(KafkaError._AUTHENTICATION))
        return [None, BAD_TIME, -1]

    producer = ScriptedProducer(FakeTime(), judge)
    limit = Deadline.after_ms(60_000, producer.time.clock)
    shipment = Shipment(records_of((b"a", b"1"), (b"b", b"2"), (b"c", b"3")), limit, Refusals())
    shipment.send(producer, [0, 1, 2], [0, 0, 0], listener)
    assert shipment.not_sent([0, 1, 2]) == []
    assert limit.remaining_s > 59
    written, bad, refused = shipment.results()
    assert (written, type(bad)) == (Position(0, 0), ProduceFailed)
    assert isinstance(refused, ConnectionRejected)
    assert refused.uncertain
    assert producer.purged == 1


def test_after_a_refusal_nothing_more_is_handed_over():
    listener = RejectionListener(Security())
    listener(KafkaError(KafkaError._SSL))
    producer = ScriptedProducer(FakeTime())
    limit = Deadline.after_ms(1_000, producer.time.clock)
    shipment = Shipment(records_of((b"a", b"1")), limit, Refusals())
    shipment.send(producer, [0], [0], listener)
    assert shipment.not_sent([0]) == [0]
    [refused] = shipment.results()
    assert (getattr(refused, "code", ""), producer.batches) == ("SSL_HANDSHAKE_FAILED", [])
    assert not getattr(refused, "uncertain", True)


def test_a_full_queue_is_waited_for_while_reports_make_room():
    room = [2]

    def refuse(topic: str) -> None:
        if not room[0]:
            raise BufferError
        room[0] -= 1

    def judge(batch: list[bytes]) -> list[int | None]:
        room[0] += len(batch)
        return [None] * len(batch)

    producer = ScriptedProducer(FakeTime(), judge, refuse)
    results = ship(producer, records_of(*((b"k", b"%d" % number) for number in range(7))))
    assert [type(result) for result in results] == [Position] * 7
    assert producer.log == [b"%d" % number for number in range(7)]
