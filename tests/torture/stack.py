"""The real servers under torture: a broker, a Redis Cluster of 3 + 3 nodes, and the job as a process."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import re
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import redis
from tests.servers.own import CLOCK, guarded, own_cluster
from tests.torture import outside
from tests.torture.brokers import create_replicated, running_brokers
from tests.torture.configurations import ROWS, SIDE_PARTITIONS, SIDE_TOPICS
from tests.torture.hosts import SLOW_FILE, Hosts, running_hosts
from tests.torture.journal import Journal
from tests.torture.links import LinkedCluster, Links
from tests.torture.rights import StackIssuer
from tests.torture.witness import Slowness, WatchedState, Witness

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import redis_settings
from keylane.query.layouts import Layouts
from keylane.query.store import Store
from keylane.state import codec, windows
from keylane.state.lanes import lane_of_key
from keylane_local.process.processes import stop_now, tail
from keylane_local.process.program import Program
from keylane_local.stack.parts import READY
from keylane_local.tools import find_java, project_root, tools_dir
from keylane_spark.lanes.lane import lanes_of
from keylane_spark.lanes.layout_store import LayoutStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.torture.brokers import Brokers, TortureKafka
    from tests.torture.configurations import Configuration

    from keylane.model.records import Layout, Watermark
    from keylane_local.servers.redis_cluster import RedisCluster
    from keylane_local.servers.redis_node import RedisNode

READER = "KEYLANE_TORTURE_READER"
"""`direct` or `spark`, whatever the configuration says."""
CONFIG = """\
[job]
reader = "{reader}"
small_batch_records = 300
max_batch_records = 8000
heartbeat_ms = 100
wait_replicas = {wait_replicas}
[spark]
"spark.master" = "local[2]"
"spark.python.daemon.module" = "{outside.DAEMON_MODULE}"
"spark.sql.execution.arrow.maxRecordsPerBatch" = "400"
"""

KEYLANE_SLOT = routing.key_slot(b"{keylane}")
NODE_TIMEOUT_MS = 1_500
READY_WITHIN_S = 300
"""For a job that starts while a machine is busy: with a load of 15 on two cores 90 s were too few."""
REPAIRED_WITHIN_S = 180
"""For nodes and brokers that come back, or take over, on such a machine."""
STORE_LAYOUT_TTL_S = 30
_REST_S, _LONGEST_REST_S = 0.02, 1.0
_RESTS = 3
_NICENESS = -4
_STACKS_S, _STACKS_CHARACTERS = 1.0, 20_000


class Job:
    """`python -m keylane_spark`, as `outside` changes it, whose processes can be stopped and killed."""

    def __init__(self, number: int, folder: Path, environment: dict[str, str]) -> None:
        self.log = folder / f"job-{number}.log"
        self.checkpoint = folder / f"checkpoint-{number}"
        java = find_java()
        assert java
        self._program = Program(
            f"job-{number}",
            [sys.executable, "-u", "-m", outside.__name__, "--config", folder / "keylane.toml"],
            pid_file=folder / "run" / f"job-{number}.json",
            log=self.log,
            cwd=folder,
            env={
                **environment,
                "KEYLANE_CHECKPOINT": str(self.checkpoint),
                "JAVA_HOME": str(Path(java).resolve().parents[1]),
            },
        )
        self._program.start()
        process = self._program.process
        assert process, tail(self.log)
        self.process = process
        _favour(process)

    def wait_ready(self) -> None:
        """Wait until its query is running. Raises PartFailed."""
        self._program.wait_until(lambda: self._program.said(READY), READY_WITHIN_S)

    @property
    def has_ended(self) -> bool:
        return not self.process.is_running() or self.process.status() == psutil.STATUS_ZOMBIE

    def family(self) -> list[psutil.Process]:
        """The driver, its JVM, and Spark's Python workers."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self.process, *self.process.children(recursive=True)]
        return []

    def workers(self) -> list[psutil.Process]:
        """The Python workers, without the daemon that forks them."""
        found = []
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                parent = process.parent()
                if parent and outside.DAEMON_MODULE in parent.cmdline():
                    found.append(process)
        return found

    def end(self) -> None:
        """Kill its remaining processes."""
        stop_now(self.process)

    def report(self) -> str:
        """What it has said last, and what its Python threads are doing; Java's errors are long."""
        lines = self._read_log(0).splitlines()
        said = [line for line in lines if line.startswith("keylane:")]
        return "\n".join([*said[-40:], "", *lines[-15:], "", self._stacks()])

    def _stacks(self) -> str:
        if self.has_ended:
            return ""
        size = self.log.stat().st_size
        for process in [self.process, *self.workers()]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(outside.SHOW_STACKS)
        time.sleep(_STACKS_S)  # nothing says that all have answered
        return self._read_log(size)[:_STACKS_CHARACTERS]

    def _read_log(self, begin: int) -> str:
        return self.log.read_bytes()[begin:].decode("utf-8", "replace")


@dataclass(slots=True)
class Move:
    """A slot's move (monotonic seconds)."""

    began_s: float
    ended_s: float = float("inf")

    def overlaps(self, began_s: float, ended_s: float) -> bool:
        return self.began_s <= ended_s and began_s <= self.ended_s


class TortureStack:
    """All servers, running; `job` is the one that should be writing."""

    def __init__(
        self,
        folder: Path,
        kafka: TortureKafka | Brokers,
        cluster: RedisCluster,
        hosts: Hosts,
        configuration: Configuration,
        reader_links: Links,
        issuer: StackIssuer,
    ) -> None:
        self.folder = folder
        self.issuer = issuer
        self.hosts = hosts
        self.reader_links = reader_links
        self.configuration = configuration
        self.shapes = {shape.name: shape for shape in configuration.shapes}
        self.kafka = kafka
        self.cluster = cluster
        self.redis = redis_settings({"KEYLANE_REDIS_NODES": cluster.addresses})
        self.job_links = Links(node.port for node in cluster.nodes)
        self.clock_file, self.cut_file = folder / "clock", folder / "cut"
        outside.set_clock(self.clock_file, 0)
        self.jobs = 0
        self._lock = threading.Lock()
        for node in cluster.nodes:
            settle(node)
        self.side_numbers = itertools.count()
        self.side_keys: dict[tuple[str, bytes], None] = {}
        """Topic and key of all that side topics ever had; a dict, because events add while readers look."""
        self.slowness = Slowness(self.shard_of, folder / SLOW_FILE)
        links = [reader_links.ports[node.port] for node in cluster.nodes]
        self.witness = Witness([links[number :: cluster.shards] for number in range(cluster.shards)])
        self.stripes = {name: {shape.stripes} for name, shape in self.shapes.items()}
        """All numbers of stripes that a topic has had."""
        self.moves: list[Move] = []
        """When slots were on their way to another shard."""
        self.journals = {topic: Journal() for topic in SIDE_TOPICS}
        for shape in configuration.shapes:
            create_replicated(kafka, shape.name, shape.partitions)
        for topic, config in SIDE_TOPICS.items():
            create_replicated(kafka, topic, SIDE_PARTITIONS, config)
        self.job = self.new_job()
        self.job.wait_ready()

    def new_job(self) -> Job:
        """Start another job, which is not yet `self.job`."""
        with self._lock:
            self.jobs += 1
            number = self.jobs
        environment = {
            "KEYLANE_KAFKA_BOOTSTRAP": self.kafka.job_bootstrap,
            "KEYLANE_REDIS_NODES": self.cluster.addresses,
            "KEYLANE_JARS": str(tools_dir() / "jars"),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(project_root()), os.environ.get("PYTHONPATH")))),
            outside.PORTS: json.dumps(self.job_links.ports),
            outside.CLOCK_FILE: str(self.clock_file),
            outside.CUT_FILE: str(self.cut_file),
        }
        return Job(number, self.folder, environment)

    def reader_state(self) -> RedisState:
        """What the functions read with, over the readers' links."""
        return WatchedState(LinkedCluster(self.redis, self.reader_links.ports), self.slowness.note)

    @contextlib.contextmanager
    def store(self) -> Iterator[Store]:
        """What a function reads from that nobody slows down."""
        state = RedisState(Cluster(self.redis))
        try:
            yield Store(state, Layouts(state, CLOCK, STORE_LAYOUT_TTL_S), CLOCK)
        finally:
            state.close()

    def restripe(self) -> str:
        """Change the number of stripes of the first topic in the job's config; returns the topic."""
        config = self.folder / "keylane.toml"
        before, stripes, after = re.split(r"(?m)^stripes = (\d)$", config.read_text(), maxsplit=1)
        topic: str = re.findall(r"(?m)^\[topics\.(\w+)\]$", before)[-1]
        self.stripes[topic].add(5 - int(stripes))
        config.write_text(f"{before}stripes = {5 - int(stripes)}{after}")
        return topic

    def define_rows(self, definition: str) -> None:
        """Put another view over the table into the job's config."""
        config = self.folder / "keylane.toml"
        before, _, _ = config.read_text().partition(f"[views.{ROWS}]")
        config.write_text(f"{before}[views.{ROWS}]\n{definition}")

    def close(self) -> None:
        """End the job, its links, and the witness."""
        self.witness.close()
        self.job.end()
        for process in psutil.Process(os.getpid()).children():
            # Jobs that an event left behind.
            with contextlib.suppress(psutil.NoSuchProcess):
                if outside.__name__ in process.cmdline():
                    stop_now(process)
        self.job_links.close()

    def shard(self, number: int) -> tuple[RedisNode, RedisNode]:
        """Primary and replica of a shard, when both are up."""
        first, second = self.cluster.nodes[number], self.cluster.nodes[number + self.cluster.shards]
        return (first, second) if is_primary(first) else (second, first)

    def shard_of(self, slot: int) -> int:
        """The shard of a slot: shards have equal, contiguous ranges, and a slot that moves comes back."""
        shards = self.cluster.shards
        return (slot * shards + shards - 1) // 16384

    def layouts(self, *, everything: bool = False) -> dict[str, Layout]:
        """The layouts that readers go by: of topics, or also of side topics and (`~NAME`) of views."""
        views = (*self.configuration.views, *self.configuration.document_views, ROWS)
        more = (*SIDE_TOPICS, *map(windows.state_name, views)) if everything else ()
        cluster = Cluster(self.redis)
        try:
            store = LayoutStore(cluster, CLOCK)
            found = {topic: store.get(topic) for topic in (*self.shapes, *more)}
            return {topic: layout for topic, layout in found.items() if layout is not None}
        finally:
            cluster.close()

    def watermarks(self, layouts: dict[str, Layout]) -> dict[tuple[str, int, int], Watermark | None]:
        """The watermarks of all lanes, read from primaries, by topic, partition and stripe."""
        found = {}
        lanes = [lane for layout in layouts.values() for lane in lanes_of(layout)]
        with self.primaries() as clients:
            for lane in lanes:
                data = clients[self.shard_of(lane.slot)].get(lane.watermark_key)
                found[lane.topic, lane.partition, lane.stripe] = data and codec.decode_watermark(data)
        return found

    @contextlib.contextmanager
    def primaries(self) -> Iterator[list[redis.Redis]]:
        """A client of each shard's primary, with replies as bytes."""
        nodes = [self.shard(number)[0] for number in range(self.cluster.shards)]
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(redis.Redis(port=node.port, socket_timeout=5)) for node in nodes]

    def wait_repaired(self) -> None:
        """Wait until broker and cluster are as at the start, apart from roles. Raises PartFailed."""
        self.kafka.wait_ready()
        self.cluster.wait_ready(REPAIRED_WITHIN_S)


@functools.lru_cache(maxsize=4096)
def slot_of(layout: Layout, key: bytes) -> int:
    """The slot in which readers look for a key."""
    return lane_of_key(layout, key).slot


def is_primary(node: RedisNode) -> bool:
    return node.running and node.facts()["role"] == "master"


def settle(node: RedisNode) -> None:
    """Configure a node for torture; a restart loses these settings."""
    # A replica may be promoted even if it is behind: that is how writes get lost.
    node.command("CONFIG", "SET", "cluster-replica-validity-factor", 0)
    node.command("CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT_MS)


@contextlib.contextmanager
def running_stack(folder: Path, configuration: Configuration) -> Iterator[TortureStack]:
    """Start everything below `folder`; it ends with the block, even if the session is killed."""
    folder.mkdir(parents=True, exist_ok=True)
    reader = os.environ.get(READER, configuration.reader)
    job = CONFIG.format(wait_replicas=configuration.wait_replicas, reader=reader, outside=outside)
    (folder / "keylane.toml").write_text(f"{job}{configuration.toml()}")
    issuer = StackIssuer(configuration)
    with (
        guarded(folder),
        running_brokers(folder / "k", configuration.brokers) as kafka,
        own_cluster(folder / "r", appendonly=True) as cluster,
        contextlib.closing(Links(node.port for node in cluster.nodes)) as links,
        running_hosts(folder, kafka, cluster.addresses, links.ports, issuer.policy) as hosts,
    ):
        stack = TortureStack(folder, kafka, cluster, hosts, configuration, links, issuer)
        try:
            yield stack
        finally:
            stack.close()
            cluster.stop()


def wait_until(condition, within_s: float, what: str) -> None:
    """Poll a condition. Raises TimeoutError, which names `what`."""
    until_s = time.monotonic() + within_s
    while True:
        asked_s = time.monotonic()
        if condition():
            return
        if time.monotonic() > until_s:
            raise TimeoutError(f"{what}: not within {within_s:.0f} s")
        rest(asked_s, _REST_S, _LONGEST_REST_S)


def _favour(process: psutil.Process) -> None:
    """Give the process' session more of the processors than others, as far as the kernel lets us.

    Linux shares them out by session: the driver, its JVM and all workers had as much as one idle node's.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{process.pid}/autogroup").write_text(str(_NICENESS))


def rest(began_s: float, least_s: float, most_s: float) -> None:
    """Pause three times as long as what began then has taken, within these: the job needs processors, too."""
    took_s = time.monotonic() - began_s
    time.sleep(min(most_s, max(least_s, _RESTS * took_s)))
