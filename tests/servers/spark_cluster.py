"""A standalone Spark cluster: a master and workers, each a process of its own, as are their executors.

The processes know nothing of this project: their environment is empty, and `python` starts without the
packages of the virtual environment. So executors have what a job ships them, and the libraries that
`site_packages` names.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyspark
from tests.servers.own import READY_WITHIN_S, eventually, guarded
from tests.support.clocked_workers import CLOCK_LINE

from keylane_local.process.ports import HOST, Ports
from keylane_local.process.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DEPLOY = "org.apache.spark.deploy"
EXECUTOR_MEMORY = "512m"
"""Spark accepts no less than 450 MiB."""


class SparkWorker:
    """A worker of one core, and its executors."""

    def __init__(self, program: Program, port: int, folder: Path) -> None:
        """`folder`: where its executors' folders are."""
        self.program = program
        self.port = port
        self.folder = folder

    @property
    def executors(self) -> list[psutil.Process]:
        """The JVMs that run tasks for a job."""
        return [each for each in self._family() if "CoarseGrainedExecutorBackend" in _command(each)]

    @property
    def python_workers(self) -> list[psutil.Process]:
        """The processes in which the job's own code runs; not the daemon that forks them."""
        return [worker for daemon in self.python_daemons for worker in _children(daemon)]

    @property
    def python_daemons(self) -> list[psutil.Process]:
        """The processes that fork them."""
        return [each for executor in self.executors for each in _children(executor)]

    def clock_s(self) -> float:
        """What the machine of an executor shows, in seconds since 1970, as of the start of its Python daemon.

        0: no executor has started one.
        """
        lines = [
            line
            for log in sorted(self.folder.glob("*/*/stderr"), key=lambda each: each.stat().st_mtime)
            for line in log.read_text(errors="replace").splitlines()
        ]
        shown = [line for line in lines if line.startswith(CLOCK_LINE)]
        return float(shown[-1].rpartition(" ")[2]) if shown else 0

    def _family(self) -> list[psutil.Process]:
        process = self.program.process
        return _children(process) if process else []


class SparkCluster:
    """A master and two workers.

    `of_worker`: more environment variables of each, by number. `settings`: of Spark, for all processes and
    for what is submitted with `environment`.
    """

    def __init__(
        self,
        data: Path,
        of_worker: Mapping[int, Mapping[str, str]] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        ports = Ports()
        self.data = data
        self.home = Path(pyspark.__file__).parent
        (data / "conf").mkdir(parents=True)
        defaults = "".join(f"{name} {value}\n" for name, value in (settings or {}).items())
        (data / "conf" / "spark-defaults.conf").write_text(defaults, encoding="utf-8")
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ},
            "SPARK_HOME": str(self.home),
            "SPARK_CONF_DIR": str(data / "conf"),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "128m",
        }
        self._state_port = ports.any()
        port = ports.any()
        self.master = f"spark://{HOST}:{port}"
        """What a job names as `spark.master`."""
        where = ["--host", HOST, "--port", str(port), "--webui-port", str(self._state_port)]
        self._master = self._program("master", f"{_DEPLOY}.master.Master", *where)
        self.workers = [
            self._worker(number, ports.any(), (of_worker or {}).get(number, {})) for number in range(2)
        ]
        self.python = data / "python"
        """An interpreter without the virtual environment's packages."""

    @property
    def site_packages(self) -> str:
        """Where executors find libraries; this project's packages are not there."""
        return str(Path(pa.__file__).parents[1])

    def start(self) -> None:
        """Start what does not run, and wait until the master has all workers."""
        self.python.parent.mkdir(parents=True, exist_ok=True)
        self.python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n', encoding="utf-8")
        self.python.chmod(0o755)
        for program in (self._master, *(worker.program for worker in self.workers)):
            program.start()
        eventually(lambda: self.alive == {worker.port for worker in self.workers}, READY_WITHIN_S)

    def stop(self) -> None:
        """Kill all of its processes: nothing of a test's cluster is kept."""
        for program in (self._master, *(worker.program for worker in self.workers)):
            program.kill()

    @property
    def alive(self) -> set[int]:
        """The ports of the workers that the master counts on."""
        return {each["port"] for each in self._state().get("workers", ()) if each["state"] == "ALIVE"}

    def _state(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):  # its pages come before its documents
            address = f"http://{HOST}:{self._state_port}/json/"
            with urllib.request.urlopen(address, timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        return {}

    def _worker(self, number: int, port: int, environment: Mapping[str, str]) -> SparkWorker:
        name = f"worker-{number}"
        where = ["--host", HOST, "--port", str(port), "--webui-port", "0"]
        room = ["--cores", "1", "--memory", EXECUTOR_MEMORY, "--work-dir", str(self.data / name)]
        main = f"{_DEPLOY}.worker.Worker"
        program = self._program(name, main, *where, *room, self.master, **environment)
        return SparkWorker(program, port, self.data / name)

    def _program(self, name: str, main: str, *arguments: str, **environment: str) -> Program:
        return Program(
            name,
            [self.home / "bin" / "spark-class", main, *arguments],
            pid_file=self.data / "run" / f"{name}.json",
            log=self.data / "logs" / f"{name}.log",
            cwd=Path("/"),
            env=dict.fromkeys(os.environ) | self.environment | environment,
        )


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children()
    return []


def _command(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


@contextlib.contextmanager
def own_spark_cluster(
    data: Path,
    of_worker: Mapping[int, Mapping[str, str]] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkCluster]:
    """Yield a cluster whose workers are ready; all its processes are killed in the end."""
    with guarded(data):
        cluster = SparkCluster(data, of_worker, settings)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
