"""A detached program of the stack, and the base class of parts that are one program."""

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from keylane_local.errors import PartFailed
from keylane_local.process.processes import find_process, identify, stop, stop_now, tail, wait_until

_OF_THE_COMMAND_LINE = {
    *("KEYLANE_URL", "KEYLANE_API_KEY", "KEYLANE_AUTHORIZATION", "KEYLANE_DATA", "KEYLANE_DLQ_URL"),
}
"""Variables that no program of the stack reads."""


@dataclass(slots=True)
class Program:
    """One detached program, with a pid file and a log.

    `env` is added to this process's environment; the value None removes a variable. `stop` sends SIGKILL to a
    program that has not ended `stop_timeout_s` after SIGTERM. `files`: what it reads at its start alone.
    """

    name: str
    command: Sequence[str | Path]
    pid_file: Path
    log: Path
    cwd: Path | None = None
    env: Mapping[str, str | None] = field(default_factory=dict)
    stop_timeout_s: float = 15.0
    files: Sequence[Path] = ()

    @property
    def process(self) -> psutil.Process | None:
        """The running process, or None."""
        return find_process(self.pid_file)

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self.process is not None

    def changed_inputs(self) -> list[str]:
        """Return which settings and files differ from those it was started with; none if it does not run."""
        if not self.running:
            return []
        try:
            saved = dict(json.loads(self.pid_file.read_text(encoding="utf-8"))["inputs"])
        except (OSError, ValueError, KeyError):
            return []
        now = self._inputs()
        return sorted(name for name in saved.keys() | now.keys() if saved.get(name) != now.get(name))

    def _inputs(self) -> dict[str, str]:
        """Return a digest of each of its KEYLANE_ variables and of its files: a variable may be a secret."""
        inputs = {
            name: value.encode()
            for name, value in {**os.environ, **self.env}.items()
            if value is not None and name.startswith("KEYLANE_") and name not in _OF_THE_COMMAND_LINE
        }
        inputs |= {file.name: file.read_bytes() for file in self.files if file.exists()}
        return {name: hashlib.sha256(data).hexdigest() for name, data in inputs.items()}

    def start(self) -> None:
        """Start it, unless it runs; raise PartFailed if the program cannot be executed."""
        if self.running:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.pid_file.parent.mkdir(parents=True, exist_ok=True)
        command = [str(word) for word in self.command]
        environment = {**os.environ, **self.env}
        with self.log.open("ab") as log:
            log_from = log.tell()
            try:
                child = subprocess.Popen(
                    command,
                    cwd=self.cwd,
                    env={name: value for name, value in environment.items() if value is not None},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise PartFailed(self.name, f"{command[0]} cannot be started: {error}") from error
        # The program outlives this object on purpose: an exit code keeps Popen from warning about it.
        child.returncode = 0
        process = psutil.Process(child.pid)
        try:
            self._save({**identify(process), "log_from": log_from, "command": command})
        except OSError:  # nobody would find it again
            stop_now(process)
            raise

    def read_again(self) -> None:
        """Have it read its files again, by SIGHUP: what it says from now on is of what they say now."""
        saved = json.loads(self.pid_file.read_text(encoding="utf-8"))
        self._save(saved | {"log_from": self.log.stat().st_size})
        if process := self.process:
            process.send_signal(signal.SIGHUP)

    def note_unread(self) -> None:
        """Note that it has not taken its files: the next comparison finds that they have changed."""
        names = {file.name for file in self.files}
        inputs = {name: digest for name, digest in self._inputs().items() if name not in names}
        self._save(json.loads(self.pid_file.read_text(encoding="utf-8")), inputs)

    def _save(self, saved: Mapping[str, object], inputs: Mapping[str, str] | None = None) -> None:
        """Write the pid file, with what the program's settings and files are: by now, or as `inputs` says."""
        text = json.dumps({**saved, "inputs": self._inputs() if inputs is None else inputs})
        temporary = self.pid_file.with_suffix(".new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self.pid_file)

    def stop(self) -> None:
        """Stop it with SIGTERM, and with SIGKILL if it has not ended after `stop_timeout_s`."""
        if process := self.process:
            stop(process, self.stop_timeout_s)
        self.pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """Stop it with SIGKILL, as a crash would."""
        if process := self.process:
            stop_now(process)
        self.pid_file.unlink(missing_ok=True)

    def wait_until(self, is_ready: Callable[[], bool], timeout_s: float) -> None:
        """Wait until `is_ready`; raise PartFailed if the program ends first, or after `timeout_s`."""
        settled = wait_until(lambda: is_ready() or not self.running, timeout_s)
        if not settled:
            raise self.failure(f"it is not ready after {timeout_s:.0f} s")
        if not self.running:
            raise self.failure("it ended while it was starting")

    def said(self, words: str) -> bool:
        """Return whether a line of the log since the program's start begins with `words`."""
        return bool(self.find_line(words))

    def find_line(self, words: str) -> str:
        """Return the first line of the log since the program's start that begins with `words`, "" if none."""
        try:
            log_from = int(json.loads(self.pid_file.read_text(encoding="utf-8"))["log_from"])
            with self.log.open("rb") as log:
                log.seek(log_from)
                found = next((line for line in log if line.startswith(words.encode())), b"")
            return found.decode(errors="replace").strip()
        except (FileNotFoundError, ValueError, KeyError):
            return ""

    def failure(self, reason: str) -> PartFailed:
        """Return a PartFailed with `reason` and the end of the log."""
        return PartFailed(self.name, reason, self.log, tail(self.log))


class ProgramPart:
    """A part of the stack that is one program, the attribute `program`."""

    program: Program

    @property
    def log(self) -> Path:
        """The program's log."""
        return self.program.log

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self.program.running

    def start(self) -> None:
        """Start it, unless it runs; return before it is ready."""
        self.program.start()

    def stop(self) -> None:
        """Stop it in an orderly way."""
        self.program.stop()

    def kill(self) -> None:
        """Kill it, as a crash would."""
        self.program.kill()
