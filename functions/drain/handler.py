"""The write-ahead log into Kafka: SQS batches in, ids of the messages that are to come again out."""

from __future__ import annotations

import logging
import time
from typing import Any

from keylane.drain.drain import drain
from keylane.drain.sqs_event import answer_of, messages_of
from keylane.ports import Deadline
from keylane.wiring.drain import drain_maker
from keylane.wiring.metrics import function_meter

meter = function_meter()
parts = drain_maker(meter)
MARGIN_MS = 2_000
"""Left of the function's time when the batch must be done."""
OK = 200
_log = logging.getLogger("keylane")


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Write one batch; SQS brings what failed once more (`ReportBatchItemFailures`)."""
    begun_s = time.perf_counter()
    received = messages_of(event)
    use = parts()
    left_ms = context.get_remaining_time_in_millis() - MARGIN_MS if context else use.settings.timeout_ms
    deadline = Deadline.after_ms(min(use.settings.timeout_ms, left_ms), use.clock)
    drained = drain(use.log, use.bucket, use.dead_letters, received, deadline)
    if drained.failed or drained.dead:
        _log.warning(
            "of %d messages %d come again %s; records written: %d, dead: %s",
            *(len(received), len(drained.failed), dict(drained.retried), drained.written, dict(drained.dead)),
        )
    for metric, counts in (("RetriedMessages", drained.retried), ("DeadLetters", drained.dead)):
        for reason, count in counts.items():
            meter.count(metric, count, reason)
    meter.request("drain", OK, (time.perf_counter() - begun_s) * 1000)
    return answer_of(drained)
