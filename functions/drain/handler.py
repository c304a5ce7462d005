"""The drain function: writes an SQS batch to Kafka, and returns the ids of messages to deliver again."""

import os
from typing import Any

from keylane.api.http.gateway import deadline_of
from keylane.app import drain
from keylane.drain.sqs_event import parse_messages, render_failures
from keylane.wiring.runtime import Runtime

application = drain.build(Runtime(), os.environ)


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Write one batch; SQS delivers failed messages again (`ReportBatchItemFailures`)."""
    messages = parse_messages(event)
    return render_failures(application.handle(messages, deadline_of(context, application.clock)))
