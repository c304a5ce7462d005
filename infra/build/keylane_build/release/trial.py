"""Installs the packages of a release into empty environments outside the checkout, and uses them.

What is used is said by `TRIALS`; that of keylane[local] runs the demo in an empty folder.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from keylane_build.release import licences
from keylane_build.release.versions import NotReleasable

_NOWHERE = {"KEYLANE_KAFKA_BOOTSTRAP": "127.0.0.1:1", "KEYLANE_REDIS_NODES": "127.0.0.1:1"}
_START_S, _COMMAND_S = 60.0, 900.0


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with a package of the release, and an empty folder beside it."""

    environment: Path
    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """Those of this process, without what would lead back to the checkout."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("KEYLANE_", "PYTHON"))
        }
        kept |= {"XDG_CACHE_HOME": str(self.environment / "caches"), "NO_COLOR": "1"}
        kept.pop("VIRTUAL_ENV", None)
        return kept | {"PATH": f"{self.environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def run(self, *command: str, exit_code: int = 0, **variables: str) -> str:
        """Run a program of the environment in the folder; return what it prints.

        Raises NotReleasable if it ends with another exit code.
        """
        done = subprocess.run(
            [str(self.environment / "bin" / command[0]), *command[1:]],
            cwd=self.folder,
            env=self.variables | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        if done.returncode != exit_code:
            raise NotReleasable(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def expect(self, wanted: str, *command: str, exit_code: int = 0) -> None:
        """Run a program; raise NotReleasable unless it prints `wanted`."""
        if wanted not in (printed := self.run(*command, exit_code=exit_code)):
            raise NotReleasable(f"{' '.join(command)} does not say {wanted!r}:\n{printed}")


def try_client(here: Installed) -> None:
    """The client alone: a library, and a program that says what it needs."""
    here.run("python", "-c", "from keylane_client import AsyncClient, Client, Position")
    here.expect("pip install 'keylane-client[cli]'", "keylane", "topics", exit_code=1)


def try_client_commands(here: Installed) -> None:
    """The client with its commands: those for any API, and no others."""
    here.expect("tail", "keylane", "--help")
    here.expect(
        "127.0.0.1:1 cannot be reached", "keylane", "topics", "--url", "http://127.0.0.1:1", exit_code=5
    )
    here.expect("pip install 'keylane[local]'", "keylane", "up", exit_code=2)


def try_layer(here: Installed) -> None:
    """The layer and the command line."""
    here.run("python", "-c", "import keylane.app.query, keylane_client")
    here.expect("pip install 'keylane[local]'", "keylane", "status", exit_code=1)


def try_server(here: Installed) -> None:
    """The server answers, and has its console, although Kafka and Redis do not answer."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [str(here.environment / "bin" / "keylane"), "serve", "--port", port]
    log = here.folder / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, cwd=here.folder, env=here.variables | _NOWHERE, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        for path in ("/health/live", "/console/"):
            _wait_for(f"http://127.0.0.1:{port}{path}", log)
    finally:
        server.terminate()
        server.wait(_START_S)


def try_stack(here: Installed) -> None:
    """The demo in an empty folder, then the other commands that read files of the project."""
    try:
        here.expect("the write was read back", "keylane", "demo")
        here.expect("job", "keylane", "status")
        here.expect("N14228", "keylane", "invoke", "query", "-e", "events/query/get_key.json")
        here.expect("EWR", "keylane", "get", "flights", "N14228")
        new = ("--kafka", "127.0.0.1:1", "--redis", "127.0.0.1:1", "--topic", "orders", "--stack", "orders")
        here.expect("wrote own/keylane.toml", "keylane", "new", "own", *new, "--unchecked")
    finally:
        here.run("keylane", "down", "--wipe")


TRIALS: dict[str, Callable[[Installed], None]] = {
    "keylane-client": try_client,
    "keylane-client[cli]": try_client_commands,
    "keylane": try_layer,
    "keylane[server]": try_server,
    "keylane[local]": try_stack,
}


def run_trials(built: Path, version: str, constraints: Path, only: str = "") -> dict[str, list[str]]:
    """Run the trials; return the licences of what keylane[local] installs. Raises NotReleasable."""
    found: dict[str, list[str]] = {}
    for name, trial in TRIALS.items():
        if only and name != only:
            continue
        with _install(name, built, version, constraints) as here:
            started_s = time.monotonic()
            trial(here)
            print(f"{name}: used in {time.monotonic() - started_s:.0f} s", flush=True)
            if name == "keylane[local]":
                found = json.loads(here.run("python", licences.__file__))
    return found


@contextlib.contextmanager
def _install(name: str, built: Path, version: str, constraints: Path) -> Iterator[Installed]:
    with tempfile.TemporaryDirectory(prefix="keylane-release-") as work:
        here = Installed(Path(work, "environment"), Path(work, "empty"))
        here.folder.mkdir()
        started_s = time.monotonic()
        subprocess.run([sys.executable, "-m", "venv", str(here.environment)], check=True)
        pip = ("pip", "install", "--quiet", "--disable-pip-version-check")
        here.run(
            *pip,
            "--find-links",
            str(built.absolute()),
            f"{name}=={version}",
            "--constraint",
            str(constraints),
        )
        print(f"{name}: installed in {time.monotonic() - started_s:.0f} s", flush=True)
        yield here


def _wait_for(url: str, log: Path) -> None:
    until_s = time.monotonic() + _START_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 (our own server's)
                answer.read()
                return
        except OSError as error:
            if time.monotonic() > until_s:
                raise NotReleasable(f"{url}: {error}\n{log.read_text(encoding='utf-8')}") from error
            time.sleep(0.2)
