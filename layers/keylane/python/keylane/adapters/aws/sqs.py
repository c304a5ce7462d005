"""The port `Queue` over SQS, standard or FIFO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keylane.adapters.aws.client import Refused, client, translate_aws_errors
from keylane.errors import KeylaneError, QueueUnavailable, Unconfirmed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.adapters.aws.settings import AwsSettings
    from keylane.ports import Deadline, Message

BATCH_MESSAGES = 10
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0


class SqsQueue:
    """One queue; `limit_bytes` is that of a batch of messages, and of one."""

    def __init__(self, url: str, limit_bytes: int, settings: AwsSettings) -> None:
        self._url = url
        self._is_fifo = url.endswith(".fifo")
        self._limit_bytes = limit_bytes
        self._settings = settings
        self._client: Any = None

    def send(self, messages: Sequence[Message], deadline: Deadline) -> list[KeylaneError | None]:
        """As `Queue.send` has it; what passes is tried again until the deadline."""
        if self._client is None:
            self._client = client("sqs", self._settings)
        sending = _Sending(messages, self._limit_bytes, is_fifo=self._is_fifo)
        pause_s = _FIRST_PAUSE_S
        while (batch := sending.next_batch()) and deadline.remaining_s:
            if self._send(sending, batch):
                pause_s = _FIRST_PAUSE_S
            else:
                deadline.clock.pause_s(min(pause_s, deadline.remaining_s))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return sending.fates()

    def close(self) -> None:
        """Close its connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _send(self, sending: _Sending, batch: Sequence[int]) -> bool:
        """Send these once; give whether all got their fate."""
        entries = [self._entry(place, sending.messages[place]) for place in batch]
        try:
            with translate_aws_errors():
                answer = self._client.send_message_batch(QueueUrl=self._url, Entries=entries)
        except QueueUnavailable as error:
            for place in batch:
                sending.failed(place, error, again=not isinstance(error, Refused))
            return isinstance(error, Refused)
        for entry in answer.get("Successful", ()):
            sending.sent(int(entry["Id"]))
        refused = answer.get("Failed", ())
        for entry in refused:
            is_ours = entry.get("SenderFault", False)
            fault = Refused(entry["Code"]) if is_ours else QueueUnavailable("the queue did not take it")
            sending.failed(int(entry["Id"]), fault, again=not is_ours)
        return not any(not entry.get("SenderFault", False) for entry in refused)

    def _entry(self, place: int, message: Message) -> dict[str, Any]:
        entry: dict[str, Any] = {"Id": str(place), "MessageBody": message.body}
        if message.attributes:
            entry["MessageAttributes"] = {
                name: {"DataType": "String", "StringValue": value}
                for name, value in message.attributes.items()
            }
        if self._is_fifo:
            entry |= {"MessageGroupId": message.group or "none", "MessageDeduplicationId": message.id}
        return entry


class _Sending:
    """Messages of one call, by their places: which are to be sent next, and what became of them."""

    def __init__(self, messages: Sequence[Message], limit_bytes: int, *, is_fifo: bool) -> None:
        self.messages = messages
        self._limit_bytes = limit_bytes
        self._is_fifo = is_fifo
        self._waiting = list(range(len(messages)))
        self._fates: list[KeylaneError | None] = [QueueUnavailable("the queue did not answer in time")] * len(
            messages
        )

    def next_batch(self) -> list[int]:
        """At most ten, in their order, together within the limit; one of a group at a time.

        A message that is refused would otherwise be overtaken by the next one of its group.
        """
        batch: list[int] = []
        groups: set[str | None] = set()
        size = 0
        for place in self._waiting:
            message = self.messages[place]
            if self._is_fifo and message.group in groups:
                continue
            size += _size(message)
            if batch and (len(batch) == BATCH_MESSAGES or size > self._limit_bytes):
                break
            batch.append(place)
            groups.add(message.group)
        return batch

    def sent(self, place: int) -> None:
        """It is in the queue."""
        self._fates[place] = None
        self._waiting.remove(place)

    def failed(self, place: int, error: KeylaneError, *, again: bool) -> None:
        """It failed; where it isn't sent `again`, nor are the later ones of its group."""
        if not isinstance(self._fates[place], Unconfirmed):
            self._fates[place] = error
        if again:
            return
        group = self.messages[place].group if self._is_fifo else None
        given_up = [
            each
            for each in self._waiting
            if each == place or (self._is_fifo and each > place and self.messages[each].group == group)
        ]
        for each in given_up:
            self._waiting.remove(each)
            if each != place:
                self._fates[each] = error

    def fates(self) -> list[KeylaneError | None]:
        """What became of each."""
        return self._fates


def _size(message: Message) -> int:
    attributes = sum(
        len(name) + len("String") + len(value.encode()) for name, value in message.attributes.items()
    )
    return len(message.body) + attributes
