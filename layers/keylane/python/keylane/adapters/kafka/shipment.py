"""The records of one request on their way to Kafka: all at once, one wait, one report for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from keylane.adapters.kafka.clients import RejectionListener, metadata
from keylane.adapters.kafka.errors import (
    LOCAL_OTHER_INVALID,
    LOCAL_QUEUE_FULL,
    LOCAL_TIMED_OUT,
    LOCAL_UNKNOWN_PARTITION,
    LOCAL_UNKNOWN_TOPIC,
    error_of,
)
from keylane.adapters.kafka.options import Security
from keylane.errors import ConnectionRejected, KeylaneError, LogUnavailable, PartitionMissing
from keylane.model.records import Position
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from confluent_kafka import Producer

    from keylane.model.records import NewRecord
    from keylane.ports import AppendResult

    Partition = Callable[[Producer, NewRecord, Deadline], int]

FOR_ITS_BATCH = frozenset({LOCAL_OTHER_INVALID, KafkaError.MSG_SIZE_TOO_LARGE})
"""What a record may be refused with that Kafka would take in another batch, or alone."""

REFUSED_PATIENCE_MS = 500
"""How long other brokers may still acknowledge when one of them has refused the client."""

QUEUE_LOOK_S = 0.05
"""How often a full queue is looked at, beside each report."""


REFUSAL_LOOK_S = 0.05
"""How often a wait for reports is looked up from: a broker that does not let the client in ends it."""
LOOK_EVERY = 64
"""Records between two looks at the clock, which takes as long as handing one over."""


class Shipment:
    """Sends groups of the records (their indices), and keeps what became of each.

    Kafka refuses a batch whole: for one bad record in it, or where a topic takes single records of this size,
    but not so many at once. `groups` begins with all, then gives those that were refused for others' sake
    once more; not those of which a newer one with the same key was written meanwhile, which must stay last.
    """

    def __init__(
        self,
        records: Sequence[NewRecord],
        partition: Partition,
        deadline: Deadline,
        *,
        waits: bool = True,
    ) -> None:
        """`waits`: for room in the client's queue, where that is full; else such records fail at once."""
        self._records = records
        self._partition = partition
        self._deadline = deadline
        self._waits = waits
        self._entrance = RejectionListener(Security())
        self._reports: list[Position | KafkaError | KeylaneError | None] = [None] * len(records)
        self._unsent: set[int] = set()
        self._unknown: dict[str, KafkaError] = {}
        self._looked_up: set[str] = set()
        self._is_late = False
        self.has_failed_for_good = False

    def groups(self) -> Iterator[list[int]]:
        """Groups to be sent, each before the next one is asked for."""
        stack = [list(range(len(self._records)))]
        while stack:
            group = stack.pop()
            yield group
            again = self._refused_for_others(group) if len(group) > 1 and self._deadline.remaining_s else []
            half = (len(again) + 1) // 2
            # With the bad ones out of it, the rest may go at once; where none was taken, it is too large.
            parts = [again] if len(again) < len(group) else [again[half:], again[:half]]
            stack += [part for part in parts if part]

    def send(
        self, producer: Producer, group: Sequence[int], entrance: RejectionListener, *, is_new: bool = True
    ) -> None:
        """Hand the records over, and wait for the reports on them until the deadline.

        A broker that does not let the client in ends that soon. `is_new`: the client, so that nothing of what
        is not reported can have been written then.
        """
        waiting: set[int] = set()
        self._entrance = entrance
        self.has_failed_for_good = False
        for index in group:
            self._unsent.discard(index)
            error = self._hand_over(producer, index, waiting)
            if error is not None:
                self._unsent.add(index)
                self._report(index, error)
        patience = self._deadline
        while waiting and patience.remaining_s:
            # What is here goes at once, whatever the linger: that lets records gather until all are here.
            producer.flush(min(patience.remaining_s, REFUSAL_LOOK_S))
            if entrance.refusal is not None and patience is self._deadline:
                # Other brokers may let it in: theirs have a moment more.
                soon = Deadline.after_ms(REFUSED_PATIENCE_MS, patience.clock)
                patience = min(patience, soon, key=lambda each: each.at_s)
        left = set(waiting)
        if waiting:
            # Left in the queue they would be sent when the broker is back, long after the caller was told
            # that they failed, and maybe after newer writes. What was on the wire stays uncertain.
            producer.purge(in_queue=True, in_flight=True, blocking=False)
            producer.poll(0)
        refusal = entrance.error(uncertain=not is_new)
        if refusal is not None:
            for index in left:
                self._reports[index] = refusal

    def refused(self, group: Sequence[int]) -> list[int]:
        """Those of the group that failed because a broker did not let the client in."""
        return [index for index in group if isinstance(self._reports[index], ConnectionRejected)]

    def outcomes(self) -> list[AppendResult]:
        """The fate of each record."""
        return [self._outcome(index) for index in range(len(self._records))]

    def failed_topics(self) -> set[str]:
        """Topics with a record that was not acknowledged."""
        pairs = zip(self._records, self._reports, strict=True)
        return {record.topic for record, report in pairs if not isinstance(report, Position)}

    def _hand_over(
        self, producer: Producer, index: int, waiting: set[int]
    ) -> KafkaError | KeylaneError | None:
        """Give the record to the client, or say why it does not take it."""
        topic = self._records[index].topic
        if topic in self._unknown:
            return self._unknown[topic]
        if self._entrance.refusal is not None:
            return self._entrance.error()
        if index % LOOK_EVERY == 0 and not self._deadline.remaining_s:
            self._is_late = True
        if self._is_late:
            return KafkaError(LOCAL_TIMED_OUT)
        try:
            error = self._produce(producer, index, waiting)
            is_unknown = error is not None and error.code() in {LOCAL_UNKNOWN_TOPIC, LOCAL_UNKNOWN_PARTITION}
            if is_unknown and topic not in self._looked_up:
                # What was unknown to the client once is so for a while, or ever after: it may be there now.
                self._looked_up.add(topic)
                metadata(producer, topic, self._deadline, self._entrance)
                error = self._produce(producer, index, waiting)
        except KafkaException as failed:
            return _error_in(failed)
        except (ConnectionRejected, PartitionMissing) as failed:
            return failed
        if error is not None and error.code() == LOCAL_UNKNOWN_TOPIC:
            self._unknown[topic] = error
        return error

    def _produce(self, producer: Producer, index: int, waiting: set[int]) -> KafkaError | None:
        record = self._records[index]
        more: dict[str, Any] = {}
        if record.timestamp_ms is not None:
            more["timestamp"] = record.timestamp_ms
        if record.headers:
            more["headers"] = list(record.headers)

        def reported(error: KafkaError | None, message: Any) -> None:
            waiting.discard(index)
            if error is None:
                self._reports[index] = Position(message.partition(), message.offset())
            else:
                self._report(index, error)

        try:
            partition = self._partition(producer, record, self._deadline)
            while True:
                try:
                    producer.produce(
                        *(record.topic, record.value, record.key, partition), on_delivery=reported, **more
                    )
                    break
                except BufferError:
                    is_over = not self._deadline.remaining_s or self._entrance.refusal is not None
                    if is_over or not self._waits:
                        return KafkaError(LOCAL_QUEUE_FULL)
                    producer.poll(min(self._deadline.remaining_s, QUEUE_LOOK_S))
        except KafkaException as failed:
            return _error_in(failed)
        self._reports[index] = None
        waiting.add(index)
        return None

    def _report(self, index: int, report: Position | KafkaError | KeylaneError) -> None:
        self._reports[index] = report
        if isinstance(report, KafkaError) and report.fatal():
            self.has_failed_for_good = True

    def _refused_for_others(self, group: Sequence[int]) -> list[int]:
        if all(isinstance(self._reports[index], Position) for index in group):
            return []
        written: set[tuple[str, bytes]] = set()
        again: list[int] = []
        for index in reversed(group):
            record, report = self._records[index], self._reports[index]
            identity = None if record.key is None else (record.topic, record.key)
            if isinstance(report, Position):
                written |= {identity} if identity else set()
            elif (
                isinstance(report, KafkaError)
                and report.code() in FOR_ITS_BATCH
                and index not in self._unsent
            ):
                again += [] if identity in written else [index]
        return again[::-1]

    def _outcome(self, index: int) -> AppendResult:
        report = self._reports[index]
        if isinstance(report, Position):
            if report.offset < 0:
                return LogUnavailable("the record was written, but the broker did not tell where")
            return report
        if isinstance(report, KeylaneError):
            return report
        error = KafkaError(LOCAL_TIMED_OUT) if report is None else report
        return error_of(error, self._records[index], sent=index not in self._unsent)


def _error_in(failed: KafkaException) -> KafkaError:
    error: KafkaError = failed.args[0]
    return error
