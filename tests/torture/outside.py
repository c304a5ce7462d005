"""`python -m tests.torture.outside`: the job, in a world that the torture changes while it runs.

The clock of its Python processes is off by what a file says, its connections to Redis go through links, and
the rows of a task end early if a file says so. The job knows nothing of it: all is changed from outside, in
the driver (`main`) and, as Spark's daemon module, in the workers.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import json
import mmap
import os
import signal
import struct
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from tests.torture.links import link_all_clusters

from keylane_spark.log.log_reader import LogRangeReader
from keylane_spark.stream import log_ranges
from keylane_spark.views import view_writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

PORTS = "TORTURE_PORTS"
CLOCK_FILE = "TORTURE_CLOCK_FILE"
CUT_FILE = "TORTURE_CUT_FILE"
DAEMON_MODULE = "tests.torture.outside_daemon"
SHOW_STACKS = signal.SIGUSR1
"""What the job's Python processes answer with the stacks of their threads, in the job's log."""
_FETCH_BYTES = 16 * 1024
_WINDOW_BYTES = 200_000
_OFFSET = struct.Struct("<q")


def set_clock(file: Path, offset_ms: int) -> None:
    """Let the clocks of the processes that look at this file be off by so much, from now on."""
    if not file.exists():
        file.write_bytes(_OFFSET.pack(offset_ms))
        return
    with file.open("r+b") as opened:
        opened.write(_OFFSET.pack(offset_ms))


def change(environment: os._Environ[str]) -> None:
    """Change this process as the environment says."""
    faulthandler.register(SHOW_STACKS)
    link_all_clusters({int(port): proxy for port, proxy in json.loads(environment[PORTS]).items()})
    _follow(Path(environment[CLOCK_FILE]))
    fetch_little()


def _follow(file: Path) -> None:
    with file.open("rb") as opened:
        offset = mmap.mmap(opened.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)
    read_ns, read_s = time.time_ns, time.time

    def offset_ms() -> int:
        return _OFFSET.unpack(offset)[0]

    time.time_ns = lambda: read_ns() + offset_ms() * 1_000_000
    time.time = lambda: read_s() + offset_ms() / 1000


def cut_rows_short(file: Path) -> None:
    """Let the next task after `file` appears see the end of its rows behind the first Arrow batch.

    A task that reads from Kafka itself has one batch, the numbers of its ranges: it sees none. That is what a
    worker sees if Spark closes its connection between two batches, because the query has failed: its rows
    have ended, without an error. What it returns then is lost, as the worker is.
    """
    load, dump = ArrowStreamSerializer.load_stream, ArrowStreamSerializer.dump_stream
    cut = []

    def load_stream(self: ArrowStreamSerializer, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(load(self, stream)):
            if (number or _has_ranges(batch)) and file.exists():
                with contextlib.suppress(FileNotFoundError):
                    file.unlink()
                    cut.append(file)
                    return
            yield batch

    def dump_stream(
        self: ArrowStreamSerializer, iterator: Iterable[pa.RecordBatch], stream: IO[bytes]
    ) -> None:
        def unless_cut() -> Iterator[pa.RecordBatch]:
            for batch in iterator:
                if cut:
                    os._exit(1)
                yield batch
            if cut:
                os._exit(1)

        dump(self, unless_cut(), stream)

    ArrowStreamSerializer.load_stream, ArrowStreamSerializer.dump_stream = load_stream, dump_stream


def _has_ranges(batch: pa.RecordBatch) -> bool:
    (row,) = batch.schema.types
    return [row.field(at).name for at in range(row.num_fields)] == ["id"]


def fetch_little() -> None:
    """Let readers of Kafka's logs need several fetches for a range."""
    log_ranges.LogRangeReader = functools.partial(LogRangeReader, fetch_bytes=_FETCH_BYTES)


def divide_windows() -> None:
    """Let views read and write few bytes at a time, so that windows with large values are divided."""
    view_writer.MAX_BYTES, view_writer.MAX_STORED_BYTES = _WINDOW_BYTES, 2 * _WINDOW_BYTES


if __name__ == "__main__":
    change(os.environ)
    divide_windows()

    from keylane_spark.__main__ import main

    sys.exit(main())
