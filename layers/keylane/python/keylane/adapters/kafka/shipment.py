"""Sends the records of one request to Kafka: all at once, with one wait, and a report for each record."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from keylane.adapters.kafka.clients import RejectionListener, fetch_metadata
from keylane.adapters.kafka.errors import (
    LOCAL_OTHER_INVALID,
    LOCAL_QUEUE_FULL,
    LOCAL_TIMED_OUT,
    LOCAL_UNKNOWN_PARTITION,
    LOCAL_UNKNOWN_TOPIC,
    error_of,
    is_fatal,
)
from keylane.adapters.kafka.partitions import Resolved
from keylane.adapters.kafka.refusals import Refusals
from keylane.errors import ConnectionRejected, KeylaneError, Superseded, Unacknowledged
from keylane.model.records import NewRecord, Position
from keylane.ports import AppendResult, Deadline

REFUSED_WITH_ITS_BATCH = frozenset(
    {
        LOCAL_OTHER_INVALID,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
    }
)
"""Errors that a record may have for another one in its batch.

The client names the record at fault only where Kafka names two or more: https://github.com/confluentinc/librdkafka
(`rd_kafka_handle_Produce`). One bad record gives its error to all.
"""
ALONE_LIMIT = 128
"""So many records are sent alone at a time; more are divided first. Each costs the broker a batch."""
AFTER_REJECTION_MS = 500
"""How long other brokers may still acknowledge once one of them has rejected the client."""
POLL_S = 0.05
"""How long to wait for reports, or for room in the queue, between checks of rejection and deadline."""
CLOCK_EVERY = 64
"""Records between two reads of the clock: a read takes as long as passing a record to the client."""


class Group(NamedTuple):
    """Records to send, by their indices. `is_alone`: each in a batch of its own."""

    indices: Sequence[int]
    is_alone: bool = False


class Shipment:
    """Sends groups of a request's records (lists of indices) and keeps the report on each record.

    Kafka refuses a complete batch: for one bad record in it, or because the topic accepts single records of
    this size but not this many at once. So `groups` yields again what was refused with its batch, each record
    alone, unless a newer record of the same key has been written: that one must stay the last. What topics
    have refused lately is sent alone from the start, with the other records of its keys.
    """

    def __init__(
        self,
        records: Sequence[NewRecord],
        deadline: Deadline,
        refusals: Refusals,
        *,
        waits: bool = True,
        shares_batches: bool = False,
    ) -> None:
        """`waits`: a record waits for room in a full client queue, else it fails at once.

        `shares_batches`: with records of other requests.
        """
        self.records = records
        self._deadline = deadline
        self._refusals = refusals
        self._waits = waits
        self._shares_batches = shares_batches
        self.reports: list[Position | KafkaError | KeylaneError | None] = [None] * len(records)
        self._unsent: set[int] = set()
        self._unknown: dict[str, KafkaError] = {}
        self._looked_up: set[str] = set()
        self._is_late = False
        self.fatal: KafkaError | None = None
        """Why the client of the last attempt can send nothing any more."""

    def groups(self) -> Iterator[Group]:
        """Yield groups to send; the caller must send each before it takes the next."""
        stack = self._first_groups()
        while stack:
            group = stack.pop()
            yield group
            is_alone = group.is_alone or (len(group.indices) == 1 and not self._shares_batches)
            refused = [index for index in group.indices if self._is_refused(index)]
            if is_alone:
                for index in refused:
                    self._refusals.note(self.records[index], self._code(index), self._deadline.clock)
            elif self._deadline.remaining_s:
                stack += self._parts(self._not_overtaken(group.indices, refused))

    def _first_groups(self) -> list[Group]:
        indices = range(len(self.records))
        if not self._refusals:
            return [Group(indices)]
        clock = self._deadline.clock
        alone = [index for index in indices if self._refusals.is_like_refused(self.records[index], clock)]
        keys = {self._key(index) for index in alone}
        # The order of a key's records: those before and after one that goes alone go with it.
        alone = [index for index in indices if self._key(index) in keys]
        others = sorted(set(indices) - set(alone))
        return [Group(own, is_alone) for own, is_alone in ((alone, True), (others, False)) if own]

    @staticmethod
    def _parts(again: Sequence[int]) -> list[Group]:
        """What to send next: the last one first."""
        if len(again) <= ALONE_LIMIT:
            return [Group(again, is_alone=True)] if again else []
        half = (len(again) + 1) // 2
        return [Group(again[half:]), Group(again[:half])]

    def send(
        self,
        client: Producer,
        group: Sequence[int],
        partitions: Sequence[Resolved],
        listener: RejectionListener,
    ) -> None:
        """Hand the records over, and wait for their reports until the deadline, or a broker's rejection.

        `partitions`: of each record of the group, or why it has none. After a rejection, what is unreported
        may have been written: a client is also rejected when it connects again.
        """
        attempt = _Attempt(self, client, listener)
        self.fatal = None
        for index, partition in zip(group, partitions, strict=True):
            self._unsent.discard(index)
            error = self._hand_over(attempt, index, partition)
            if error is not None:
                self._unsent.add(index)
                self.fail(index, error)
        unreported = attempt.wait(self._deadline)
        rejection = listener.error(uncertain=True)
        if rejection is not None:
            for index in unreported:
                self.reports[index] = rejection

    def fail(self, index: int, error: KafkaError | KeylaneError) -> None:
        """Keep the error of a record, as its report."""
        self.reports[index] = error
        if isinstance(error, KafkaError) and is_fatal(error):
            self.fatal = error

    def fail_unreported(self, group: Sequence[int], error: KeylaneError) -> bool:
        """Keep the error of the records that have no report; returns whether any record of all has one."""
        if not any(self.reports):
            return False
        for index in group:
            if self.reports[index] is None:
                self.fail(index, error)
        return True

    def not_sent(self, group: Sequence[int]) -> list[int]:
        """The records of the group that the client has surely not sent: another client may send them.

        A broker has rejected the client, or the client could not take them any more.
        """
        return [index for index in group if self._is_not_sent(index)]

    def _is_not_sent(self, index: int) -> bool:
        report = self.reports[index]
        if isinstance(report, ConnectionRejected):
            return not report.uncertain
        return isinstance(report, KafkaError) and index in self._unsent and is_fatal(report)

    def results(self) -> list[AppendResult]:
        """The result of each record."""
        results = [self._result(index) for index in range(len(self.records))]
        failed = {index: each for index, each in enumerate(results) if isinstance(each, KeylaneError)}
        for index in failed.keys() - self._not_overtaken(range(len(self.records)), failed):
            results[index] = Superseded(failed[index])
        return results

    def failed_topics(self) -> set[str]:
        """Topics of records that were not acknowledged."""
        pairs = zip(self.records, self.reports, strict=True)
        return {record.topic for record, report in pairs if not isinstance(report, Position)}

    def _hand_over(
        self, attempt: "_Attempt", index: int, partition: Resolved
    ) -> KafkaError | KeylaneError | None:
        """Hand a record to the client; return why it was not accepted."""
        topic = self.records[index].topic
        if topic in self._unknown:
            return self._unknown[topic]
        if attempt.listener.refusal is not None:
            return attempt.listener.error()
        if index % CLOCK_EVERY == 0 and not self._deadline.remaining_s:
            self._is_late = True
        if self._is_late:
            return KafkaError(LOCAL_TIMED_OUT)
        if not isinstance(partition, int):
            return partition
        error = self._produce(attempt, index, partition)
        is_unknown = error is not None and error.code() in {LOCAL_UNKNOWN_TOPIC, LOCAL_UNKNOWN_PARTITION}
        return self._produce_unknown(attempt, index, partition) if is_unknown else error

    def _produce_unknown(
        self, attempt: "_Attempt", index: int, partition: int
    ) -> KafkaError | KeylaneError | None:
        """Produce a record once more, after a look-up of its topic; topics are looked up once a request.

        The client remembers what was unknown to it; by now the topic or partition may exist.
        """
        topic = self.records[index].topic
        if topic not in self._looked_up:
            self._looked_up.add(topic)
            try:
                fetch_metadata(attempt.client, topic, self._deadline, attempt.listener)
            except KafkaException as failed:
                return _error_in(failed)
            except ConnectionRejected as failed:
                return failed
        error = self._produce(attempt, index, partition)
        if error is not None and error.code() == LOCAL_UNKNOWN_TOPIC:
            self._unknown[topic] = error
        return error

    def _produce(self, attempt: "_Attempt", index: int, partition: int) -> KafkaError | None:
        record = self.records[index]
        more: dict[str, Any] = {}
        if record.timestamp_ms is not None:
            more["timestamp"] = record.timestamp_ms
        if record.headers:
            more["headers"] = list(record.headers)
        more["on_delivery"] = _DeliveryReport(attempt, index)
        while True:
            try:
                attempt.client.produce(record.topic, record.value, record.key, partition, **more)
                break
            except KafkaException as failed:
                return _error_in(failed)
            except BufferError:
                is_over = not self._deadline.remaining_s or attempt.listener.refusal is not None
                if is_over or not self._waits:
                    return KafkaError(LOCAL_QUEUE_FULL)
                attempt.serve(attempt.client.poll, min(self._deadline.remaining_s, POLL_S))
        self.reports[index] = None
        attempt.unreported.add(index)
        return None

    def _is_refused(self, index: int) -> bool:
        return index not in self._unsent and self._code(index) in REFUSED_WITH_ITS_BATCH

    def _code(self, index: int) -> int:
        report = self.reports[index]
        return report.code() if isinstance(report, KafkaError) else 0

    def _key(self, index: int) -> tuple[str, bytes | int]:
        """What has an order: the records of a key. A record without a key has none, and is its own."""
        record = self.records[index]
        return record.topic, index if record.key is None else record.key

    def _not_overtaken(self, group: Sequence[int], failed: Collection[int]) -> list[int]:
        """Those that failed and have no newer record of their key in the group that was written."""
        if not failed:
            return []
        written = (index for index in group if isinstance(self.reports[index], Position))
        newest = {self._key(index): index for index in written}
        return [index for index in failed if newest.get(self._key(index), -1) <= index]

    def _result(self, index: int) -> AppendResult:
        report = self.reports[index]
        if isinstance(report, Position):
            if report.offset == _UNKNOWN_OFFSET:
                return Unacknowledged(
                    "Kafka did not return the record's offset: it may or may not have been written"
                )
            return report
        if isinstance(report, KeylaneError):
            return report
        error = KafkaError(LOCAL_TIMED_OUT) if report is None else report
        return error_of(error, self.records[index], sent=index not in self._unsent)


_UNKNOWN_OFFSET = -1
"""Of a record that the client takes for written, though no answer says where.

Either the broker had it already when it was sent again; or a later record of the partition was acknowledged,
and the client concludes that this one was written before it (`rd_kafka_dr_implicit_ack`). That may be wrong:
a new leader, which knows nothing of a producer, takes any first sequence number of it (KAFKA-14359). What it
refused a moment before it led is lost then.
"""


class _Attempt:
    """One sending of a group with one client. `unreported`: records that the client has not reported on."""

    __slots__ = ("client", "listener", "shipment", "unreported")

    def __init__(self, shipment: Shipment, client: Producer, listener: RejectionListener) -> None:
        self.shipment = shipment
        self.client = client
        self.listener = listener
        self.unreported: set[int] = set()

    def wait(self, deadline: Deadline) -> set[int]:
        """Wait for all reports until the deadline; return the records without one, which are purged."""
        until = deadline
        while self.unreported and until.remaining_s and self.shipment.fatal is None:
            # flush() sends at once: the linger only lets records gather until the client has all of them.
            self.serve(self.client.flush, min(until.remaining_s, POLL_S))
            if self.listener.refusal is not None and until is deadline:
                # Other brokers may accept the client: give them a moment.
                soon = Deadline.after_ms(AFTER_REJECTION_MS, until.clock)
                until = min(until, soon, key=lambda each: each.at_s)
        left = set(self.unreported)
        if left:
            # Left in the queue they would be sent when the broker is back: long after the caller got an
            # error, and maybe after newer writes. Records that were on the wire stay uncertain.
            self.client.purge(in_queue=True, in_flight=True, blocking=False)
            self.serve(self.client.poll, 0)
        return left

    def serve(self, call: Callable[[float], Any], timeout_s: float) -> None:
        """Call what serves the client's callbacks: there it raises the error that ends it."""
        try:
            call(timeout_s)
        except KafkaException as failed:
            self.shipment.fatal = _error_in(failed)


class _DeliveryReport:
    """librdkafka's callback for one record of an attempt."""

    __slots__ = ("_attempt", "_index")

    def __init__(self, attempt: _Attempt, index: int) -> None:
        self._attempt = attempt
        self._index = index

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        attempt, index = self._attempt, self._index
        attempt.unreported.discard(index)
        if error is None:
            offset = message.offset()
            attempt.shipment.reports[index] = Position(
                message.partition(), _UNKNOWN_OFFSET if offset is None else offset
            )
        else:
            attempt.shipment.fail(index, error)


def _error_in(failed: KafkaException) -> KafkaError:
    error: KafkaError = failed.args[0]
    return error
