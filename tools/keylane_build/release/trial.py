"""Installs the packages of a release into empty environments outside the checkout, and uses them.

What is used is said by `TRIALS`; those of keylane[local] are the demo, then the
Kafka and the Redis of others, in empty folders.
"""

import json
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from keylane_build.release import licences
from keylane_build.release.installed import Installed, install, wait_for
from keylane_build.release.own_kafka import try_own_kafka

_STOP_S = 60.0
_NOWHERE = {"KEYLANE_KAFKA_BOOTSTRAP": "127.0.0.1:1", "KEYLANE_REDIS_NODES": "127.0.0.1:1"}


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
            wait_for(f"http://127.0.0.1:{port}{path}", lambda: log.read_text("utf-8"))
    finally:
        server.terminate()
        server.wait(_STOP_S)


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


TRIALS: dict[str, tuple[Callable[[Installed], None], ...]] = {
    "keylane-client": (try_client,),
    "keylane-client[cli]": (try_client_commands,),
    "keylane": (try_layer,),
    "keylane[server]": (try_server,),
    "keylane[local]": (try_stack, try_own_kafka),
}


def run_trials(built: Path, version: str, constraints: Path, only: str = "") -> dict[str, list[str]]:
    """Run the trials; return the licences of what keylane[local] installs. Raises NotReleasable."""
    found: dict[str, list[str]] = {}
    for name, trials in TRIALS.items():
        if only and name != only:
            continue
        with install(name, built, version, constraints) as here:
            for trial in trials:
                started_s = time.monotonic()
                trial(here)
                print(f"{name}: {trial.__name__} in {time.monotonic() - started_s:.0f} s", flush=True)
            if name == "keylane[local]":
                found = json.loads(here.run("python", licences.__file__))
    return found
