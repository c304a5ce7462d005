"""One Redis (or Valkey) server of the cluster."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import redis

from keylane_local.errors import ToolMissing
from keylane_local.process.ports import HOST
from keylane_local.process.processes import Program
from keylane_local.tools import MIN_REDIS, find_redis

if TYPE_CHECKING:
    from pathlib import Path

NODE_TIMEOUT_MS = 2000
_COMMAND_TIMEOUT_S = 5.0

_CONFIG = """\
bind {host}
port {port}
protected-mode no
daemonize no
dir "{home}"
cluster-enabled yes
cluster-config-file nodes.conf
cluster-port {bus_port}
cluster-announce-ip {host}
cluster-node-timeout {node_timeout_ms}
# A shard that is gone takes its own keys with it, not everybody's.
cluster-require-full-coverage no
save ""
appendonly {appendonly}
appendfsync everysec
# Replicas attach at once instead of after five seconds in which more might come.
repl-diskless-sync-delay 0
shutdown-timeout 2
"""


class RedisNode:
    """A server with its own folder, which holds its configuration, nodes.conf and its data."""

    def __init__(
        self, home: Path, *, run: Path, log: Path, port: int, bus_port: int, appendonly: bool
    ) -> None:
        """Place it; ports may change between two starts, the folder says who the node is."""
        self.home = home
        self.port = port
        self.bus_port = bus_port
        self.appendonly = appendonly
        self.program = Program(f"redis-{port}", [], pid_file=run / f"{home.name}.json", log=log)

    @property
    def address(self) -> str:
        """The address for clients, "host:port"."""
        return f"{HOST}:{self.port}"

    @property
    def bus_address(self) -> str:
        """The address as nodes.conf spells it, "host:port@busport"."""
        return f"{HOST}:{self.port}@{self.bus_port}"

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.program.running

    def start(self) -> None:
        """Start it, unless it runs; raise ToolMissing where no server is installed."""
        if self.running:
            return
        server = find_redis()
        if not server:
            wanted = ".".join(map(str, MIN_REDIS))
            raise ToolMissing(f"no redis-server or valkey-server {wanted} or newer on PATH: run `make setup`")
        self.home.mkdir(parents=True, exist_ok=True)
        config = self.home / "redis.conf"
        config.write_text(
            _CONFIG.format(
                host=HOST,
                port=self.port,
                bus_port=self.bus_port,
                home=str(self.home.absolute()).replace("\\", "\\\\").replace('"', '\\"'),
                node_timeout_ms=NODE_TIMEOUT_MS,
                appendonly="yes" if self.appendonly else "no",
            ),
            encoding="utf-8",
        )
        self.program.command = [server, str(config.absolute())]
        self.program.start()

    def stop(self) -> None:
        """Stop it in order."""
        self.program.stop()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.program.kill()

    @contextlib.contextmanager
    def client(self) -> Any:
        """Give a client of this one node; replies to CLUSTER commands are left as text."""
        with redis.Redis(
            host=HOST, port=self.port, socket_timeout=_COMMAND_TIMEOUT_S, decode_responses=True
        ) as client:
            yield client

    def command(self, *words: str | int) -> Any:
        """Run one command on the node; raise redis.RedisError where it refuses or is away."""
        with self.client() as client:
            return client.execute_command(*words)

    def answers(self) -> bool:
        """Tell whether it answers and has its data loaded."""
        with contextlib.suppress(redis.RedisError):
            return bool(self.command("PING"))
        return False

    def facts(self) -> dict[str, str]:
        """Return the fields of CLUSTER INFO and of INFO replication."""
        with self.client() as client:
            info = client.execute_command("CLUSTER INFO")
            facts = {str(key): str(value) for key, value in dict(info).items()}
            facts.update({key: str(value) for key, value in client.info("replication").items()})
        return facts
