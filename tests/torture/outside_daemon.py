"""Spark's daemon of Python workers, in the world of `outside`."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.daemon import manager
from tests.torture.outside import CUT_FILE, change, cut_rows_short

if __name__ == "__main__":
    change(os.environ)
    cut_rows_short(Path(os.environ[CUT_FILE]))
    manager()
