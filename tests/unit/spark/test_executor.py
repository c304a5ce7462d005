"""Processes of executors: the image's command on Kubernetes, and the daemon that forks Python workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from keylane_spark.engine import executor, session

SPARK = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@keylane-job-0.keylane-job:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "4",
    "SPARK_EXECUTOR_MEMORY": "3g",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "keylane-1-exec-3",
    "SPARK_JAVA_OPT_10": "-Dlast=1",
    "SPARK_JAVA_OPT_2": "-Dspaces=a b",
}


def test_an_executor_gets_what_spark_has_set():
    found = executor.command(SPARK | {"JAVA_HOME": "/opt/java"})
    assert found[:5] == ["/opt/java/bin/java", "-Dspaces=a b", "-Dlast=1", "-Xms3g", "-Xmx3g"]
    assert found[5] == "-cp"
    assert found[6].endswith("/pyspark/jars/*")
    assert found[7] == executor.BACKEND
    arguments = dict(zip(found[8::2], found[9::2], strict=True))
    assert arguments == {name: SPARK[variable] for name, variable in executor.ARGUMENTS.items()}


def test_a_class_path_of_the_settings_comes_first():
    found = executor.command(SPARK | {"SPARK_CLASSPATH": "/extra/*"})
    assert found[0] == "java"
    assert found[found.index("-cp") + 1].startswith(f"/extra/*{os.pathsep}")


def test_a_variable_that_spark_has_not_set_is_named():
    with pytest.raises(KeyError, match="SPARK_DRIVER_URL"):
        executor.command({name: value for name, value in SPARK.items() if name != "SPARK_DRIVER_URL"})


def test_the_process_becomes_the_executor(monkeypatch):
    became = []
    monkeypatch.setattr(os, "execvpe", lambda *arguments: became.append(arguments))
    executor.run(SPARK)
    assert became == [("java", executor.command(SPARK), SPARK)]


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
