"""The SQS batches that Lambda's event source mapping delivers, and the response to one."""

from collections.abc import Mapping
from typing import Any

from keylane.drain.drain import Drained, QueuedMessage


def parse_messages(event: Mapping[str, Any]) -> list[QueuedMessage]:
    """The messages, in order. Raises ValueError for any other event: SQS delivers the whole batch again."""
    try:
        return [_parse_message(record) for record in event["Records"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("this is not an event of an SQS queue") from error


def _parse_message(record: Mapping[str, Any]) -> QueuedMessage:
    attributes = record.get("attributes") or {}
    return QueuedMessage(
        id=record["messageId"],
        body=record["body"],
        group=attributes.get("MessageGroupId"),
        deliveries=int(attributes.get("ApproximateReceiveCount", 1)),
        receipt=record.get("receiptHandle") or "",
    )


def render_failures(drained: Drained) -> dict[str, Any]:
    """The response of `ReportBatchItemFailures`: the messages to deliver again."""
    return {"batchItemFailures": [{"itemIdentifier": each} for each in drained.failed]}
