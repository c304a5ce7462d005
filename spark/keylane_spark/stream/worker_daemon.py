"""Spark's daemon for Python workers, with what every worker imports already loaded.

The daemon forks a worker for each task that runs at a time. Spark's own daemon imports nothing before that,
so each worker spent 0.5 s of CPU on pyarrow, pandas and the writer. Spark's reason is that a process that
forks must have no other threads: Arrow's allocator is therefore started without its own.
"""

import gc
import importlib
import os

from pyspark import daemon

_LOADED = (
    "pyspark.worker",
    "pandas",  # by Spark's serializers
    "pyarrow.pandas_compat",
    "keylane_spark.stream.log_ranges",
    "keylane_spark.stream.spark_reader",
    "keylane_spark.stream.openings",
    "encodings.idna",  # by the first connection
)


def load() -> None:
    """Import what workers need, and keep it out of their garbage collections."""
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in _LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    load()
    daemon.manager()
