"""The parts that are Python programs of this project: the Spark job, and the HTTP front."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from keylane_local.process.ports import HOST
from keylane_local.process.processes import Program
from keylane_local.tools import find_java

if TYPE_CHECKING:
    from collections.abc import Mapping

READY = "keylane: ready"
JOB_START_TIMEOUT_S = 120.0
FRONT_START_TIMEOUT_S = 30.0


class SparkJob:
    """The job that writes the topics' state; graceful at SIGTERM."""

    name = "job"

    def __init__(
        self, home: Path, *, run: Path, log: Path, config: Path, environment: Mapping[str, str]
    ) -> None:
        """Place it: `home` is its working folder, `environment` has the addresses (see the stack)."""
        self.home = home
        self.log = log
        variables = dict(environment)
        if java := find_java():
            # Spark would take JAVA_HOME's Java, however old, before that of PATH.
            variables["JAVA_HOME"] = str(Path(java).resolve().parents[1])
        self.program = Program(
            self.name,
            [sys.executable, "-u", "-m", "keylane_spark", "--config", config.absolute()],
            pid_file=run / "job.json",
            log=log,
            cwd=home,
            env=variables,
            stop_timeout_s=40,
        )

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.program.running

    def start(self) -> None:
        """Start it, unless it runs."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.program.start()

    def wait_ready(self, timeout_s: float = JOB_START_TIMEOUT_S) -> None:
        """Wait until it has taken its epoch and its query runs; raise PartFailed otherwise."""
        self.program.wait_until(lambda: self.program.said(READY), timeout_s)

    def stop(self) -> None:
        """Let it end its batch and leave."""
        self.program.stop()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.program.kill()


class FrontProcess:
    """The process of keylane_local.front.server."""

    name = "http"

    def __init__(
        self,
        *,
        run: Path,
        logs: Path,
        port: int,
        functions: Path,
        environment: Mapping[str, str],
        max_environments: int,
    ) -> None:
        """Place it; `functions` is the folder of the functions' code roots."""
        self.port = port
        self.log = logs / "front.log"
        self.program = Program(
            self.name,
            [
                sys.executable,
                "-m",
                "keylane_local.front.server",
                *("--port", str(port)),
                *("--functions", functions.absolute()),
                *("--function-log", (logs / "functions.log").absolute()),
                *("--max-environments", str(max_environments)),
            ],
            pid_file=run / "http.json",
            log=self.log,
            env=environment,
        )

    @property
    def url(self) -> str:
        """The address for clients, without a slash at its end."""
        return f"http://{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.program.running

    def start(self) -> None:
        """Start it, unless it runs."""
        self.program.start()

    def wait_ready(self, timeout_s: float = FRONT_START_TIMEOUT_S) -> None:
        """Wait until it listens, its environments warm; raise PartFailed otherwise."""
        self.program.wait_until(lambda: self.program.said(READY), timeout_s)

    def stop(self) -> None:
        """Stop it and the functions' environments."""
        self.program.stop()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.program.kill()
