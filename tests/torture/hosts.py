"""The product's hosts: functions in processes of their own that write, the standing server, and a queue.

They reach the brokers over links that are theirs alone (`Brokers.writers_listeners`). The server also answers
readers, over their links to Redis.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tests.servers.aws import Aws, moto
from tests.servers.standing import READY, START_S, plain_variables
from tests.support.builders import FUNCTIONS, an_event
from tests.support.replies import Reply
from tests.torture import outside_server
from tests.torture.brokers import WritersPassword
from tests.torture.over_http import ServerConnection
from tests.torture.sources import TIMEOUT_MS as READ_TIMEOUT_MS

from keylane.errors import KeylaneError
from keylane_local.process.lambda_process import Function, LambdaProcess
from keylane_local.process.ports import Ports
from keylane_local.process.program import Program
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.torture.brokers import Brokers, TortureKafka

TIMEOUT_MS = 1_500
"""Of a write, and of a batch of the queue."""
VISIBILITY_S = 30
SLOW_FILE = "slow-nodes"
"""Where the server notes nodes that did not answer it, below the stack's folder."""
_LAYER = project_root() / "layers" / "keylane" / "python"


class Host(Protocol):
    """What answers a request of the API; None where it has not."""

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply | None:
        """Send one request."""


class FunctionHost:
    """A function's environment, which has one request at a time."""

    def __init__(self, process: LambdaProcess) -> None:
        self.process = process
        self.is_busy = threading.Event()
        """Set while it has a request."""
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply | None:
        answer = self.invoke(an_event(method, path, headers=dict(headers), body=body))
        return None if answer is None else Reply(answer["statusCode"], {}, answer["body"].encode())

    def invoke(self, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Pass one event; None where the environment has ended."""
        with self._lock:
            self.is_busy.set()
            answer = self.process.call(json.dumps(event).encode(), f"request-{next(self._numbers)}")
            self.is_busy.clear()
        found: dict[str, Any] | None = None if answer.failed else json.loads(answer.payload)
        return found

    def end(self) -> None:
        """Kill the environment; the next request gets another."""
        if self.process.pid is not None:
            os.kill(self.process.pid, signal.SIGKILL)


class ServerHost:
    """A connection to the standing server. Those of other clients share the server's producer."""

    def __init__(self, port: int) -> None:
        self._connection = ServerConnection(port)

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply | None:
        try:
            return self._connection.ask(method, path, headers, body)
        except KeylaneError:
            return None

    def close(self) -> None:
        self._connection.close()


class Hosts(NamedTuple):
    """All hosts of a stack: a function that writes, one that fills the queue, the drain, and the server.

    `scoped_port`: that of the server which asks for tokens.
    """

    produce: FunctionHost
    enqueue: FunctionHost
    drain: FunctionHost
    server_port: int
    scoped_port: int
    aws: Aws
    password: WritersPassword
    queue: str
    dead_letters: str


@contextlib.contextmanager
def running_hosts(
    folder: Path,
    kafka: TortureKafka | Brokers,
    redis_nodes: str,
    redis_ports: Mapping[int, int],
    policy: str,
) -> Iterator[Hosts]:
    """Start all hosts, with their logs in `folder`; they end with the block.

    `redis_ports`: of the servers' links to Redis, as `Links.ports`. `policy`: that of the scoped one.
    """
    with contextlib.ExitStack() as running:
        aws = running.enter_context(moto())
        dead_letters = aws.queue()
        queue = aws.queue(visibility_s=VISIBILITY_S)
        password = WritersPassword(kafka, aws)
        direct = {
            **password.environment,
            "KEYLANE_KAFKA_BOOTSTRAP": kafka.writers_bootstrap,
            "KEYLANE_PRODUCE_TIMEOUT_MS": str(TIMEOUT_MS),
        }
        queued = {
            **direct,
            "KEYLANE_QUEUE_URL": queue,
            "KEYLANE_DLQ_URL": dead_letters,
            "KEYLANE_QUEUE_GROUPS": "4",
            "KEYLANE_DRAIN_TIMEOUT_MS": str(TIMEOUT_MS),
        }

        def start(name: str, code: str, variables: dict[str, str]) -> FunctionHost:
            function = Function(name, FUNCTIONS / code, _LAYER, folder / f"{name}.log", variables=variables)
            return FunctionHost(running.enter_context(LambdaProcess(function)))

        of_server = {
            **plain_variables(redis_nodes, kafka.writers_bootstrap),
            **direct,
            "KEYLANE_STATE_TIMEOUT_MS": str(READ_TIMEOUT_MS),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(project_root()), os.environ.get("PYTHONPATH")))),
            outside_server.PORTS: json.dumps(dict(redis_ports)),
            outside_server.SLOW_FILE: str(folder / SLOW_FILE),
        }
        yield Hosts(
            start("produce", "produce", direct),
            start("enqueue", "produce", queued),
            start("drain", "drain", queued),
            running.enter_context(_running_server(folder, "serve", of_server)),
            running.enter_context(_running_server(folder, "scoped", of_server | {"KEYLANE_ACCESS": policy})),
            aws,
            password,
            queue,
            dead_letters,
        )


@contextlib.contextmanager
def _running_server(folder: Path, name: str, variables: dict[str, str]) -> Iterator[int]:
    """Run `keylane serve` with these variables alone, and yield its port. The folder's guard ends it, too.

    It asks for tokens if it has a policy.
    """
    port = Ports().any()
    authorization = ["--authorization", "tokens"] if "KEYLANE_ACCESS" in variables else []
    others: dict[str, str | None] = {name: None for name in os.environ if name.startswith("KEYLANE_")}
    program = Program(
        name,
        [sys.executable, "-m", outside_server.__name__, "serve", "--port", str(port), *authorization],
        pid_file=folder / "run" / f"{name}.json",
        log=folder / f"{name}.log",
        env=others | variables,
    )
    program.start()
    try:
        program.wait_until(lambda: program.said(READY), START_S)
        yield port
    finally:
        program.stop()
