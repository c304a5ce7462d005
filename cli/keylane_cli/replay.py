"""Move dead letters back into the write-ahead log.

1. Receive a batch of dead letters. 2. Send it to the log, in order. 3. Delete what the log accepted.
A process that dies after step 2 sends the batch again at its next run. A FIFO queue drops such duplicates for
5 minutes, and records keep their ids in any case. Letters that arrive during the run failed again: they stay.

SQS' own StartMessageMoveTask moves every message, reports no reasons, and also moves what arrives meanwhile.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from keylane.adapters.aws.sqs import SqsQueue
from keylane.config.queue import aws_settings
from keylane.config.table import SAFE_MESSAGE_BYTES
from keylane.ports import Clock, Deadline, Message
from keylane_cli.dead_letters import (
    TIMEOUT_MS,
    DeadLetter,
    DeadLetterQueue,
    translate_queue_errors,
)
from keylane_local.errors import BadInput, StackError


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Which dead letters to move: from the queue `source` to `target`, all topics or one.

    `superseded`: also records of whose keys newer ones were written; they turn these keys back.
    """

    source: str
    target: str
    topic: str | None = None
    superseded: bool = False

    def has(self, letter: DeadLetter) -> bool:
        """Whether the letter is to be moved."""
        return self.topic in {None, letter.topic} and (self.superseded or not letter.is_superseded)


@dataclass(slots=True)
class ReplayReport:
    """Messages `moved` and `left`, by topic and reason; records moved."""

    moved: Counter[tuple[str, str]] = field(default_factory=Counter)
    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    records: int = 0


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
    mover = _Mover(request, environment, clock or Clock())
    try:
        mover.run(progress)
    finally:
        mover.close()
    return mover.report


class _Mover:
    def __init__(self, request: ReplayRequest, environment: Mapping[str, str], clock: Clock) -> None:
        self.report = ReplayReport()
        self._request = request
        self._letters = DeadLetterQueue(request.source, environment)
        with translate_queue_errors():
            settings = aws_settings(environment, TIMEOUT_MS)
            self._target = SqsQueue(request.target, SAFE_MESSAGE_BYTES, settings)
        self._clock = clock

    def run(self, progress: Callable[[ReplayReport], None]) -> None:
        started_ms = self._clock.now_ms()
        while batch := self._letters.receive():
            to_move = []
            for letter in batch:
                if letter.sent_ms <= started_ms and self._request.has(letter):
                    to_move.append(letter)
                else:
                    self.report.left[letter.kind] += 1
            self._move(to_move)
            progress(self.report)

    def close(self) -> None:
        """Make the messages that are left visible again, and close the clients."""
        try:
            self._letters.close()
        finally:
            self._target.close()

    def _move(self, letters: Sequence[DeadLetter]) -> None:
        messages = [Message(letter.body, letter.group, letter.id) for letter in letters]
        with translate_queue_errors():
            errors = self._target.send(messages, Deadline.after_ms(TIMEOUT_MS, self._clock))
        accepted = [letter for letter, error in zip(letters, errors, strict=True) if error is None]
        if accepted:
            self._letters.delete(accepted)
        for letter in accepted:
            self.report.moved[letter.kind] += 1
            self.report.records += letter.record_count
        for error in errors:
            if error is not None:
                raise StackError(f"the log rejected a message; the remaining ones stay: {error}") from error
