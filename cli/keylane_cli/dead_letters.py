"""A dead-letter queue as its owner sees it: its messages are looked at, and stay unless they are deleted."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from keylane.adapters.aws.client import AwsRefused, QueueUnreachable, client, translate_aws_errors
from keylane.adapters.aws.sqs import BATCH_MESSAGES
from keylane.config.queue import aws_settings
from keylane.drain import drain
from keylane.errors import KeylaneError, QueueUnavailable
from keylane.model.records import NewRecord
from keylane.produce import message_codec
from keylane.state.codec import CodecError
from keylane_client.cli.errors import ExitCode
from keylane_local.errors import StackError

TIMEOUT_MS = 20_000
VISIBILITY_TIMEOUT_S = 120
"""How long a received message stays hidden; those of a run that was killed reappear after that time."""
WAIT_S = 2
"""Long polling asks all of SQS' servers; a queue that returns nothing for this long is empty."""
UNKNOWN = "?"
SQS_ITSELF = "MAX_RECEIVE_COUNT"
"""The reason of messages that SQS moved, which carry none."""


class QueueFailed(StackError):
    """SQS did not do what a command asked for; exit codes are those of the commands that talk to an API."""

    def __init__(self, text: str, exit_code: ExitCode) -> None:
        super().__init__(text)
        self.exit_code = exit_code


@contextmanager
def translate_queue_errors() -> Iterator[None]:
    """Raise QueueFailed, which says what to do, for what SQS and its client raise."""
    try:
        with translate_aws_errors():
            yield
    except AwsRefused as error:
        raise _refused(error) from error
    except QueueUnreachable as error:
        advice = "is the URL right, and may this machine reach it?"
        raise QueueFailed(f"{error}: {advice}", ExitCode.UNREACHABLE) from error
    except QueueUnavailable as error:
        raise QueueFailed(f"{error}: try again later", ExitCode.UNAVAILABLE) from error
    except KeylaneError as error:
        raise StackError(str(error)) from error


def _refused(error: AwsRefused) -> QueueFailed:
    said = f"SQS refused the request: {error.code}"
    if "NonExistentQueue" in error.code or "QueueDoesNotExist" in error.code:
        return QueueFailed(
            f"{said}. Is the URL the stack's output DeadLettersUrl or LogQueueUrl?", ExitCode.NOT_FOUND
        )
    if "Credentials" in error.code or "Token" in error.code:
        return QueueFailed(f"{said}. Log in, or set AWS_PROFILE.", ExitCode.ACCESS_DENIED)
    if "AccessDenied" in error.code:
        advice = "Use a role that may receive, delete and send messages."
        return QueueFailed(f"{said}. {advice}", ExitCode.ACCESS_DENIED)
    return QueueFailed(said, ExitCode.FAILED)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message: why it is here, and its records. `is_superseded`: their keys have newer ones in Kafka.

    `records` is empty if the message is not readable, or if its records are the object `object_name`.
    `handle` names this delivery.
    """

    id: str
    handle: str
    body: str
    group: str | None
    sent_ms: int
    topic: str
    reason: str
    detail: str
    records: tuple[NewRecord, ...]
    object_name: str | None = None
    is_superseded: bool = False

    @property
    def kind(self) -> tuple[str, str]:
        """The topic and the reason, which says so if newer records of the keys were written."""
        return self.topic, f"{self.reason} (superseded)" if self.is_superseded else self.reason

    @property
    def record_count(self) -> int:
        """The number of records; 1 for a batch in the bucket, which has not been looked at."""
        return len(self.records) or (0 if self.object_name is None else 1)


class DeadLetterQueue:
    """The dead-letter queue at `url`. `close` makes all that was received and not deleted visible again."""

    def __init__(self, url: str, environment: Mapping[str, str]) -> None:
        """Raises QueueFailed for settings that the client does not take."""
        self._url = url
        with translate_queue_errors():
            self._sqs: Any = client("sqs", aws_settings(environment, TIMEOUT_MS))
        self._handles: dict[str, str] = {}  # of received messages that are still in the queue

    def count(self) -> int:
        """Return about how many messages there are, those that somebody is looking at included."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        with translate_queue_errors():
            found = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    def receive(self) -> list[DeadLetter]:
        """Return the next messages that were not returned before; an empty list at the end of the queue.

        Of each group of a FIFO queue only ten messages can be seen until some are deleted. A standard queue
        may deliver a message several times: it ends where all that is left has come again.
        """
        repeated = 0
        while letters := self._receive():
            new = [letter for letter in letters.values() if letter.id not in self._handles]
            self._handles |= {letter.id: letter.handle for letter in letters.values()}
            if new:
                return new
            repeated += len(letters)
            if repeated >= len(self._handles):
                break
        return []

    def _receive(self) -> dict[str, DeadLetter]:
        """Return what SQS delivers next, by id."""
        with translate_queue_errors():
            received = self._sqs.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=BATCH_MESSAGES,
                WaitTimeSeconds=WAIT_S,
                VisibilityTimeout=VISIBILITY_TIMEOUT_S,
                AttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
        return {letter.id: letter for letter in map(_parse_letter, received.get("Messages", []))}

    def delete(self, letters: Sequence[DeadLetter]) -> None:
        """Delete messages of one batch. Raises StackError if SQS keeps one of them."""
        entries = [
            {"Id": str(index), "ReceiptHandle": self._handles[letter.id]}
            for index, letter in enumerate(letters)
        ]
        with translate_queue_errors():
            answer = self._sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)
        if answer.get("Failed"):
            raise StackError("SQS did not delete messages that were moved: the next run moves them again")
        for letter in letters:
            del self._handles[letter.id]

    def close(self) -> None:
        """Make the messages that are left visible again, and close the client."""
        try:
            handles = list(self._handles.values())
            for start in range(0, len(handles), BATCH_MESSAGES):
                entries = [
                    {"Id": str(index), "ReceiptHandle": handle, "VisibilityTimeout": 0}
                    for index, handle in enumerate(handles[start : start + BATCH_MESSAGES])
                ]
                with translate_queue_errors():
                    self._sqs.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)
        finally:
            self._sqs.close()


def _parse_letter(message: Mapping[str, Any]) -> DeadLetter:
    reported = {
        name: each.get("StringValue", "") for name, each in message.get("MessageAttributes", {}).items()
    }
    attributes = message.get("Attributes", {})
    topic, object_name = reported.get(drain.TOPIC, UNKNOWN), None
    records: tuple[NewRecord, ...] = ()
    try:
        batch = message_codec.decode(message_codec.from_body(message["Body"]))
        topic, object_name = batch.topic, batch.object_name
        records = tuple(record for _, record in batch.records)
    except CodecError:
        pass
    return DeadLetter(
        id=message["MessageId"],
        handle=message["ReceiptHandle"],
        body=message["Body"],
        group=attributes.get("MessageGroupId"),
        sent_ms=int(attributes.get("SentTimestamp", 0)),
        topic=topic,
        reason=reported.get(drain.REASON, SQS_ITSELF),
        detail=reported.get(drain.DETAIL, ""),
        records=records,
        object_name=object_name,
        is_superseded=drain.SUPERSEDED in reported,
    )
