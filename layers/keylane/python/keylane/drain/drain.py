"""Write the messages of the write-ahead log to Kafka; those that were not written are delivered again.

1. All records of the batch are handed to Kafka at once, in the order of their messages.
2. A message leaves the queue once each of its records is written, or is in the dead-letter queue.
3. If Kafka did not accept a record but may accept it later, its message is delivered again, and so are the
   later messages of its order group, even written ones: the newest record is then written last again.
4. Records that Kafka will never accept go to the dead-letter queue with the reason, and hold up nothing. So
   do those of an unordered queue that a newer record of their key has overtaken: it is not written again.

So each record is written at least once. It is written again if its message is delivered again: its id, in
the header `keylane-id`, stays the same.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from keylane.errors import (
    KeylaneError,
    ProduceFailed,
    QueueUnavailable,
    Superseded,
    TooLarge,
    UnknownPartition,
    UnknownTopic,
)
from keylane.model.records import TRACEPARENT, NewRecord
from keylane.ports import AppendResult, Bucket, Deadline, Log, Message, Queue
from keylane.produce import message_codec
from keylane.produce.enqueue import with_id
from keylane.produce.message_codec import MessageBatch
from keylane.state.codec import CodecError

DELIVERIES_OF_UNKNOWN = 8
"""After this many deliveries (four minutes) an unknown topic or partition is an error; it may be new."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2, 360
"""The pause before a message is delivered again doubles with each delivery."""
REASON, DETAIL, TOPIC = "keylane-reason", "keylane-detail", "keylane-topic"
"""Attributes of a dead letter: the error's name, a sentence, and the topic if it is known."""
SUPERSEDED = "keylane-superseded"
"""An attribute of a dead letter whose keys have newer records in Kafka: moved back, it turns them back."""
DETAIL_CHARACTERS = 400
TRACES_LIMIT = 10
HELD_BACK = "HELD_BACK"
"""The reason of a message without failures: an earlier one of its group is delivered again."""


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message as the queue delivers it; `deliveries` includes this one. `receipt` names this delivery."""

    id: str
    body: str
    group: str | None = None
    deliveries: int = 1
    receipt: str = ""


@dataclass(frozen=True, slots=True)
class Drained:
    """The result of a batch: ids of the messages to deliver again, and the number of written records.

    `dead`: dead records by reason. `retried`: messages to deliver again, by reason. `traces`: those of
    records that were not written, a few of them.
    """

    failed: list[str]
    written: int
    dead: Mapping[str, int]
    retried: Mapping[str, int]
    traces: Sequence[str] = ()


class _Unreadable(KeylaneError):
    """A message that can never be read; `code` is the reason."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


@dataclass(slots=True)
class _MessageState:
    """A message, its batch (or why it has none), and the results of its records.

    `failed`: the message is to be delivered again.
    """

    message: QueuedMessage
    batch: MessageBatch | None = None
    fault: KeylaneError | None = None
    results: list[AppendResult] = field(default_factory=list)
    failed: bool = False

    @property
    def failures(self) -> list[tuple[int, KeylaneError]]:
        """Indices of the records that were not written, with their errors."""
        return [(index, each) for index, each in enumerate(self.results) if isinstance(each, KeylaneError)]

    @property
    def errors(self) -> list[KeylaneError]:
        """Why the message can't be read, or why its records were not written."""
        return [self.fault] if self.fault is not None else [error for _, error in self.failures]


def drain(
    log: Log,
    bucket: Bucket | None,
    dead_letters: Queue,
    received: Sequence[QueuedMessage],
    deadline: Deadline,
) -> Drained:
    """Write the records of these messages, in order within each group."""
    states = [_open(message, bucket, deadline) for message in received]
    _hold_back(states)
    sent = [(state, record) for state in states if not state.failed for record in _records(state)]
    results = log.append_all([record for _, record in sent], deadline) if sent else []
    for (state, _), result in zip(sent, results, strict=True):
        state.results.append(result)
    for state in states:
        state.failed |= not all(_is_permanent(error, state.message) for _, error in state.failures)
    _hold_back(states)
    dead = _send_dead_letters([state for state in states if not state.failed], dead_letters, deadline)
    _hold_back(states)
    return Drained(
        failed=[state.message.id for state in states if state.failed],
        written=sum(not isinstance(result, KeylaneError) for result in results),
        dead=dead,
        retried=Counter(_retry_reason(state) for state in states if state.failed),
        traces=_traces(states),
    )


def _traces(states: Sequence[_MessageState]) -> tuple[str, ...]:
    """The values of `traceparent` of records that were not written, each one once, at most TRACES_LIMIT."""
    found: dict[str, None] = {}
    for state in states:
        records = state.batch.records if state.batch else ()
        for index, _ in state.failures:
            _, record = records[index]
            traces = (value or b"" for name, value in record.headers if name == TRACEPARENT)
            found |= {value.decode(errors="replace"): None for value in traces}
    return tuple(found)[:TRACES_LIMIT]


def pauses_s(received: Sequence[QueuedMessage], failed: Sequence[str]) -> dict[str, int]:
    """How long each failed message waits until it is delivered again, in seconds, by its receipt.

    All messages of a group wait as long as its first one, so that they become visible in their order.
    """
    found: dict[str, int] = {}
    of_group: dict[str, int] = {}
    for message in received:
        if message.id in failed and message.receipt:
            own = min(FIRST_PAUSE_S << min(message.deliveries - 1, 10), LONGEST_PAUSE_S)
            found[message.receipt] = own if message.group is None else of_group.setdefault(message.group, own)
    return found


def _open(message: QueuedMessage, bucket: Bucket | None, deadline: Deadline) -> _MessageState:
    try:
        return _MessageState(message, batch=_read_batch(message, bucket, deadline))
    except CodecError as error:
        return _MessageState(message, fault=_Unreadable("MALFORMED_MESSAGE", str(error)))
    except _Unreadable as error:
        return _MessageState(message, fault=error)
    except QueueUnavailable as error:
        return _MessageState(message, fault=error, failed=True)


def _read_batch(message: QueuedMessage, bucket: Bucket | None, deadline: Deadline) -> MessageBatch:
    batch = message_codec.decode(message_codec.from_body(message.body))
    if batch.object_name is None:
        return batch
    if bucket is None:
        raise _Unreadable("OBJECT_NOT_FOUND", "the records are in a bucket, and no bucket is configured")
    data = bucket.get(batch.object_name, deadline)
    if data is None:
        raise _Unreadable("OBJECT_NOT_FOUND", f"the bucket has no object {batch.object_name}")
    return message_codec.decode(data)


def _hold_back(states: Sequence[_MessageState]) -> None:
    """After a message that is delivered again, so are the later ones of its group."""
    held: set[str] = set()
    for state in states:
        group = state.message.group
        state.failed |= group in held
        if state.failed and group is not None:
            held.add(group)


def _records(state: _MessageState) -> list[NewRecord]:
    """The records to write: with their ids, and the time of acceptance where they have no timestamp."""
    batch = state.batch
    if batch is None:
        return []
    return [
        replace(
            with_id(record, batch.record_id(number)),
            timestamp_ms=batch.accepted_ms if record.timestamp_ms is None else record.timestamp_ms,
        )
        for number, record in batch.records
    ]


def _is_permanent(error: KeylaneError, message: QueuedMessage) -> bool:
    """Whether Kafka will never accept the record, or must not. A missing permission may be granted later."""
    if isinstance(error, Superseded):
        return message.group is None or _is_permanent(error.reason, message)
    if isinstance(error, UnknownTopic | UnknownPartition):
        return message.deliveries >= DELIVERIES_OF_UNKNOWN
    if isinstance(error, ProduceFailed):
        return not error.retriable and not error.code.endswith("_AUTHORIZATION_FAILED")
    return isinstance(error, TooLarge)


def _send_dead_letters(
    states: Sequence[_MessageState], dead_letters: Queue, deadline: Deadline
) -> Counter[str]:
    """Send dead records to the dead-letter queue, counted by reason; where that fails, the message fails."""
    dead = [(state, letter) for state in states if state.errors for letter in _dead_letters(state)]
    if not dead:
        return Counter()
    errors = dead_letters.send([letter for _, letter in dead], deadline)
    for (state, _), error in zip(dead, errors, strict=True):
        state.failed |= error is not None
    return Counter(_reason(error) for state in states if not state.failed for error in state.errors)


def _dead_letters(state: _MessageState) -> list[Message]:
    """The message reduced to its dead records; those that are superseded have a letter of their own.

    A letter has the queue's id, a new one with each replay.
    """
    if state.batch is None or not state.results:
        return [_dead_letter(state, state.errors[0], ())]
    parts: dict[bool, list[tuple[int, KeylaneError]]] = {}
    for index, error in state.failures:
        parts.setdefault(isinstance(error, Superseded), []).append((index, error))
    return [
        _dead_letter(state, failures[0][1], [index for index, _ in failures])
        for _, failures in sorted(parts.items())
    ]


def _dead_letter(state: _MessageState, error: KeylaneError, indices: Sequence[int]) -> Message:
    message = state.message
    body, attributes = message.body, {REASON: _reason(error), DETAIL: str(error)[:DETAIL_CHARACTERS]}
    message_id = message.id
    if state.batch is not None:
        attributes[TOPIC] = state.batch.topic
        if len(indices) < len(state.results):
            records = tuple(state.batch.records[index] for index in indices)
            body = message_codec.to_body(message_codec.encode(replace(state.batch, records=records)))
            message_id += "-superseded" if isinstance(error, Superseded) else ""
    if isinstance(error, Superseded):
        attributes[SUPERSEDED] = "true"
    return Message(body, message.group, message_id, attributes)


def _retry_reason(state: _MessageState) -> str:
    errors = [error for error in state.errors if not _is_permanent(error, state.message)]
    return _reason(errors[0]) if errors else HELD_BACK


def _reason(error: KeylaneError) -> str:
    """Kafka's name of an error, or Keylane's in the same style."""
    if isinstance(error, Superseded):
        return _reason(error.reason)
    if isinstance(error, _Unreadable | ProduceFailed):
        return error.code
    if isinstance(error, UnknownTopic | UnknownPartition):
        return "UNKNOWN_TOPIC_OR_PARTITION"
    return "MESSAGE_TOO_LARGE" if isinstance(error, TooLarge) else "REQUEST_TIMED_OUT"
