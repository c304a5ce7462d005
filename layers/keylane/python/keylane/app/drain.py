"""An SQS batch of the write-ahead log to Kafka; the messages that were not written are delivered again."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from keylane.drain.drain import Drained, QueuedMessage, drain, pauses_s
from keylane.errors import KeylaneError
from keylane.metrics.meter import Meter
from keylane.ports import Clock, Deadline
from keylane.wiring.application import build_meter
from keylane.wiring.drain import DrainParts, build_drain
from keylane.wiring.runtime import Runtime

POSTPONE_MS = 1_000
"""How long it may take to postpone messages; the rest of the margin is for the response."""
_OK = 200
_log = logging.getLogger("keylane")


def build(runtime: Runtime, environment: Mapping[str, str]) -> "Drain":
    """Return what drains batches. Its parts are opened by the first one."""
    meter = build_meter(runtime, environment)
    return Drain(partial(build_drain, runtime, environment, meter), meter, runtime.clock)


class Drain:
    """Writes batches. `open_parts` is called until it returns, as an `Application`'s."""

    def __init__(self, open_parts: Callable[[], DrainParts], meter: Meter, clock: Clock) -> None:
        self.meter = meter
        self.clock = clock
        self._open_parts = open_parts
        self._parts: DrainParts | None = None

    def parts(self) -> DrainParts:
        """Return what the batches are written with. Raises SettingsError, SettingsUnavailable."""
        if self._parts is None:
            self._parts = self._open_parts()
        return self._parts

    def handle(self, received: Sequence[QueuedMessage], deadline: Deadline | None) -> Drained:
        """Write one batch. `deadline`: of the function, None without one. Raises as `parts`."""
        begun_s = time.perf_counter()
        use = self.parts()
        timeout_ms: float = use.settings.timeout_ms
        if deadline is not None:
            timeout_ms = min(timeout_ms, deadline.remaining_s * 1000)
        until = Deadline.after_ms(timeout_ms, use.clock)
        drained = drain(use.log, use.bucket, use.dead_letters, received, until)
        if drained.failed or drained.dead:
            _log.warning(
                "of %d messages %d are delivered again %s; records written: %d, dead: %s",
                *(len(received), len(drained.failed), dict(drained.retried)),
                *(drained.written, dict(drained.dead)),
                extra={"traces": list(drained.traces)} if drained.traces else None,
            )
            _postpone(use, received, drained.failed)
        for metric, counts in (("RetriedMessages", drained.retried), ("DeadLetters", drained.dead)):
            for reason, count in counts.items():
                self.meter.count(metric, count, reason)
        self.meter.request("drain", _OK, (time.perf_counter() - begun_s) * 1000)
        return drained


def _postpone(use: DrainParts, received: Sequence[QueuedMessage], failed: list[str]) -> None:
    """Deliver failed messages again soon at first, and later each time: one of them blocks its group."""
    pauses = pauses_s(received, failed)
    if use.deliveries is None or not pauses:
        return
    try:
        use.deliveries.postpone(pauses, Deadline.after_ms(POSTPONE_MS, use.clock))
    except KeylaneError as error:
        _log.warning("%d messages wait for the queue's own time: %s", len(pauses), error)
