"""What the streaming queries of topics and of views have in common: start, one batch at a time, stop."""

from __future__ import annotations

import json
import shutil
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from keylane.errors import KeylaneError, Unavailable, WriterError
from keylane.model.kafka import TopicPartition
from keylane_spark.engine.session import GATEWAY_ERRORS, words_of
from keylane_spark.stream.restarts import print_trace, unexpected

STOP_S = 20.0
"""How long the batch in progress is waited for."""
FAILED_STOP_S = 2.0
"""The same after a failure: the batch is repeated anyway, and it may wait for what is gone."""
LONG_S = 60.0
"""A batch that takes longer is named, and again each time that it has taken twice as long."""


class BatchQuery(ABC):
    """Spark's thread calls `write` for each batch; other threads start, check and stop the query.

    `name`: Spark's name of the query, and its checkpoint's. `title`: its name in sentences.
    """

    def __init__(self, name: str, title: str, checkpoint: Path) -> None:
        self._name = name
        self._title = title
        self._folder = checkpoint.absolute() / name
        # Each query has a folder of its own: with what an earlier one left, Spark would go on at its offsets
        # instead of the lanes'.
        self._checkpoint = self._folder / uuid.uuid4().hex
        self._batch_lock = threading.Lock()
        self._is_stopping = False
        self._is_over = False
        self._failure: KeylaneError | None = None
        self._query: StreamingQuery | None = None
        self._works_since_s: float | None = None
        self._works_on: Callable[[], str] = str
        self._long_s = LONG_S

    @abstractmethod
    def write(self, rows: DataFrame, batch_id: int) -> None:
        """Write one batch."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Print a line to the job's log."""

    def note_work(self, on: Callable[[], str] = str) -> None:
        """Note that the batch in progress has rows, and waits for none. `on`: says what may hold it up."""
        self._works_since_s, self._works_on, self._long_s = time.monotonic(), on, LONG_S

    def abandon(self) -> None:  # noqa: B027 (views have nothing in flight)
        """Forget what a failed batch had in flight."""

    def start_reading(self, rows: DataFrame, every: str | None = None) -> StreamingQuery:
        """Start the query; `every`: the interval of its batches, None: one after the other.

        Raises Unavailable while an earlier query of this name does not end.
        """
        self._end_earlier(rows.sparkSession)
        # Earlier queries' offset logs are never read (batch_ends). The folder's name is ours: the folder that
        # the environment names may hold other things.
        shutil.rmtree(self._folder, ignore_errors=True)
        writer = rows.writeStream.foreachBatch(self._write_batch).queryName(self._name)
        writer = writer.option("checkpointLocation", self._checkpoint.as_uri())
        self._query = (writer.trigger(processingTime=every) if every else writer).start()
        return self._query

    def finish(self, within_s: float) -> bool:
        """Let no batch follow the one in progress; returns whether that one ended within this time."""
        self._is_stopping = True
        if not self._batch_lock.acquire(timeout=within_s):
            return False
        self._is_over = True
        # Released before the query stops: a batch that has just begun must see that all is over.
        self._batch_lock.release()
        return True

    def stop(self, within_s: float = STOP_S) -> bool:
        """Stop after the batch in progress; returns whether that batch ended in time."""
        # Stopping a query interrupts its thread, which does no harm between batches.
        has_ended = self.finish(within_s)
        self._is_over = True
        if self._query is not None:
            try:
                self._query.stop()
            except GATEWAY_ERRORS as error:
                # It did not end in time, or its JVM is gone. What it still writes has an old epoch, or is in
                # the lanes already.
                self.say(f"the query did not stop: {type(error).__name__}")
        return has_ended

    def _end_earlier(self, spark: SparkSession) -> None:
        """Stop what is left of a query that did not end when it was stopped: Spark starts none beside it."""
        for earlier in spark.streams.active:
            if earlier.name == self._name:
                try:
                    earlier.stop()
                except GATEWAY_ERRORS as error:
                    raise Unavailable(f"{self._title}: the one before it does not end") from error

    def check(self) -> None:
        """Raise what broke the query, if anything has."""
        self.raise_failure()
        self._say_if_long()
        if self._query is None:
            return
        try:
            if self._query.isActive:
                return
            broken = self._query.exception()
        except GATEWAY_ERRORS as error:
            raise Unavailable(f"{self._title} can't be asked: {type(error).__name__}") from error
        reason = words_of(broken) if broken else "it ended by itself"
        failure = f"{self._title} failed: {reason}"
        if broken:
            print_trace(broken, failure)
        raise Unavailable(failure)

    def _say_if_long(self) -> None:
        """Name a batch that takes long: an expression or a function may never end on a value."""
        since_s = self._works_since_s
        if since_s is None or (took_s := time.monotonic() - since_s) < self._long_s:
            return
        self._long_s = 2 * took_s
        self.say(f"a batch has taken {took_s:,.0f} s so far{self._works_on()}")

    @property
    def failure(self) -> KeylaneError | None:
        """The first error, if any."""
        return self._failure

    def is_ending(self) -> bool:
        """Whether a batch in progress should not wait for anything."""
        return self._is_stopping or self._failure is not None

    def raise_failure(self) -> None:
        """Raise the first error, if any; may be called after `stop` too."""
        if self._failure is not None:
            raise self._failure

    def fail(self, error: KeylaneError) -> None:
        """Note an error; the first one is kept."""
        self._failure = self._failure or error

    def _write_batch(self, rows: DataFrame, batch_id: int) -> None:
        with self._batch_lock:
            if self._is_over:
                return
            try:
                self.write(rows, batch_id)
            except KeylaneError as error:
                self.abandon()
                self.fail(error)
                raise
            except Exception as error:  # noqa: BLE001 (of Spark or a client: it goes on as another one)
                self.abandon()
                if self._is_over:  # the stop has cancelled it
                    raise Unavailable(f"{self._title} was stopped in the middle of a batch") from None
                self.fail(failure := unexpected(error))
                # Spark matches the text with an expression that recurses for each character: one with the
                # JVM's own trace in it ended the query's thread with a StackOverflowError.
                raise failure from None
            finally:
                self._works_since_s = None


def batch_ends(checkpoint: Path, batch_id: int) -> dict[TopicPartition, int]:
    """The end offset of each partition in a batch, as Spark logs them before the batch runs.

    The rows don't show it: compacted and transactional topics have gaps, and a partition may have no row at
    all. The file `offsets/<batch>` of the checkpoint is text: a version, a line of metadata, then for each
    source a line of JSON, `{"topic": {"partition": end offset}}`.

    Raises Unavailable when the file is missing (a new query writes its own), WriterError when its format is
    another one.
    """
    path = checkpoint / "offsets" / str(batch_id)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Unavailable(f"Spark's offset log of batch {batch_id} is missing: {error}") from error
    try:
        _, _, source = text.splitlines()
        return {
            (topic, int(partition)): int(offset)
            for topic, partitions in json.loads(source).items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError) as error:
        raise WriterError(f"Spark's offset log of batch {batch_id} can't be read: {error}") from error
