"""How often a query's thread looks for new records: less often while there are none.

Spark's thread asks Kafka for the ends of the log, and if there is nothing new it sleeps for
`spark.sql.streaming.pollingDelay`: 10 ms by default. An idle job asks 70 times a second then, which takes 6 %
of a core of the job and as much of its broker. Spark fixes the delay when a query starts, and a new query
takes longer than any delay that is worth having. So the field of the running query is set, by reflection. It
is private to Spark: where it is missing, the delay stays as it is, and the log says so.
"""

import threading
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from keylane.ports import Clock
from keylane_spark.engine.session import streaming_class

IDLE_AFTER_S = 60.0
"""A query without a batch for this long is idle."""

_CLASS = streaming_class("runtime", "StreamExecution")


class PollingDelay:
    """The delay of one query. Spark's thread calls `note_batch`, another one `relax`.

    `idle_ms`: the delay of an idle query, unless Spark's own is longer.
    """

    def __init__(self, query: StreamingQuery, idle_ms: int, clock: Clock, say: Callable[[str], None]) -> None:
        self._clock = clock
        self._last_batch_s = clock.monotonic_s()
        self._lock = threading.Lock()
        self._is_idle = False
        self._execution = query._jsq.streamingQuery()  # noqa: SLF001 (pyspark has no other way to the JVM's)
        self._field = _field()
        if self._field is None:
            say(f"Spark's polling delay can't be set: {_CLASS} has none. An idle job takes more of its core")
        self._busy_ms: int = self._execution.pollingDelayMs() if self._field is not None else 0
        self._idle_ms = max(idle_ms, self._busy_ms)

    def note_batch(self) -> None:
        """Look often again: records came."""
        with self._lock:
            self._last_batch_s = self._clock.monotonic_s()
            if self._is_idle:
                self._set(self._busy_ms)
                self._is_idle = False

    def relax(self) -> None:
        """Look less often if the query is idle."""
        with self._lock:
            if not self._is_idle and self._clock.monotonic_s() - self._last_batch_s >= IDLE_AFTER_S:
                self._set(self._idle_ms)
                self._is_idle = True

    def _set(self, delay_ms: int) -> None:
        if self._field is not None:
            self._field.setLong(self._execution, delay_ms)


def _field() -> Any | None:
    """The field of Spark's class, writable; None in a version of Spark that has no such field."""
    jvm: Any = SparkSession.active()._jvm  # noqa: SLF001 (the same)
    try:
        field = jvm.java.lang.Class.forName(_CLASS).getDeclaredField("pollingDelayMs")
        field.setAccessible(True)
    except Py4JError:
        return None
    return field
