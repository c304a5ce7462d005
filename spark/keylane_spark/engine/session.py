"""The Spark session, set for latency first."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from keylane.errors import EngineEnded, WriterError
from keylane_spark.engine import kafka_options
from keylane_spark.engine.connector_jars import JARS, all_jars, archived

GATEWAY_ERRORS = (Py4JError, OSError)
"""What calls of the JVM raise: its errors, and what is left of the connection where it is gone."""

Refusal: TypeAlias = PySparkException | Py4JJavaError
REFUSALS = (PySparkException, Py4JJavaError)
"""What Spark raises where it does not do what it is asked: see `words_of`."""

_TASKS_PER_CORE = 2
"""On this machine: a task computes most of the time, and each worker costs memory."""
_LEAST_BATCH_RECORDS, TASK_RECORDS = 1_000_000, 250_000
"""A task writes so many records in about a second, beside which the 0.2 s around a batch are little."""
CLASS_PATH, JAVA_OPTIONS = "spark.driver.extraClassPath", "spark.driver.extraJavaOptions"


def streaming_class(package: str, name: str) -> str:
    """The full name of a class of Spark's streaming, which Spark 4.1 has moved into packages of their own."""
    is_moved = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1)
    return f"org.apache.spark.sql.execution.streaming.{f'{package}.' if is_moved else ''}{name}"


LOG_LEVEL = "spark.log.level"
_REPEATED = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    streaming_class("runtime", "MicroBatchExecution"),
)
"""What logs the error of a task or a query, each time: the job meets it too, and says it once a minute."""
QUERY_LOGS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Where PySpark logs an exception of a query, before it raises it: not all that it raises is wrong."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # Bounds what a task holds at once of a batch with large values.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
    # Times without a zone in the values of views are UTC.
    "spark.sql.session.timeZone": "UTC",
    # Of a name that an object has twice the last one counts, as for most JSON parsers. Else it has no fields.
    "spark.sql.variant.allowDuplicateKeys": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    # The checkpoint is on the driver's local disk. Without Hadoop's native library the default manager forks
    # a `chmod` for each file: 60 ms a batch, against 15 with this one.
    "spark.sql.streaming.checkpointFileManagerClass": streaming_class(
        "checkpointing", "FileSystemBasedCheckpointFileManager"
    ),
    # 7 ms a batch for files that nothing ever reads: no query begins at another's checkpoint.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.stopTimeout": "20s",
    # What consumers have fetched is kept for the next batch, even if their query has ended: five minutes by
    # default. A few restarts while much was read filled a driver of 1 GiB.
    "spark.kafka.consumer.fetchedData.cache.timeout": "10s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "5s",
    "spark.kafka.consumer.cache.timeout": "60s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "15s",
    # A query's tasks wait for the slots of its own pool: see `use_pool`.
    "spark.scheduler.mode": "FAIR",
    LOG_LEVEL: "ERROR",
    # An exception has the JVM's own trace: the job prints it, and the JVM does not. See `_REPEATED`.
    "spark.sql.pyspark.jvmStacktrace.enabled": "true",
    "spark.redaction.regex": kafka_options.REDACTED,
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_SETTINGS = {
    # Tasks mostly wait for Kafka and Redis. A small batch of 9 partitions takes 75 ms on 2 cores with one
    # slot a core, and 45 ms with four.
    "spark.master": f"local[{4 * (os.cpu_count() or 1)}]",
    "spark.driver.memory": "1g",
    # The checkpoint's files without Hadoop's checksums, each of which forks one more `chmod`: 10 ms a batch
    # instead of 18.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
"""Used without spark-submit, which has its own."""
LOOPBACK_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Used where no executor is on another machine."""

FAST_COMPILER = "-XX:TieredStopAtLevel=1"
"""Without the JVM's optimizing compiler, which took half of the JVM's time: planning never pays it back."""

ENDS_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError"
"""Any thread may be the one that lacks memory, and what waits for it would stand for ever."""

WORKER_DAEMON = "keylane_spark.stream.worker_daemon"
"""Forks workers with their imports done."""

ENCRYPTED = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled", "spark.ssl.internode.enabled")
"""Any of them encrypts what goes between driver and executors; the last one is EMR Serverless' own."""


def start(jars: Path | None, extra: Mapping[str, object], *, plans_only: bool = False) -> SparkSession:
    """Start a session: on this machine's cores, on `spark.master`, or as spark-submit has configured it.

    `jars`: a folder with the connector's jars; None where the deployment brings them. `extra`: settings of
    Spark that override ours. `plans_only`: no record passes through the JVM. Raises WriterError with Spark's
    reason.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name in QUERY_LOGS:
        PySparkLogger.getLogger(name).disabled = True
    own = {} if is_submitted() else local_settings(jars, extra, plans_only=plans_only)
    if sys.platform == "linux":  # macOS's libraries don't support a fork once they are loaded
        own["spark.python.daemon.module"] = WORKER_DAEMON
    if not plans_only:
        # A StackOverflowError is the value's, and does not end the JVM; one without memory ends itself.
        own["spark.executor.killOnFatalError.depth"] = "0"
    settings: dict[str, object] = SETTINGS | own | dict(extra)
    if jars is not None and CLASS_PATH not in own:
        settings[JARS] = all_jars(jars, str(extra.get(JARS, "")))
    builder = SparkSession.builder.appName("keylane")
    for name, value in settings.items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    handler = signal.getsignal(signal.SIGINT)
    try:
        spark = builder.getOrCreate()
    except REFUSALS as error:
        raise WriterError(f"Spark does not start: {words_of(error)}") from error
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            # PySpark's own cancels the tasks of a batch, and raises KeyboardInterrupt.
            signal.signal(signal.SIGINT, handler)
    if LOG_LEVEL not in extra:
        _silence(spark, _REPEATED)
    return spark


def _silence(spark: SparkSession, loggers: Iterable[str]) -> None:
    log4j: Any = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001 (no name in PySpark)
    for name in loggers:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def use_pool(spark: SparkSession, name: str) -> None:
    """Give the queries that this thread starts from now on a pool of their own.

    Tasks of all pools get slots in turns, so a query's small batch does not wait for another's large one.
    """
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)


def is_submitted() -> bool:
    """Whether spark-submit has started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_readable(spark: SparkSession) -> bool:
    """Whether what goes to executors can be read on its way: to other machines, and not encrypted."""
    conf = spark.sparkContext.getConf()
    is_encrypted = any(str(conf.get(name, "")).lower() == "true" for name in ENCRYPTED)
    return not is_encrypted and not str(conf.get("spark.master", "local")).startswith("local")


def check_running(spark: SparkSession) -> None:
    """Raise EngineEnded where nothing that this process does brings Spark back."""
    try:
        ended = spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 (PySpark has no name for it)
    except GATEWAY_ERRORS as error:
        raise EngineEnded("Spark's JVM does not answer any more: start the job again") from error
    if ended:
        raise EngineEnded("Spark has ended the application (its log says why): start the job again")


def words_of(error: PySparkException | Py4JError) -> str:
    """The first line of what Spark says of an error, with its cause."""
    if not isinstance(error, Py4JJavaError):
        return str(error).strip().partition("\n")[0]
    found, cause = error.java_exception, error.java_exception.getCause()
    words = found.toString() if cause is None else f"{found.toString()}: {cause.toString()}"
    return str(words).partition("\n")[0]


def stop(spark: SparkSession) -> None:
    """Stop the session, if it is still there."""
    with contextlib.suppress(*GATEWAY_ERRORS):
        spark.stop()


def local_settings(jars: Path | None, extra: Mapping[str, object], *, plans_only: bool) -> dict[str, object]:
    """The settings without spark-submit. `extra`, `plans_only`: as for `start`.

    Executors of a cluster have neither the driver's loopback address nor its class path.
    """
    settings: dict[str, object] = dict(LOCAL_SETTINGS)
    # Spark makes a folder for tables, which the job has none of, where the user stands.
    settings["spark.sql.warehouse.dir"] = str(Path(tempfile.gettempdir()) / "spark-warehouse")
    is_cluster = not str(extra.get("spark.master", "local")).startswith("local")
    if not is_cluster:
        settings |= LOOPBACK_SETTINGS
    java_options = [ENDS_WITHOUT_MEMORY, FAST_COMPILER] if plans_only else [ENDS_WITHOUT_MEMORY]
    if not is_cluster and not {JARS, CLASS_PATH} & extra.keys() and (found := archived(jars)):
        settings[CLASS_PATH] = found.class_path
        java_options += found.java_options
    settings[JAVA_OPTIONS] = " ".join(java_options)
    return settings


def task_count(spark: SparkSession) -> int:
    """How many tasks a batch is divided into."""
    context = spark.sparkContext
    if (context.master or "").startswith("local"):
        return _TASKS_PER_CORE * (os.cpu_count() or 1)
    return max(1, context.defaultParallelism)


def batch_records(spark: SparkSession) -> int:
    """The most records of a batch where the config does not say: the more tasks, the more."""
    return max(_LEAST_BATCH_RECORDS, TASK_RECORDS * task_count(spark))


def ticks(spark: SparkSession) -> DataFrame:
    """A stream that has another row at any time: for a query that finds out by itself what to do."""
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
