"""Spark's daemon of Python workers, in the world of `outside`."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.daemon import manager
from tests.torture.outside import CUT_FILE, change, cut_rows_short

from keylane_spark.stream.worker_daemon import load

if __name__ == "__main__":
    load()
    change(os.environ)
    cut_rows_short(Path(os.environ[CUT_FILE]))
    manager()
