"""Sends the records of one request to Kafka: all at once, with one wait, and a report for each record."""

from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from keylane.adapters.kafka.clients import RejectionListener, fetch_metadata
from keylane.adapters.kafka.errors import (
    LOCAL_OTHER_INVALID,
    LOCAL_QUEUE_FULL,
    LOCAL_TIMED_OUT,
    LOCAL_UNKNOWN_PARTITION,
    LOCAL_UNKNOWN_TOPIC,
    error_of,
)
from keylane.adapters.kafka.partitions import Resolved
from keylane.errors import ConnectionRejected, KeylaneError, LogUnavailable
from keylane.model.records import NewRecord, Position
from keylane.ports import AppendResult, Deadline

REFUSED_FOR_ITS_BATCH = frozenset({LOCAL_OTHER_INVALID, KafkaError.MSG_SIZE_TOO_LARGE})
"""Errors of a record that Kafka may accept in another batch, or alone."""
AFTER_REJECTION_MS = 500
"""How long other brokers may still acknowledge once one of them has rejected the client."""
POLL_S = 0.05
"""How long to wait for reports, or for room in the queue, between checks of rejection and deadline."""
CLOCK_EVERY = 64
"""Records between two reads of the clock: a read takes as long as passing a record to the client."""


class Shipment:
    """Sends groups of a request's records (lists of indices) and keeps the report on each record.

    Kafka refuses a complete batch: for one bad record in it, or because the topic accepts single records of
    this size but not this many at once. So `groups` first yields all records. Then it yields again those that
    were refused because of other records, unless a newer record of the same key has been written: that one
    must stay the last.
    """

    def __init__(self, records: Sequence[NewRecord], deadline: Deadline, *, waits: bool = True) -> None:
        """`waits`: a record waits for room in a full client queue, else it fails at once."""
        self.records = records
        self._deadline = deadline
        self._waits = waits
        self.reports: list[Position | KafkaError | KeylaneError | None] = [None] * len(records)
        self._unsent: set[int] = set()
        self._unknown: dict[str, KafkaError] = {}
        self._looked_up: set[str] = set()
        self._is_late = False
        self.is_client_broken = False

    def groups(self) -> Iterator[list[int]]:
        """Yield groups to send; the caller must send each before it takes the next."""
        stack = [list(range(len(self.records)))]
        while stack:
            group = stack.pop()
            yield group
            again = self._refused_for_others(group) if len(group) > 1 and self._deadline.remaining_s else []
            half = (len(again) + 1) // 2
            # Without the bad records the rest may go as one; if none was accepted, the batch is too large.
            parts = [again] if len(again) < len(group) else [again[half:], again[:half]]
            stack += [part for part in parts if part]

    def send(
        self,
        client: Producer,
        group: Sequence[int],
        partitions: Sequence[Resolved],
        listener: RejectionListener,
        *,
        is_new: bool = True,
    ) -> None:
        """Hand the records over, and wait for their reports until the deadline, or a broker's rejection.

        `partitions`: of each record of the group, or why it has none. `is_new`: the client has sent nothing
        before, so that after a rejection no unreported record can have been written.
        """
        attempt = _Attempt(self, client, listener)
        self.is_client_broken = False
        for index, partition in zip(group, partitions, strict=True):
            self._unsent.discard(index)
            error = self._hand_over(attempt, index, partition)
            if error is not None:
                self._unsent.add(index)
                self.fail(index, error)
        unreported = attempt.wait(self._deadline)
        rejection = listener.error(uncertain=not is_new)
        if rejection is not None:
            for index in unreported:
                self.reports[index] = rejection

    def fail(self, index: int, error: KafkaError | KeylaneError) -> None:
        """Keep the error of a record, as its report."""
        self.reports[index] = error
        if isinstance(error, KafkaError) and error.fatal():
            self.is_client_broken = True

    def rejected(self, group: Sequence[int]) -> list[int]:
        """The records of the group that failed because a broker rejected the client."""
        return [index for index in group if isinstance(self.reports[index], ConnectionRejected)]

    def results(self) -> list[AppendResult]:
        """The result of each record."""
        return [self._result(index) for index in range(len(self.records))]

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
                attempt.client.poll(min(self._deadline.remaining_s, POLL_S))
        self.reports[index] = None
        attempt.unreported.add(index)
        return None

    def _refused_for_others(self, group: Sequence[int]) -> list[int]:
        refused = [
            index
            for index, report in ((index, self.reports[index]) for index in group)
            if isinstance(report, KafkaError)
            and report.code() in REFUSED_FOR_ITS_BATCH
            and index not in self._unsent
        ]
        if not refused:
            return []
        keys = {index: (self.records[index].topic, self.records[index].key) for index in group}
        newest = {keys[index]: index for index in group if isinstance(self.reports[index], Position)}
        return [index for index in refused if keys[index][1] is None or newest.get(keys[index], -1) < index]

    def _result(self, index: int) -> AppendResult:
        report = self.reports[index]
        if isinstance(report, Position):
            if report.offset == _UNKNOWN_OFFSET:
                return LogUnavailable("the record was written, but the broker did not return its offset")
            return report
        if isinstance(report, KeylaneError):
            return report
        error = KafkaError(LOCAL_TIMED_OUT) if report is None else report
        return error_of(error, self.records[index], sent=index not in self._unsent)


_UNKNOWN_OFFSET = -1
"""Of a record that a broker had already when it was sent again: it does not say where."""


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
        while self.unreported and until.remaining_s:
            # flush() sends at once: the linger only lets records gather until the client has all of them.
            self.client.flush(min(until.remaining_s, POLL_S))
            if self.listener.refusal is not None and until is deadline:
                # Other brokers may accept the client: give them a moment.
                soon = Deadline.after_ms(AFTER_REJECTION_MS, until.clock)
                until = min(until, soon, key=lambda each: each.at_s)
        left = set(self.unreported)
        if left:
            # Left in the queue they would be sent when the broker is back: long after the caller got an
            # error, and maybe after newer writes. Records that were on the wire stay uncertain.
            self.client.purge(in_queue=True, in_flight=True, blocking=False)
            self.client.poll(0)
        return left


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
