"""Servers that a test may break: started for one test, stopped with it, even if the session is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psutil
import redis
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from keylane.adapters.redis.cluster import Cluster
from keylane.config.functions import redis_settings
from keylane.ports import Clock, Deadline
from keylane_local.process.guard import guarded
from keylane_local.process.ports import HOST, Ports
from keylane_local.servers.kafka import Kafka
from keylane_local.servers.redis_cluster import SLOTS, RedisCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from confluent_kafka import Message

    from keylane_local.servers.redis_node import RedisNode

CLOCK = Clock()
READY_WITHIN_S = 180
"""For a server that starts while a machine is busy."""
PATIENCE_S = 200
"""How long a test waits for what has to come about: five times what the slowest takes at load 10."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.2
"""Between two looks: what takes long is looked at less often, for each look takes a part of a core."""
K = TypeVar("K", bound=Kafka)
S = TypeVar("S", Kafka, RedisCluster)


def deadline(milliseconds: float = 5_000) -> Deadline:
    """Return the moment in so many milliseconds; by default one that no busy machine reaches by itself."""
    return Deadline.after_ms(milliseconds, CLOCK)


def eventually(condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Poll until `condition` holds; fail if it does not within `within_s`.

    A bound of its own is for what takes longer than others: no test is quicker by a short one.
    """
    end_s, pause_s = time.monotonic() + within_s, FIRST_PAUSE_S
    while not condition():
        assert time.monotonic() < end_s, f"the condition did not hold within {within_s} s"
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.1, LONGEST_PAUSE_S)


SHORT_LIVED_JVMS = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""The options of JVMs that live for seconds, as a variable: the second compiler would take more time than it
gives back, and so would a collector with threads of its own."""


def shorten_jvm_starts() -> None:
    """Set the options of the JVMs that this process starts, unless there are some."""
    for name, options in SHORT_LIVED_JVMS.items():
        os.environ.setdefault(name, options)


@contextlib.contextmanager
def own_cluster(data: Path, *, appendonly: bool = False, replicas: int = 1) -> Iterator[RedisCluster]:
    """Yield a cluster of three primaries with so many replicas each, once every node knows it as complete."""
    ports = Ports()
    with guarded(data):
        cluster = RedisCluster(
            data / "redis",
            run=data / "run",
            logs=data / "logs",
            addresses=[(HOST, ports.any(), ports.any()) for _ in range(3 * (1 + replicas))],
            appendonly=appendonly,
        )
        cluster.start()
        cluster.wait_ready(READY_WITHIN_S)
        yield cluster


@contextlib.contextmanager
def own_kafka(data: Path, kind: type[K] = Kafka) -> Iterator[K]:  # type: ignore[assignment]
    """Yield a separate broker."""
    ports = Ports()
    with guarded(data):
        kafka = kind(
            data / "kafka",
            run=data / "run",
            log=data / "logs" / "kafka.log",
            port=ports.any(),
            controller_port=ports.any(),
        )
        kafka.start()
        wait_writable(kafka)
        yield kafka


def wait_writable(kafka: Kafka, within_s: float = READY_WITHIN_S) -> None:
    """Wait until the broker accepts a write of an idempotent producer, in a new topic.

    A broker that has just started answers the request for a producer id with "coordinator load in progress",
    possibly for longer than a test's timeout.
    """
    kafka.wait_ready(within_s)
    topic = f"scratch-{uuid.uuid4().hex}"
    create_topic(kafka.bootstrap, topic, 1)
    errors: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": round(within_s * 1000),
            "retry.backoff.ms": 20,
        }
    )
    producer.produce(topic, b"", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(within_s) == 0, "the broker did not accept a write"
    assert errors == [None]


def fill(addresses: str, entries: Mapping[bytes, bytes]) -> None:
    """Set keys with a plain client, and wait until their replicas have them."""
    host, _, port = addresses.split(",", maxsplit=1)[0].rpartition(":")
    with redis.RedisCluster(host=host, port=int(port), retry=Retry(ConstantBackoff(0.05), 40)) as client:
        for key, value in entries.items():
            client.set(key, value)
            node = client.get_node_from_key(key.decode("latin-1"))
            # A replica that was just started may read all keys first, for longer than one wait.
            eventually(lambda node=node: client.wait(1, 5_000, target_nodes=node) > 0)


def repair(server: S) -> S:
    """Start what a test has killed of a server or cluster, wait until it is ready, and return it."""
    server.start()
    server.wait_ready(READY_WITHIN_S)
    return server


def primary_and_replica(cluster: RedisCluster, slot: int) -> tuple[RedisNode, RedisNode]:
    """Return the slot's primary and replica, as the cluster's client sees them."""
    by_port = {node.port: node for node in cluster.nodes}
    client = Cluster(redis_settings({"KEYLANE_REDIS_NODES": cluster.addresses}))
    try:
        eventually(lambda: client.refresh(deadline()) is None and len(client.slots[slot]) > 1)
        primary, replica = client.slots[slot]
    finally:
        client.close()
    return by_port[primary.port], by_port[replica.port]


def catch_up(primary: RedisNode, replica: RedisNode) -> None:
    """Wait until the replica has all that its primary has written by now."""
    written = int(primary.facts()["master_repl_offset"])

    def has_it() -> bool:
        facts = replica.facts()
        return facts.get("master_link_status") == "up" and int(facts["slave_repl_offset"]) >= written

    eventually(has_it)


def suspend(*pids: int) -> None:
    """Stop processes, and return once they stand still: their threads may go on for a moment."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended: it stands still
            os.kill(pid, signal.SIGSTOP)
    eventually(lambda: all(_stands_still(pid) for pid in pids))


def _stands_still(pid: int) -> bool:
    try:
        states = [
            each.read_bytes().rpartition(b")")[2].split()[0]
            for each in Path(f"/proc/{pid}/task").glob("*/stat")
        ]
        if not states:  # no Linux, or it has ended
            return psutil.Process(pid).status() in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
    except psutil.NoSuchProcess:
        return True
    except (FileNotFoundError, ProcessLookupError):  # a thread has ended meanwhile
        return False
    return {*states} <= {b"T", b"t", b"Z", b"X"}


@contextlib.contextmanager
def suspended(*pids: int) -> Iterator[None]:
    """Have processes stand still during the block."""
    try:
        suspend(*pids)
        yield
    finally:
        resume(*pids)


def resume(*pids: int) -> None:
    """Have stopped processes go on."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def hanging(*nodes: RedisNode) -> Iterator[None]:
    """Make the nodes hang: their sockets take what comes, and nothing answers."""
    processes = [node.program.process for node in nodes]
    pids = [process.pid for process in processes if process]
    assert len(pids) == len(nodes), "a node does not run"
    with suspended(*pids):
        yield


@contextlib.contextmanager
def busy(node: RedisNode) -> Iterator[None]:
    """Make the node busy with a script that does not end: it answers BUSY to whatever is asked."""
    with redis.Redis(HOST, node.port) as control, redis.Redis(HOST, node.port, socket_timeout=60) as caller:
        control.config_set("busy-reply-threshold", 1)

        def run() -> None:
            with contextlib.suppress(redis.RedisError):  # that it was killed
                caller.eval("while true do end", 0)

        def is_busy() -> bool:
            try:
                return not control.ping()
            except redis.ResponseError as error:
                return "BUSY" in str(error)

        running = threading.Thread(target=run)
        running.start()
        try:
            eventually(is_busy)
            yield
        finally:
            control.script_kill()
            running.join()
            control.config_set("busy-reply-threshold", 5000)


@contextlib.contextmanager
def full(node: RedisNode, limit: object = 1) -> Iterator[None]:
    """Have the node reach its `maxmemory`, which is this."""
    before = node.command("CONFIG", "GET", "maxmemory")["maxmemory"]
    node.command("CONFIG", "SET", "maxmemory", limit)
    try:
        yield
    finally:
        node.command("CONFIG", "SET", "maxmemory", before)


class SlotMove:
    """A migration of a hash slot to another shard, key by key, as resharding tools do it."""

    def __init__(self, cluster: RedisCluster, slot: int) -> None:
        self.slot = slot
        self._cluster = cluster
        self.source, _ = primary_and_replica(cluster, slot)
        self.target, _ = primary_and_replica(cluster, (slot + SLOTS // 2) % SLOTS)
        self._ids = [str(node.command("CLUSTER", "MYID")) for node in (self.source, self.target)]

    def begin(self) -> None:
        self.target.command("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self._ids[0])
        self.source.command("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self._ids[1])

    def move(self, *keys: bytes, timeout_ms: int = 5_000) -> None:
        _migrate(self.source, self.target, keys, timeout_ms)

    def finish(self) -> None:
        """Assign the slot to the target, on both nodes."""
        for node in (self.target, self.source):
            node.command("CLUSTER", "SETSLOT", self.slot, "NODE", self._ids[1])

    def arrive(self) -> None:
        """Move all that is left, unless the slot is there, and wait until every node knows where it is."""
        if not self._is_known():
            with redis.Redis(port=self.source.port) as client:  # keys of other tests are in the slot, too
                self.move(*client.execute_command("CLUSTER", "GETKEYSINSLOT", self.slot, 100_000))
            self.finish()
            eventually(self._is_known)

    def _is_known(self) -> bool:
        """Whether each node would send clients to the target."""
        seen = set()
        for node in self._cluster.nodes:
            with contextlib.closing(Cluster(redis_settings({"KEYLANE_REDIS_NODES": node.address}))) as one:
                one.refresh(deadline())
                seen.add(one.primary(self.slot).port)
        return seen == {self.target.port}

    def turn_round(self) -> None:
        """Reverse the direction of the migration."""
        self.source, self.target = self.target, self.source
        self._ids.reverse()

    def undo(self) -> None:
        """Cancel the migration, and move the keys back."""
        self.source.command("CLUSTER", "SETSLOT", self.slot, "STABLE")
        with redis.Redis(port=self.target.port) as client:
            keys = client.execute_command("CLUSTER", "GETKEYSINSLOT", self.slot, 100_000)
        _migrate(self.target, self.source, keys, 5_000)
        self.target.command("CLUSTER", "SETSLOT", self.slot, "STABLE")


def _migrate(source: RedisNode, target: RedisNode, keys: Sequence[bytes], timeout_ms: int) -> None:
    if keys:
        with redis.Redis(port=source.port, socket_timeout=None) as client:
            client.execute_command("MIGRATE", HOST, target.port, "", 0, timeout_ms, "REPLACE", "KEYS", *keys)


def create_topic(
    bootstrap: str,
    topic: str,
    partition_count: int = 9,
    *,
    replication: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create a topic, and wait until each partition's leader answers.

    A broker reports a leader before that one takes records. What it refuses until then may be lost though its
    producer goes on (see `test_fatal_errors.py`).
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, partition_count, replication, config=dict(config or {}))
    admin.create_topics([new])[topic].result(60)

    def is_known() -> bool:
        partitions = admin.list_topics(topic, 60).topics[topic].partitions
        return len(partitions) == partition_count and all(p.leader >= 0 for p in partitions.values())

    def leads() -> bool:
        asked = {TopicPartition(topic, number): OffsetSpec.earliest() for number in range(partition_count)}
        return not any(future.exception(20) for future in admin.list_offsets(asked).values())

    eventually(is_known)
    eventually(leads)


def grow_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


def produce(
    bootstrap: str, topic: str, records: Iterable[Sequence[Any]], **settings: object
) -> list[Message]:
    """Write records: key, value and, if given, partition, timestamp and headers; return them in their order.

    What is returned has no headers: a delivery report has none.
    `settings`: the producer's, with `_` for a dot. Keys are placed as by Java's client.
    """
    acknowledged: dict[int, Message] = {}

    def take(number: int, error: object, message: Message) -> None:
        assert error is None, error
        acknowledged[number] = message

    named = {name.replace("_", "."): value for name, value in settings.items()}
    plain = {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 5}
    producer = Producer(plain | named)
    for number, (key, value, *rest) in enumerate(records):
        more = dict(zip(("partition", "timestamp", "headers"), rest, strict=False))
        producer.produce(topic, value, key, on_delivery=partial(take, number), **more)
        producer.poll(0)
    assert producer.flush(60) == 0
    return [acknowledged[number] for number in range(len(acknowledged))]


def remove_records(bootstrap: str, topic: str, ends: Mapping[int, int]) -> None:
    """Remove the records of partitions below these offsets, as retention does; all below `OFFSET_END`."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [TopicPartition(topic, partition, end) for partition, end in ends.items()]
    for removed in admin.delete_records(wanted).values():
        removed.result(30)


def records_of(bootstrap: str, topic: str, partition: int) -> list[tuple[bytes, bytes | None]]:
    """Return keys and values of all records of a partition."""
    return [(message.key(), message.value()) for message in messages_of(bootstrap, topic, partition)]


def messages_of(bootstrap: str, topic: str, partition: int) -> list[Message]:
    """Return all records of a partition; it may have no leader at first, as after its broker stood still."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tests", "enable.auto.commit": False})
    bounds: list[tuple[int, int]] = []

    def has_leader() -> bool:
        try:
            bounds.append(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
        return bool(bounds)

    try:
        eventually(has_leader)
        [(begin, end)] = bounds
        consumer.assign([TopicPartition(topic, partition, begin)])
        messages: list[Message] = []
        while len(messages) < end - begin:
            message = consumer.poll(10)
            assert message is not None  # an empty value makes it false
            assert not message.error(), message.error()
            messages.append(message)
        return messages
    finally:
        consumer.close()
