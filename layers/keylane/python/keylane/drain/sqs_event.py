"""Batches of SQS messages as Lambda's event source mapping gives them, and the answer to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keylane.drain.drain import Received

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.drain.drain import Drained


def messages_of(event: Mapping[str, Any]) -> list[Received]:
    """The messages, in their order. Raises ValueError for what is no such event: all of it comes again."""
    try:
        return [_message(record) for record in event["Records"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("this is no event of an SQS queue") from error


def _message(record: Mapping[str, Any]) -> Received:
    attributes = record.get("attributes") or {}
    return Received(
        id=record["messageId"],
        body=record["body"],
        group=attributes.get("MessageGroupId"),
        deliveries=int(attributes.get("ApproximateReceiveCount", 1)),
    )


def answer_of(drained: Drained) -> dict[str, Any]:
    """What `ReportBatchItemFailures` wants: the messages that are to come again."""
    return {"batchItemFailures": [{"itemIdentifier": each} for each in drained.failed]}
