"""The daemon from which Spark forks its Python workers, with the workers' imports done."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from keylane_spark.engine import session

SCRIPT = f"""
import gc, importlib, json, psutil, sys
importlib.import_module({session.WORKER_DAEMON!r}).load()
loaded, threads = set(sys.modules), psutil.Process().num_threads()
import pandas, pyarrow.pandas_compat, pyspark.worker
import keylane_spark.stream.log_ranges, keylane_spark.stream.openings, keylane_spark.stream.spark_reader
print(json.dumps([threads, gc.get_freeze_count(), sorted(set(sys.modules) - loaded)]))
"""


def test_the_daemon_has_loaded_what_workers_import_and_runs_no_thread_that_a_fork_would_lose():
    # As Spark sets it for its workers: OpenBLAS then has no threads of its own.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    threads, frozen, missing = json.loads(done.stdout)
    assert threads == 1
    assert frozen > 10_000
    assert missing == []
