"""A stop by SIGTERM under spark-submit, whose JVM gets the signal: this process is its child and gets none.

The JVM runs its hooks then, and Spark's own ends the context under the batch that runs. Hadoop's manager runs
hooks in the order of their priorities, so one with a higher priority than Spark's ends the job first.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from keylane_spark.engine.session import GATEWAY_ERRORS, is_submitted

_PRIORITY = 100
"""Spark's is 40: `FileSystem.SHUTDOWN_HOOK_PRIORITY` and 30."""
_TIMEOUT_S = 60
"""Then the JVM goes on without us. Hadoop's default is 30 s, and a query alone may take 20 to stop."""


class StopHook:
    """Sets `stops` when the JVM ends, and keeps it until `job_ended` is called. The JVM calls `run`."""

    class Java:  # noqa: D106 (py4j reads it)
        implements = ("java.lang.Runnable",)

    def __init__(self, *stops: threading.Event) -> None:
        self._stops = stops
        self._called, self._ended, self._returns = threading.Event(), threading.Event(), threading.Event()
        self._manager: Any = None
        self._hook: Any = None

    def register(self, spark: SparkSession) -> None:
        """Register it with the session's JVM, if that gets the signals: under spark-submit."""
        if not is_submitted():
            return
        context: Any = spark.sparkContext
        begin: Any = ensure_callback_server_started  # without types
        begin(context._gateway)  # noqa: SLF001 (PySpark does the same for `foreachBatch`)
        java = context._jvm  # noqa: SLF001 (the same)
        # py4j makes a new proxy of this object at each call: the thread is what can be removed again.
        self._hook = java.java.lang.Thread(self)
        self._manager = java.org.apache.hadoop.util.ShutdownHookManager.get()
        seconds = java.java.util.concurrent.TimeUnit.SECONDS
        self._manager.addShutdownHook(self._hook, _PRIORITY, _TIMEOUT_S, seconds)

    def run(self) -> None:
        """Stop the job, and wait until it has said so."""
        self._called.set()
        for stop in self._stops:
            stop.set()
        self._ended.wait(_TIMEOUT_S)
        self._returns.set()

    def job_ended(self) -> None:
        """Let the JVM go on; if it does not end, it has no hook any more."""
        self._ended.set()
        if self._called.is_set():
            self._returns.wait(_TIMEOUT_S)  # a call that this process leaves open is a stack trace in the log
        elif self._manager is not None:
            with contextlib.suppress(*GATEWAY_ERRORS):
                self._manager.removeShutdownHook(self._hook)
