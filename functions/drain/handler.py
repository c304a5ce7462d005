"""The drain function: writes an SQS batch to Kafka, and returns the ids of messages to deliver again."""

from __future__ import annotations

import logging
import time
from functools import cache
from typing import Any

from keylane.drain.drain import QueuedMessage, drain, pauses_s
from keylane.drain.sqs_event import parse_messages, render_failures
from keylane.errors import KeylaneError
from keylane.ports import Deadline
from keylane.wiring.drain import DrainParts, build_drain
from keylane.wiring.metrics import build_meter

meter = build_meter()


@cache
def parts() -> DrainParts:
    """Build what the function works with, at its first request."""
    return build_drain(meter)


MARGIN_MS = 2_000
"""The batch must be done this long before the function times out."""
OK = 200
_log = logging.getLogger("keylane")


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Write one batch; SQS delivers failed messages again (`ReportBatchItemFailures`)."""
    begun_s = time.perf_counter()
    received = parse_messages(event)
    use = parts()
    left_ms = context.get_remaining_time_in_millis() - MARGIN_MS if context else use.settings.timeout_ms
    deadline = Deadline.after_ms(min(use.settings.timeout_ms, left_ms), use.clock)
    drained = drain(use.log, use.bucket, use.dead_letters, received, deadline)
    if drained.failed or drained.dead:
        _log.warning(
            "of %d messages %d are delivered again %s; records written: %d, dead: %s",
            *(len(received), len(drained.failed), dict(drained.retried), drained.written, dict(drained.dead)),
            extra={"traces": list(drained.traces)} if drained.traces else None,
        )
        _postpone(use, received, drained.failed)
    for metric, counts in (("RetriedMessages", drained.retried), ("DeadLetters", drained.dead)):
        for reason, count in counts.items():
            meter.count(metric, count, reason)
    meter.request("drain", OK, (time.perf_counter() - begun_s) * 1000)
    return render_failures(drained)


def _postpone(use: DrainParts, received: list[QueuedMessage], failed: list[str]) -> None:
    """Deliver failed messages again soon at first, and later each time: one of them blocks its group."""
    pauses = pauses_s(received, failed)
    if use.deliveries is None or not pauses:
        return
    try:
        use.deliveries.postpone(pauses, Deadline.after_ms(MARGIN_MS / 2, use.clock))
    except KeylaneError as error:
        _log.warning("%d messages wait for the queue's own time: %s", len(pauses), error)
