"""Spark's daemon of Python workers, in the world of `outside`."""

from __future__ import annotations

import os

from pyspark.daemon import manager
from tests.torture.outside import change

if __name__ == "__main__":
    change(os.environ)
    manager()
