"""The write-ahead log into Kafka: what was written leaves the queue, the rest comes again.

1. All records of the batch are handed to Kafka at once, in the messages' order.
2. A message leaves the queue once each of its records is written, or is in the dead-letter queue.
3. Where a record failed that Kafka may take later, its message comes again, and so do those of its order
   group that came after it, written or not: the last to be written is then the newest one again.
4. What Kafka will never take goes into the dead-letter queue with the reason, and holds up nothing.

So each record is written at least once. It is written again where its message comes again: its id, in the
header `keylane-id`, stays the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from keylane.errors import (
    KeylaneError,
    ProduceFailed,
    QueueUnavailable,
    TooLarge,
    UnknownPartition,
    UnknownTopic,
)
from keylane.ports import Message
from keylane.produce import message_codec
from keylane.produce.enqueue import with_id
from keylane.state.codec import CodecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from keylane.model.records import NewRecord
    from keylane.ports import AppendResult, Bucket, Deadline, Log, Queue
    from keylane.produce.message_codec import Parcel

CHANCES_OF_UNKNOWN = 3
"""Deliveries after which a topic or partition that Kafka doesn't know counts as wrong: it may be new."""
REASON, DETAIL, TOPIC = "keylane-reason", "keylane-detail", "keylane-topic"
"""Attributes of a dead letter: the error's name, a sentence, the topic where it is known."""
DETAIL_CHARACTERS = 400
HELD_BACK = "HELD_BACK"
"""Why a message comes again of which nothing failed: an earlier one of its group does, or was not buried."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message as the queue delivers it; `deliveries` counts this one too."""

    id: str
    body: str
    group: str | None = None
    deliveries: int = 1


@dataclass(frozen=True, slots=True)
class Drained:
    """What became of a batch: ids of messages that come again, and how many records were written.

    `dead`: records for the dead letters, by reason. `retried`: messages that come again, by reason.
    """

    failed: list[str]
    written: int
    dead: Mapping[str, int]
    retried: Mapping[str, int]


class _Dead(KeylaneError):
    """A message that can't be read, ever; `code` says why."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


@dataclass(slots=True)
class _Trip:
    """A message on its way: what it holds, and what came of its records."""

    message: Received
    parcel: Parcel | None = None
    fault: KeylaneError | None = None
    outcomes: list[AppendResult] = field(default_factory=list)
    failed: bool = False

    @property
    def failures(self) -> list[tuple[int, KeylaneError]]:
        """Places of records that were not written, and why."""
        return [(n, each) for n, each in enumerate(self.outcomes) if isinstance(each, KeylaneError)]


def drain(
    log: Log, bucket: Bucket | None, dead_letters: Queue, received: Sequence[Received], deadline: Deadline
) -> Drained:
    """Write the records of these messages, in their order within each group."""
    trips = [_opened(message, bucket, deadline) for message in received]
    _hold_back(trips)
    sent = [(trip, record) for trip in trips if not trip.failed for record in _records(trip)]
    outcomes = log.append_all([record for _, record in sent], deadline) if sent else []
    for (trip, _), outcome in zip(sent, outcomes, strict=True):
        trip.outcomes.append(outcome)
    for trip in trips:
        deliveries = trip.message.deliveries
        trip.failed |= not all(_is_dead(error, deliveries) for _, error in trip.failures)
    _hold_back(trips)
    dead = _bury([trip for trip in trips if not trip.failed], dead_letters, deadline)
    _hold_back(trips)
    return Drained(
        failed=[trip.message.id for trip in trips if trip.failed],
        written=sum(not isinstance(outcome, KeylaneError) for outcome in outcomes),
        dead=dead,
        retried=Counter(_why_again(trip) for trip in trips if trip.failed),
    )


def _opened(message: Received, bucket: Bucket | None, deadline: Deadline) -> _Trip:
    try:
        return _Trip(message, parcel=_parcel(message, bucket, deadline))
    except CodecError as error:
        return _Trip(message, fault=_Dead("MALFORMED_MESSAGE", str(error)))
    except _Dead as error:
        return _Trip(message, fault=error)
    except QueueUnavailable as error:
        return _Trip(message, fault=error, failed=True)


def _parcel(message: Received, bucket: Bucket | None, deadline: Deadline) -> Parcel:
    parcel = message_codec.decode(message_codec.from_text(message.body))
    if parcel.left_at is None:
        return parcel
    if bucket is None:
        raise _Dead("OBJECT_NOT_FOUND", "the records are in a bucket, and no bucket is set")
    data = bucket.get(parcel.left_at, deadline)
    if data is None:
        raise _Dead("OBJECT_NOT_FOUND", f"the bucket has no object {parcel.left_at}")
    return message_codec.decode(data)


def _hold_back(trips: Sequence[_Trip]) -> None:
    """After a message that comes again, the later ones of its group do."""
    held: set[str] = set()
    for trip in trips:
        group = trip.message.group
        trip.failed |= group in held
        if trip.failed and group is not None:
            held.add(group)


def _records(trip: _Trip) -> list[NewRecord]:
    """What is written: with id, and with the time at which it was accepted if it has none of its own."""
    parcel = trip.parcel
    if parcel is None:
        return []
    return [
        replace(
            with_id(record, parcel.record_id(number)),
            timestamp_ms=parcel.accepted_ms if record.timestamp_ms is None else record.timestamp_ms,
        )
        for number, record in parcel.records
    ]


def _is_dead(error: KeylaneError, deliveries: int) -> bool:
    """Whether Kafka will never take the record. That it doesn't let us write may be mended meanwhile."""
    if isinstance(error, UnknownTopic | UnknownPartition):
        return deliveries >= CHANCES_OF_UNKNOWN
    if isinstance(error, ProduceFailed):
        return not error.retriable and not error.code.endswith("_AUTHORIZATION_FAILED")
    return isinstance(error, TooLarge)


def _bury(trips: Sequence[_Trip], dead_letters: Queue, deadline: Deadline) -> Counter[str]:
    """Put what is dead of these into the dead-letter queue; a trip fails where that fails."""
    dead = [(trip, _errors(trip)) for trip in trips if _errors(trip)]
    if not dead:
        return Counter()
    fates = dead_letters.send([_dead_letter(trip, errors[0]) for trip, errors in dead], deadline)
    reasons: Counter[str] = Counter()
    for (trip, errors), error in zip(dead, fates, strict=True):
        trip.failed = error is not None
        reasons.update([] if trip.failed else [_reason(each) for each in errors])
    return reasons


def _dead_letter(trip: _Trip, error: KeylaneError) -> Message:
    """The message with those of its records alone that are dead.

    Its id is the queue's, which is another one each time that it is replayed.
    """
    body, attributes = trip.message.body, {REASON: _reason(error), DETAIL: str(error)[:DETAIL_CHARACTERS]}
    if trip.parcel is not None:
        attributes[TOPIC] = trip.parcel.topic
        if len(trip.failures) < len(trip.outcomes):
            records = tuple(trip.parcel.records[place] for place, _ in trip.failures)
            body = message_codec.to_text(message_codec.encode(replace(trip.parcel, records=records)))
    return Message(body, trip.message.group, trip.message.id, attributes)


def _why_again(trip: _Trip) -> str:
    errors = [error for error in _errors(trip) if not _is_dead(error, trip.message.deliveries)]
    return _reason(errors[0]) if errors else HELD_BACK


def _errors(trip: _Trip) -> list[KeylaneError]:
    return [trip.fault] if trip.fault is not None else [error for _, error in trip.failures]


def _reason(error: KeylaneError) -> str:
    """Kafka's name of an error, or ours in its style."""
    if isinstance(error, _Dead | ProduceFailed):
        return error.code
    if isinstance(error, UnknownTopic | UnknownPartition):
        return "UNKNOWN_TOPIC_OR_PARTITION"
    return "MESSAGE_TOO_LARGE" if isinstance(error, TooLarge) else "REQUEST_TIMED_OUT"
