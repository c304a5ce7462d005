"""Dead letters back into the write-ahead log: `keylane replay`.

1. A batch is received, 2. sent to the log in its order, 3. what was taken is deleted from the dead letters.
Who is killed after 2 sends the batch once more next time: a FIFO queue drops that within 5 minutes, and
records keep their ids in any case. What comes back while it runs (it failed again) is left alone.

SQS' own StartMessageMoveTask moves all or nothing, tells nothing of it, and goes on moving what comes back.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from keylane.adapters.aws.client import Refused, client, translate_aws_errors
from keylane.adapters.aws.sqs import BATCH_MESSAGES, SqsQueue
from keylane.config.queue import SAFE_LIMIT, aws_settings
from keylane.drain import drain
from keylane.errors import KeylaneError
from keylane.ports import Clock, Deadline, Message
from keylane.produce import message_codec
from keylane.state.codec import CodecError
from keylane_local.errors import BadRequest, StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from keylane.adapters.aws.settings import AwsSettings

TIMEOUT_MS = 20_000
HELD_S = 120
"""So long nobody else sees a message that was received. One that a killed run had comes back after that."""
WAIT_S = 2
"""A queue that gives nothing in so long has nothing: it asks all its servers then."""
UNKNOWN = "?"


@dataclass(slots=True)
class Replayed:
    """What was done. Counts of messages by topic and reason: `moved` to the log (or would be), and `left`."""

    moved: Counter[tuple[str, str]] = field(default_factory=Counter)
    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    records: int = 0


@dataclass(frozen=True, slots=True)
class _Letter:
    id: str
    handle: str
    body: str
    group: str | None
    sent_ms: int
    topic: str
    reason: str
    records: int

    @property
    def kind(self) -> tuple[str, str]:
        return self.topic, self.reason


def replay(
    source: str,
    target: str,
    environment: Mapping[str, str],
    *,
    topic: str | None = None,
    dry_run: bool = False,
    progress: Callable[[Replayed], None] = lambda _: None,
    clock: Clock | None = None,
) -> Replayed:
    """Move dead letters from one queue to another, those of one topic where it is named.

    With `dry_run` nothing is moved; of each group of a FIFO queue only its first ten are seen then.
    Raises StackError where SQS does not do as asked: what was moved by then is moved.
    """
    if source == target or source.endswith(".fifo") != target.endswith(".fifo"):
        raise BadRequest("two different queues are needed, both FIFO queues or both not")
    settings = aws_settings(environment, TIMEOUT_MS)
    mover = _Mover(source, SqsQueue(target, SAFE_LIMIT, settings), settings, clock or Clock())
    try:
        mover.run(topic, dry_run=dry_run, progress=progress)
    finally:
        mover.close()
    return mover.done


class _Mover:
    def __init__(self, source: str, target: SqsQueue, settings: AwsSettings, clock: Clock) -> None:
        self.done = Replayed()
        self._source = source
        self._target = target
        self._clock = clock
        self._sqs = client("sqs", settings)
        self._held: dict[str, str] = {}
        self._left: set[str] = set()

    def run(self, topic: str | None, *, dry_run: bool, progress: Callable[[Replayed], None]) -> None:
        begun_ms = self._clock.now_ms()
        while batch := self._receive():
            wanted = []
            for letter in batch:
                is_wanted = letter.sent_ms <= begun_ms and topic in {None, letter.topic}
                if is_wanted and not dry_run:
                    wanted.append(letter)
                    continue
                self._left.add(letter.id)
                (self.done.moved if is_wanted else self.done.left)[letter.kind] += 1
                self.done.records += letter.records if is_wanted else 0
            self._move(wanted)
            progress(self.done)

    def close(self) -> None:
        """Give back what is still held, and close the clients."""
        try:
            handles = list(self._held.values())
            for place in range(0, len(handles), BATCH_MESSAGES):
                entries = [
                    {"Id": str(number), "ReceiptHandle": handle, "VisibilityTimeout": 0}
                    for number, handle in enumerate(handles[place : place + BATCH_MESSAGES])
                ]
                self._sqs.change_message_visibility_batch(QueueUrl=self._source, Entries=entries)
        finally:
            self._sqs.close()
            self._target.close()

    def _receive(self) -> list[_Letter]:
        """Those that were not seen before; none at the end."""
        answer = self._sqs.receive_message(
            QueueUrl=self._source,
            MaxNumberOfMessages=BATCH_MESSAGES,
            WaitTimeSeconds=WAIT_S,
            VisibilityTimeout=HELD_S,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        letters = [_letter(message) for message in answer.get("Messages", [])]
        self._held |= {letter.id: letter.handle for letter in letters}
        return [letter for letter in letters if letter.id not in self._left]

    def _move(self, letters: Sequence[_Letter]) -> None:
        messages = [Message(letter.body, letter.group, letter.id) for letter in letters]
        fates = self._target.send(messages, Deadline.after_ms(TIMEOUT_MS, self._clock))
        taken = [letter for letter, error in zip(letters, fates, strict=True) if error is None]
        if taken:
            entries = [
                {"Id": str(place), "ReceiptHandle": letter.handle} for place, letter in enumerate(taken)
            ]
            answer = self._sqs.delete_message_batch(QueueUrl=self._source, Entries=entries)
            if answer.get("Failed"):
                raise StackError("SQS did not delete what was moved: it will be moved once more")
        for letter in taken:
            del self._held[letter.id]
            self.done.moved[letter.kind] += 1
            self.done.records += letter.records
        for error in fates:
            if error is not None:
                raise StackError(f"the log did not take a message, and the rest stays: {error}") from error


def _letter(message: Mapping[str, Any]) -> _Letter:
    told = {name: each.get("StringValue", "") for name, each in message.get("MessageAttributes", {}).items()}
    attributes = message.get("Attributes", {})
    topic, records = told.get(drain.TOPIC, UNKNOWN), 0
    try:
        parcel = message_codec.decode(message_codec.from_text(message["Body"]))
        topic, records = parcel.topic, len(parcel.records) or 1
    except CodecError:
        pass
    return _Letter(
        id=message["MessageId"],
        handle=message["ReceiptHandle"],
        body=message["Body"],
        group=attributes.get("MessageGroupId"),
        sent_ms=int(attributes.get("SentTimestamp", 0)),
        topic=topic,
        # What SQS itself moved there says no more.
        reason=told.get(drain.REASON, "MAX_RECEIVE_COUNT"),
        records=records,
    )


def show(done: Replayed, *, dry_run: bool) -> None:
    """Print what was done."""
    verb = "would move" if dry_run else "moved"
    for what, counts in ((verb, done.moved), ("left", done.left)):
        for (topic, reason), count in sorted(counts.items()):
            click.echo(f"{what:<10}  {count:>6} messages  topic {topic}  {reason}")
    total = sum(done.moved.values())
    click.echo(f"{verb} {total} messages with {done.records} records, {sum(done.left.values())} are left")


def run(
    source: str, target: str, environment: Mapping[str, str], topic: str | None, *, dry_run: bool
) -> None:
    """Do it, and print as it goes on. Raises StackError."""

    def progress(done: Replayed) -> None:
        click.echo(f"\r{sum(done.moved.values())} messages", nl=False, err=True)

    try:
        with translate_aws_errors():
            done = replay(source, target, environment, topic=topic, dry_run=dry_run, progress=progress)
    except Refused as error:
        raise StackError(f"SQS refused the request: {error.code}") from error
    except KeylaneError as error:
        raise StackError(str(error)) from error
    click.echo(err=True)
    show(done, dry_run=dry_run)
