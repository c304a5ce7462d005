"""The parts that are Python programs of this project: the Spark job and the server."""

import sys
from collections.abc import Mapping
from pathlib import Path

from keylane_local.process.ports import HOST
from keylane_local.process.program import Program, ProgramPart
from keylane_local.tools import console_dir, find_java
from keylane_server.options import VARIABLE, ServerOptions

READY = "keylane: ready"
REFUSED = "keylane: goes on as before"
ANY = "0.0.0.0"  # noqa: S104 (compared with, and chosen by the user alone)
JOB_START_TIMEOUT_S = 120.0
SERVER_START_TIMEOUT_S = 30.0


class SparkJob(ProgramPart):
    """The job that writes the topics' state. At SIGTERM it finishes its batch."""

    name = "job"

    def __init__(
        self, home: Path, *, run: Path, log: Path, config: Path, environment: Mapping[str, str]
    ) -> None:
        """Set working folder (`home`), log, configuration and variables (`Stack.environment`)."""
        self.home = home
        variables = dict(environment)
        if java := find_java():
            # Spark would prefer the Java of JAVA_HOME, however old, to that of PATH.
            variables["JAVA_HOME"] = str(Path(java).resolve().parents[1])
        self.program = Program(
            self.name,
            [sys.executable, "-u", "-m", "keylane_spark", "--config", config.absolute()],
            pid_file=run / "job.json",
            log=log,
            cwd=home,
            env=variables,
            stop_timeout_s=40,
            files=[config.absolute()],
        )

    def start(self) -> None:
        """Start it, unless it runs; return before it is ready."""
        self.home.mkdir(parents=True, exist_ok=True)
        super().start()

    def read_again(self) -> None:
        """Have it go on with its file as it is now; return before it is ready."""
        self.program.read_again()

    def take_refusal(self) -> str:
        """Return why it has not taken its file, "" if it has; the next `up` finds such a file changed."""
        if said := self.program.find_line(REFUSED).removeprefix("keylane: "):
            self.program.note_unread()
        return said

    def wait_ready(self, timeout_s: float = JOB_START_TIMEOUT_S) -> None:
        """Wait until it has taken its epoch and its query runs; raise PartFailed otherwise."""
        self.program.wait_until(lambda: self.program.said(READY), timeout_s)


class ServerPart(ProgramPart):
    """The standing server, keylane_server.server, as a process."""

    name = "server"

    def __init__(
        self, *, run: Path, log: Path, port: int, environment: Mapping[str, str], host: str = HOST
    ) -> None:
        """Set address, log and variables."""
        self.host, self.port = host, port
        options = ServerOptions(host, port, logs_access=True, console=console_dir())
        self.program = Program(
            self.name,
            [sys.executable, "-m", "keylane_server.server"],
            pid_file=run / "server.json",
            log=log,
            env={**environment, VARIABLE: options.to_variable()},
            stop_timeout_s=options.drain_s + 5,
        )

    @property
    def url(self) -> str:
        """The address for clients on this machine, without a trailing slash."""
        return f"http://{HOST if self.host == ANY else self.host}:{self.port}"

    def wait_ready(self, timeout_s: float = SERVER_START_TIMEOUT_S) -> None:
        """Wait until it listens and its clients are built; raise PartFailed otherwise."""
        self.program.wait_until(lambda: self.program.said(READY), timeout_s)
