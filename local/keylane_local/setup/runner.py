"""What the steps of the set-up share: running programs with a log and progress, installing with apt, stamps.

Standard library only: in a checkout it runs before anything is installed.
"""

import hashlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from keylane_local.errors import StackError

ATTEMPTS = 3
"""For programs that download something."""
PAUSE_S = 3.0
TAIL_LINES = 25
PROGRESS_EVERY_S = 15.0


class SetupError(StackError):
    """A step failed. The text says what to do; the file `log`, if there is one, has the details."""

    def __init__(self, step: str, reason: str, log: Path | None = None) -> None:
        super().__init__(reason)
        self.step = step
        self.log = log
        if log:
            self.add_note(f"The end of {log}:\n{self.tail()}")

    def tail(self) -> str:
        """Return the last lines of the log, or "" if there is none."""
        text = (read_text(self.log) or "") if self.log else ""
        return "\n".join(text.splitlines()[-TAIL_LINES:])


def say(step: str, text: str) -> None:
    """Print one line of progress."""
    print(f"[setup] {step:<7} {text}", flush=True)


def digest(*parts: str) -> str:
    """Return a hash of a step's inputs."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def read_text(path: Path) -> str | None:
    """Return the content of a file, or None if it does not exist."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


class Stamp:
    """A file with the hash of the inputs from which a step last succeeded."""

    def __init__(self, path: Path, *inputs: str) -> None:
        self._path = path
        self._digest = digest(*inputs)

    def is_current(self) -> bool:
        """Return whether the step succeeded with the same inputs."""
        return read_text(self._path) == self._digest

    def clear(self) -> None:
        """Remove it: the step's result is about to change."""
        self._path.unlink(missing_ok=True)

    def write(self) -> None:
        """Record that the step has succeeded."""
        self._path.write_text(self._digest, encoding="utf-8")


class Runner:
    """Runs the programs of the steps in the folder `root`; their logs are in `tools`/logs."""

    def __init__(self, root: Path, tools: Path) -> None:
        self._root = root
        self._tools = tools
        self._apt_updated = False

    def log(self, step: str) -> Path:
        """Return the path of a step's log."""
        return self._tools / "logs" / f"{step}.log"

    def run(
        self,
        step: str,
        title: str,
        command: list[str],
        *,
        attempts: int = 1,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        """Run a program, with its output in the step's log; raise SetupError if all attempts fail."""
        log = self.log(step)
        log.parent.mkdir(parents=True, exist_ok=True)
        (self._tools / ".gitignore").write_text("*\n", encoding="utf-8")
        for attempt in range(1, attempts + 1):
            again = "" if attempt == 1 else f" (attempt {attempt} of {attempts})"
            say(step, f"{title} ...{again}")
            started = time.monotonic()
            with log.open("ab") as output, _ElapsedTime(step, title):
                output.write(f"$ {' '.join(command)}\n".encode())
                output.flush()
                code = subprocess.run(
                    command,
                    cwd=cwd or self._root,
                    env=env,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    check=False,
                ).returncode
            took = f"{time.monotonic() - started:.1f} s"
            if code == 0:
                say(step, f"{title}: done in {took}")
                return
            say(step, f"{title}: failed after {took} (exit code {code})")
            if attempt < attempts:
                time.sleep(PAUSE_S)
        raise SetupError(step, f"{title} failed", log)

    def apt_install(
        self, step: str, packages: tuple[str, ...], hint: str, is_done: Callable[[], bool] | None = None
    ) -> None:
        """Install the first of `packages` after which `is_done` holds.

        Raises SetupError with `hint` if none does, or if apt or root's permissions are missing.
        """
        if not (hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get")):
            raise SetupError(step, hint)
        # In this run level invoke-rc.d starts no service: the stack starts its own servers.
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        if not self._apt_updated:
            self.run(step, "apt-get update", ["apt-get", "update"], attempts=ATTEMPTS, env=environment)
            self._apt_updated = True
        for package in packages:
            command = ["apt-get", "install", "-y", "--no-install-recommends", package]
            try:
                self.run(step, f"apt-get install {package}", command, attempts=2, env=environment)
            except SetupError:
                continue
            if is_done is None or is_done():
                return
        raise SetupError(step, hint, self.log(step))


class _ElapsedTime:
    """Prints the elapsed time of a long step every PROGRESS_EVERY_S seconds."""

    def __init__(self, step: str, title: str) -> None:
        self._step, self._title = step, title
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._print, daemon=True)
        self._started = time.monotonic()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _print(self) -> None:
        while not self._done.wait(PROGRESS_EVERY_S):
            say(self._step, f"{self._title} ... {time.monotonic() - self._started:.0f} s")
