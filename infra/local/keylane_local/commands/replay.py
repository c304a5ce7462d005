"""`keylane replay`: move dead letters back into the write-ahead log.

1. Receive a batch of dead letters. 2. Send it to the log, in order. 3. Delete what the log accepted.
A process that dies after step 2 sends the batch again at its next run. A FIFO queue drops such duplicates for
5 minutes, and records keep their ids in any case. Letters that arrive during the run failed again: they stay.

SQS' own StartMessageMoveTask moves every message, reports no reasons, and also moves what arrives meanwhile.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from keylane.adapters.aws.client import AwsRefused, client, translate_aws_errors
from keylane.adapters.aws.sqs import BATCH_MESSAGES, SqsQueue
from keylane.config.queue import aws_settings
from keylane.config.table import SAFE_MESSAGE_BYTES
from keylane.drain import drain
from keylane.errors import KeylaneError
from keylane.ports import Clock, Deadline, Message
from keylane.produce import message_codec
from keylane.state.codec import CodecError
from keylane_local.errors import BadInput, StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from keylane.adapters.aws.settings import AwsSettings

TIMEOUT_MS = 20_000
VISIBILITY_TIMEOUT_S = 120
"""How long a received message stays hidden; those of a run that was killed reappear after that time."""
WAIT_S = 2
"""Long polling asks all of SQS' servers; a queue that returns nothing for this long is empty."""
UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Which dead letters to move: from the queue `source` to `target`, all topics or one.

    A dry run moves nothing, and sees only the first ten messages of each group of a FIFO queue.
    """

    source: str
    target: str
    topic: str | None = None
    dry_run: bool = False


@dataclass(slots=True)
class ReplayReport:
    """Messages `moved` (or to be moved, in a dry run) and `left`, by topic and reason; records moved."""

    moved: Counter[tuple[str, str]] = field(default_factory=Counter)
    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    records: int = 0


@dataclass(frozen=True, slots=True)
class _DeadLetter:
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
    request: ReplayRequest,
    environment: Mapping[str, str],
    *,
    progress: Callable[[ReplayReport], None] = lambda _: None,
    clock: Clock | None = None,
) -> ReplayReport:
    """Move dead letters; call `progress` after each batch.

    Raises BadInput if the queues cannot belong together, StackError if SQS fails: earlier batches are moved.
    """
    source, target = request.source, request.target
    if source == target or source.endswith(".fifo") != target.endswith(".fifo"):
        raise BadInput("the two queues must differ, and both be FIFO queues or both standard queues")
    settings = aws_settings(environment, TIMEOUT_MS)
    mover = _Mover(request, settings, clock or Clock())
    try:
        mover.run(progress)
    finally:
        mover.close()
    return mover.report


class _Mover:
    def __init__(self, request: ReplayRequest, settings: AwsSettings, clock: Clock) -> None:
        self.report = ReplayReport()
        self._request = request
        self._target = SqsQueue(request.target, SAFE_MESSAGE_BYTES, settings)
        self._clock = clock
        self._sqs = client("sqs", settings)
        self._handles: dict[str, str] = {}  # of received messages that are still in the queue
        self._left: set[str] = set()

    def run(self, progress: Callable[[ReplayReport], None]) -> None:
        started_ms = self._clock.now_ms()
        while batch := self._receive():
            to_move = []
            for letter in batch:
                is_wanted = letter.sent_ms <= started_ms and self._request.topic in {None, letter.topic}
                if is_wanted and not self._request.dry_run:
                    to_move.append(letter)
                    continue
                self._left.add(letter.id)
                (self.report.moved if is_wanted else self.report.left)[letter.kind] += 1
                self.report.records += letter.records if is_wanted else 0
            self._move(to_move)
            progress(self.report)

    def close(self) -> None:
        """Make the messages that are left visible again, and close the clients."""
        try:
            handles = list(self._handles.values())
            for start in range(0, len(handles), BATCH_MESSAGES):
                entries = [
                    {"Id": str(index), "ReceiptHandle": handle, "VisibilityTimeout": 0}
                    for index, handle in enumerate(handles[start : start + BATCH_MESSAGES])
                ]
                self._sqs.change_message_visibility_batch(QueueUrl=self._request.source, Entries=entries)
        finally:
            self._sqs.close()
            self._target.close()

    def _receive(self) -> list[_DeadLetter]:
        """Return the next letters, without those seen before; an empty list at the end of the queue."""
        received = self._sqs.receive_message(
            QueueUrl=self._request.source,
            MaxNumberOfMessages=BATCH_MESSAGES,
            WaitTimeSeconds=WAIT_S,
            VisibilityTimeout=VISIBILITY_TIMEOUT_S,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        letters = [_parse_letter(message) for message in received.get("Messages", [])]
        self._handles |= {letter.id: letter.handle for letter in letters}
        return [letter for letter in letters if letter.id not in self._left]

    def _move(self, letters: Sequence[_DeadLetter]) -> None:
        messages = [Message(letter.body, letter.group, letter.id) for letter in letters]
        errors = self._target.send(messages, Deadline.after_ms(TIMEOUT_MS, self._clock))
        accepted = [letter for letter, error in zip(letters, errors, strict=True) if error is None]
        if accepted:
            entries = [
                {"Id": str(index), "ReceiptHandle": letter.handle} for index, letter in enumerate(accepted)
            ]
            answer = self._sqs.delete_message_batch(QueueUrl=self._request.source, Entries=entries)
            if answer.get("Failed"):
                raise StackError("SQS did not delete messages that were moved: the next run moves them again")
        for letter in accepted:
            del self._handles[letter.id]
            self.report.moved[letter.kind] += 1
            self.report.records += letter.records
        for error in errors:
            if error is not None:
                raise StackError(f"the log rejected a message; the remaining ones stay: {error}") from error


def _parse_letter(message: Mapping[str, Any]) -> _DeadLetter:
    reported = {
        name: each.get("StringValue", "") for name, each in message.get("MessageAttributes", {}).items()
    }
    attributes = message.get("Attributes", {})
    topic, records = reported.get(drain.TOPIC, UNKNOWN), 0
    try:
        batch = message_codec.decode(message_codec.from_body(message["Body"]))
        topic, records = batch.topic, len(batch.records) or 1
    except CodecError:
        pass
    return _DeadLetter(
        id=message["MessageId"],
        handle=message["ReceiptHandle"],
        body=message["Body"],
        group=attributes.get("MessageGroupId"),
        sent_ms=int(attributes.get("SentTimestamp", 0)),
        topic=topic,
        # Messages that SQS itself moved carry no reason.
        reason=reported.get(drain.REASON, "MAX_RECEIVE_COUNT"),
        records=records,
    )


def print_report(report: ReplayReport, *, dry_run: bool) -> None:
    """Print the counts by topic and reason, and the totals."""
    verb = "would move" if dry_run else "moved"
    for label, counts in ((verb, report.moved), ("left", report.left)):
        for (topic, reason), count in sorted(counts.items()):
            click.echo(f"{label:<10}  {count:>6} messages  topic {topic}  {reason}")
    moved, left = sum(report.moved.values()), sum(report.left.values())
    click.echo(f"{verb} {moved} messages with {report.records} records; {left} are left")


def _print_progress(report: ReplayReport) -> None:
    click.echo(f"\r{sum(report.moved.values())} messages", nl=False, err=True)


def run(request: ReplayRequest, environment: Mapping[str, str]) -> None:
    """Replay, and print progress and report. Raises StackError."""
    try:
        with translate_aws_errors():
            report = replay(request, environment, progress=_print_progress)
    except AwsRefused as error:
        raise StackError(f"SQS refused the request: {error.code}") from error
    except KeylaneError as error:
        raise StackError(str(error)) from error
    click.echo(err=True)
    print_report(report, dry_run=request.dry_run)
