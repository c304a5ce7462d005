"""One Redis (or Valkey) server of the cluster."""

import contextlib
from pathlib import Path
from typing import Any

from keylane_local.errors import ToolMissing
from keylane_local.process.program import Program, ProgramPart
from keylane_local.tools import MIN_REDIS, find_redis

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
# The loss of a shard makes only its own slots unavailable.
cluster-require-full-coverage no
# Without a majority of primaries no replica is promoted: the nodes that are left still answer reads.
cluster-allow-reads-when-down yes
save ""
appendonly {appendonly}
appendfsync everysec
# Replicas sync at once; by default the primary waits 5 s for more of them.
repl-diskless-sync-delay 0
shutdown-timeout 2
"""


class RedisNode(ProgramPart):
    """A server. Its folder holds redis.conf, nodes.conf and the data."""

    def __init__(
        self,
        home: Path,
        *,
        run: Path,
        log: Path,
        address: tuple[str, int, int],
        appendonly: bool,
    ) -> None:
        """Set folder, log and address: host, port, bus port.

        The folder identifies the node; its address may change between starts.
        """
        host, port, bus_port = address
        self.home = home
        self.host = host
        self.port = port
        self.bus_port = bus_port
        self.appendonly = appendonly
        self.program = Program(f"redis-{port}", [], pid_file=run / f"{home.name}.json", log=log)

    @property
    def address(self) -> str:
        """The address for clients, "host:port"."""
        return f"{self.host}:{self.port}"

    @property
    def bus_address(self) -> str:
        """The address in the form of nodes.conf, "host:port@busport"."""
        return f"{self.host}:{self.port}@{self.bus_port}"

    def start(self) -> None:
        """Start it, unless it runs; raise ToolMissing if no server is installed."""
        if self.running:
            return
        server = find_redis()
        if not server:
            wanted = ".".join(map(str, MIN_REDIS))
            raise ToolMissing(f"redis-server or valkey-server {wanted} or newer is not on PATH")
        self.home.mkdir(parents=True, exist_ok=True)
        config = self.home / "redis.conf"
        config.write_text(
            _CONFIG.format(
                host=self.host,
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

    @contextlib.contextmanager
    def client(self) -> Any:
        """Yield a client of this node; replies are decoded to str."""
        import redis  # noqa: PLC0415 - its import takes as long as all else in `keylane status`

        with redis.Redis(
            host=self.host, port=self.port, socket_timeout=_COMMAND_TIMEOUT_S, decode_responses=True
        ) as client:
            yield client

    def command(self, *words: str | int) -> Any:
        """Run one command on the node; raise redis.RedisError if it fails or the node is down."""
        with self.client() as client:
            return client.execute_command(*words)

    def answers(self) -> bool:
        """Return whether it answers, with its data loaded."""
        import redis  # noqa: PLC0415 - as in `client`

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
