"""The servers behind the standing server, for all scenarios: a broker, a Redis Cluster, the job, and names.

resolv.conf and hosts are mounted in a mount namespace of a process of its own, which needs root. The
machine's own stay as they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers.own import create_topic, own_cluster, own_kafka
from tests.servers.standing import plain_variables
from tests.torture.brokers import LinkedListener
from tests.torture.schedule import Shape

from keylane_local.process.ports import HOST, Ports
from keylane_local.servers.kafka import Kafka
from keylane_local.stack.parts import SparkJob
from keylane_local.tools import tools_dir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from tests.torture.oracle import Log

    from keylane_local.servers.redis_cluster import RedisCluster


RESOLVER = "127.53.53.53"
"""An address of this machine's loopback that nothing else listens on."""
DOMAIN = "fire.test"
_HEADER = struct.Struct(">HHHHHH")
_A, _ANSWERED, _POLL_S = 1, 0x8580, 0.2


class Resolver:
    """Answers every name of DOMAIN with the loopback's address, until `is_silent`. `asked` counts queries."""

    def __init__(self) -> None:
        self.is_silent = False
        self.asked = 0
        self._over = threading.Event()

    def serve(self, listening: socket.socket) -> None:
        listening.settimeout(_POLL_S)
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                query, client = listening.recvfrom(4096)
                self.asked += 1
                if not self.is_silent:
                    listening.sendto(answer_of(query), client)

    def stop(self) -> None:
        self._over.set()


def answer_of(query: bytes) -> bytes:
    """Return the answer to a query of one name: an address for type A, none for other types."""
    number = _HEADER.unpack_from(query)[0]
    end = query.index(b"\0", _HEADER.size) + 5
    (kind,) = struct.unpack_from(">H", query, end - 4)
    address = b"\xc0\x0c" + struct.pack(">HHIH", _A, 1, 1, 4) + socket.inet_aton(HOST)
    found = address if kind == _A else b""
    return _HEADER.pack(number, _ANSWERED, 1, bool(found), 0, 0) + query[_HEADER.size : end] + found


@contextlib.contextmanager
def resolver() -> Iterator[Resolver]:
    """Yield a name server at RESOLVER."""
    serving = Resolver()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind((RESOLVER, 53))
        thread = threading.Thread(target=serving.serve, args=(listening,))
        thread.start()
        try:
            yield serving
        finally:
            serving.stop()
            thread.join()


def with_resolver(folder: Path) -> list[str]:
    """Return the words before a command that make it ask RESOLVER for names, and know none by itself."""
    resolv, hosts = folder / "resolv.conf", folder / "hosts.none"
    resolv.write_text(f"nameserver {RESOLVER}\n", encoding="ascii")
    hosts.write_text("127.0.0.1 localhost\n", encoding="ascii")
    return _with_files({"/etc/resolv.conf": resolv, "/etc/hosts": hosts})


def with_hosts(folder: Path, *names: str) -> list[str]:
    """Return the words before a command that make it know these names of DOMAIN besides the machine's."""
    hosts = folder / "hosts.all"
    lines = [Path("/etc/hosts").read_text(encoding="utf-8"), *(f"{HOST} {name}" for name in names)]
    hosts.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return _with_files({"/etc/hosts": hosts})


def _with_files(files: dict[str, Path]) -> list[str]:
    mounts = " && ".join(f"mount --bind '{ours}' {theirs}" for theirs, ours in files.items())
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{mounts} && exec "$@"', "sh"]


def in_front(words: list[str]) -> tuple[str, ...]:
    """Return the program `keylane` behind such words."""
    return (*words, sys.executable, "-m", "keylane_client.cli")


TOPIC, REGISTRY_TOPIC, LARGE_TOPIC, GROWING_TOPIC = "fire", "fire-registry", "fire-large", "fire-growing"
PARTITIONS = 6
SHAPES = {TOPIC: Shape(TOPIC, PARTITIONS)}
CONFIG = f"""\
[topics.{TOPIC}]
partitions = {PARTITIONS}

[topics.{REGISTRY_TOPIC}]
partitions = {PARTITIONS}
value_format = "registry"

[topics.{LARGE_TOPIC}]
partitions = {PARTITIONS}
index = true
[topics.{GROWING_TOPIC}]
partitions = {PARTITIONS}
"""
KAFKA_NAME = "kafka.fire.test"
"""The host of the listener for clients that look the broker up by its name."""
TOKEN = "the-token-of-this-run"
ACCESS = json.dumps(
    {hashlib.sha256(TOKEN.encode()).hexdigest(): {"name": "caller", "read": ["*"], "write": ["*"]}}
)
CALLER = {"Authorization": f"Bearer {TOKEN}"}

_LISTENERS = """\
listeners=PLAINTEXT://{host}:{port},{late.own},NAMED://{host}:{named},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port},{late.advertised},NAMED://{name}:{named}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LATE:PLAINTEXT,NAMED:PLAINTEXT,CONTROLLER:PLAINTEXT
"""


class FireKafka(Kafka):
    """A broker with two more listeners: `late` behind a link, and one for clients that use its name."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.late, self.named_port = LinkedListener("LATE"), Ports().any()

    def more_settings(self) -> str:
        return _LISTENERS.format(
            host=HOST, port=self.port, late=self.late, named=self.named_port,
            controller=self.controller_port, name=KAFKA_NAME,
        )  # fmt: skip


class FireStage:
    """What runs behind the server. `variables`: the settings of a server, and those of the job."""

    def __init__(self, folder: Path, kafka: FireKafka, redis: RedisCluster) -> None:
        self.folder, self.kafka, self.redis = folder, kafka, redis
        self.variables = plain_variables(redis.addresses, kafka.bootstrap)
        config = folder / "keylane.toml"
        config.write_text(CONFIG, encoding="utf-8")
        job_variables = {
            "KEYLANE_JARS": str(tools_dir() / "jars"),
            "KEYLANE_CHECKPOINT": str(folder / "checkpoint"),
        }
        self.job = SparkJob(
            folder / "job",
            run=folder / "run",
            log=folder / "logs" / "job.log",
            config=config,
            environment={**self.variables, **job_variables},
        )
        if os.geteuid() == 0:  # or else the scenario of names can't run
            names = (f"redis-{number}.{DOMAIN}" for number in range(len(redis.nodes)))
            self.job.program.command = [*with_hosts(folder, *names), *self.job.program.command]


@contextlib.contextmanager
def open_stage(folder: Path) -> Iterator[FireStage]:
    """Yield the servers, with the job at work."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        own_kafka(folder, FireKafka) as kafka,
        contextlib.closing(kafka.late.links),
        own_cluster(folder, appendonly=True) as redis,
    ):
        for topic in (TOPIC, REGISTRY_TOPIC, LARGE_TOPIC, GROWING_TOPIC):
            create_topic(kafka.bootstrap, topic, PARTITIONS)
        stage = FireStage(folder, kafka, redis)
        stage.job.start()
        stage.job.wait_ready()
        yield stage  # the guard of the folder ends the job


def lost_in_log(log: Log, acks: Iterable[tuple[int, int, str, int]]) -> Iterator[str]:
    """Yield the acknowledged writes (partition, offset, key, number) whose record is not in the log."""
    for partition, offset, key, number in acks:
        logged = log.of(TOPIC, key.encode()).at(partition, offset)
        found = logged and json.loads(logged.value or b"{}").get("number")
        if found != number:
            yield f"{partition}:{offset} of {key} has {found}, not {number}"
