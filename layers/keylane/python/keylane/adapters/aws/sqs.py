"""The ports `Queue` and `Deliveries` over SQS, standard or FIFO."""

from collections.abc import Mapping, Sequence
from typing import Any

from keylane.adapters.aws.client import AwsRefused, client, translate_aws_errors
from keylane.adapters.aws.settings import AwsSettings
from keylane.errors import KeylaneError, QueueUnavailable, Unconfirmed
from keylane.ports import Deadline, Message

BATCH_MESSAGES = 10
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0


class SqsQueue:
    """One queue; `limit_bytes` bounds a request of several messages, and a single message."""

    def __init__(self, url: str, limit_bytes: int, settings: AwsSettings) -> None:
        self._url = url
        self._is_fifo = url.endswith(".fifo")
        self._limit_bytes = limit_bytes
        self._settings = settings
        self._client: Any = None

    def send(self, messages: Sequence[Message], deadline: Deadline) -> list[KeylaneError | None]:
        """See `ports.Queue`; transient errors are retried until the deadline."""
        sqs = self._connected()
        sending = _Sending(messages, self._limit_bytes, is_fifo=self._is_fifo)
        pause_s = _FIRST_PAUSE_S
        while (batch := sending.next_batch()) and deadline.remaining_s:
            if self._send(sqs, sending, batch):
                pause_s = _FIRST_PAUSE_S
            else:
                deadline.clock.pause_s(min(pause_s, deadline.remaining_s))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return sending.errors

    def postpone(self, pauses_s: Mapping[str, int], deadline: Deadline) -> None:
        """See `ports.Deliveries`; transient errors are retried until the deadline.

        A receipt that has expired is ignored: its message is visible already.
        """
        waiting = [
            {"Id": str(index), "ReceiptHandle": receipt, "VisibilityTimeout": pause_s}
            for index, (receipt, pause_s) in enumerate(pauses_s.items())
        ]
        pause_s, why = _FIRST_PAUSE_S, QueueUnavailable("the queue did not answer in time")
        while waiting:
            if not deadline.remaining_s:
                raise why
            again = batch = waiting[:BATCH_MESSAGES]
            try:
                again = self._postpone(batch)
            except AwsRefused:
                raise
            except QueueUnavailable as error:
                why = error
            waiting = again + waiting[BATCH_MESSAGES:]
            if again:
                deadline.clock.pause_s(min(pause_s, deadline.remaining_s))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def close(self) -> None:
        """Close its connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> Any:
        """The client of AWS, made at the first call."""
        if self._client is None:
            self._client = client("sqs", self._settings)
        return self._client

    def _postpone(self, entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Change the visibility of these messages once; return those that need a retry.

        Raises QueueUnavailable where the call failed.
        """
        with translate_aws_errors():
            response = self._connected().change_message_visibility_batch(
                QueueUrl=self._url, Entries=list(entries)
            )
        refused = response.get("Failed", ())
        transient = {entry["Id"] for entry in refused if not entry.get("SenderFault", False)}
        return [entry for entry in entries if entry["Id"] in transient]

    def _send(self, sqs: Any, sending: "_Sending", batch: Sequence[int]) -> bool:
        """Send these messages once; return whether no message needs a retry."""
        entries = [self._entry(index, sending.messages[index]) for index in batch]
        try:
            with translate_aws_errors():
                response = sqs.send_message_batch(QueueUrl=self._url, Entries=entries)
        except QueueUnavailable as error:
            for index in batch:
                sending.fail(index, error, retry=not isinstance(error, AwsRefused))
            return isinstance(error, AwsRefused)
        for entry in response.get("Successful", ()):
            sending.succeed(int(entry["Id"]))
        refused = response.get("Failed", ())
        for entry in refused:
            is_final = entry.get("SenderFault", False)
            fault = AwsRefused(entry["Code"]) if is_final else QueueUnavailable("the queue did not accept it")
            sending.fail(int(entry["Id"]), fault, retry=not is_final)
        return all(entry.get("SenderFault", False) for entry in refused)

    def _entry(self, index: int, message: Message) -> dict[str, Any]:
        entry: dict[str, Any] = {"Id": str(index), "MessageBody": message.body}
        if message.attributes:
            entry["MessageAttributes"] = {
                name: {"DataType": "String", "StringValue": value}
                for name, value in message.attributes.items()
            }
        if self._is_fifo:
            entry |= {"MessageGroupId": message.group or "none", "MessageDeduplicationId": message.id}
        return entry


class _Sending:
    """The messages of one call, by index: which to send next, and the error of each, None once it is sent."""

    def __init__(self, messages: Sequence[Message], limit_bytes: int, *, is_fifo: bool) -> None:
        self.messages = messages
        self._limit_bytes = limit_bytes
        self._is_fifo = is_fifo
        self._waiting = list(range(len(messages)))
        unanswered = QueueUnavailable("the queue did not answer in time")
        self.errors: list[KeylaneError | None] = [unanswered] * len(messages)

    def next_batch(self) -> list[int]:
        """Return the indexes of the next messages to send together: at most ten, within the size limit.

        It has at most one message of a group: if the first of two were refused, the second would overtake it.
        """
        batch: list[int] = []
        groups: set[str | None] = set()
        size = 0
        for index in self._waiting:
            message = self.messages[index]
            if self._is_fifo and message.group in groups:
                continue
            size += _size(message)
            if batch and (len(batch) == BATCH_MESSAGES or size > self._limit_bytes):
                break
            batch.append(index)
            groups.add(message.group)
        return batch

    def succeed(self, index: int) -> None:
        """The message is in the queue."""
        self.errors[index] = None
        self._waiting.remove(index)

    def fail(self, index: int, error: KeylaneError, *, retry: bool) -> None:
        """The message failed; without a retry the later ones of its group fail, too."""
        if not isinstance(self.errors[index], Unconfirmed):
            self.errors[index] = error
        if retry:
            return
        group = self.messages[index].group if self._is_fifo else None
        given_up = [
            each
            for each in self._waiting
            if each == index or (self._is_fifo and each > index and self.messages[each].group == group)
        ]
        for each in given_up:
            self._waiting.remove(each)
            if each != index:
                self.errors[each] = error


def _size(message: Message) -> int:
    attributes = sum(
        len(name) + len("String") + len(value.encode()) for name, value in message.attributes.items()
    )
    return len(message.body) + attributes
