"""What a release does with a Kafka and a Redis Cluster that it did not start, and with their own topic."""

import contextlib
import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from keylane_build.release.installed import Installed, wait_for
from keylane_build.release.versions import NotReleasable
from keylane_local.process.guard import guarded
from keylane_local.process.ports import HOST, Ports
from keylane_local.servers.kafka import Kafka
from keylane_local.servers.redis_cluster import RedisCluster

_TOPIC, _PARTITIONS, _ORDERS = "orders.eu", 3, 10_000
_READY_S = 120.0


def try_own_kafka(here: Installed) -> None:
    """`keylane new`, an edited keylane.toml, `keylane up`, a write and reads over HTTP, `keylane down`."""
    project = here.inside("orders")
    with _servers(here.folder / "theirs") as (kafka, redis), contextlib.ExitStack() as stack:
        _produce(kafka.bootstrap)
        with _timed("keylane new"):
            new = ("keylane", "new", "orders", "--kafka", kafka.bootstrap, "--redis", redis.addresses)
            here.expect(f"{_TOPIC}: partitioner crc32", *new)
        _edit(project.folder / "keylane.toml", f'[topics."{_TOPIC}"]', "index = true")
        with _timed("keylane check"):
            project.expect(f"at most {_ORDERS:,} keys", "keylane", "check")
        stack.callback(project.run, "keylane", "down", "--wipe")
        with _timed("keylane up, until it returns"):
            project.run("keylane", "up")
        port = json.loads((project.folder / ".keylane" / "stack.json").read_text("utf-8"))["http_port"]
        topic = f"http://{HOST}:{port}/topics/{_TOPIC}"
        with _timed(f"then, until the last of {_ORDERS:,} records is read over HTTP"):
            _expect({"of": _ORDERS - 1}, topic, _key(_ORDERS - 1), project)
        _write_and_read(topic, project)
        with _timed("keylane down"):
            project.run("keylane", "down")
        if not (kafka.running and redis.running):
            raise NotReleasable("keylane down stopped servers that keylane up did not start")


def _key(number: int) -> str:
    return f"A-{number:05}"


def _write_and_read(topic: str, project: Installed) -> None:
    with _timed("a write over HTTP, and the read that waits for it"):
        request = urllib.request.Request(f"{topic}/keys/{_key(7)}", b'{"of": "http"}', method="PUT")  # noqa: S310
        with urllib.request.urlopen(request, timeout=_READY_S) as answer:  # noqa: S310
            position = json.load(answer)["position"]
        _expect({"of": "http"}, topic, _key(7), project, position)
    # A range needs the index, which is the edit.
    found = json.loads(wait_for(f"{topic}/keys?prefix=A-0000&fields=of", lambda: _log(project)))["records"]
    values = [each["value"]["of"] for each in found]
    if values != [0, 1, 2, 3, 4, 5, 6, "http", 8, 9]:
        raise NotReleasable(f"the range of {topic} is {values}")


def _expect(value: object, topic: str, key: str, project: Installed, position: str = "") -> None:
    headers = {"Keylane-Min-Position": position} if position else {}
    read = json.loads(wait_for(f"{topic}/keys/{key}", lambda: _log(project), headers))
    if read != value:
        raise NotReleasable(f"{topic} has {read} under {key}, not {value}")


def _log(project: Installed) -> str:
    return project.run("keylane", "logs", "job")


def _edit(file: Path, after: str, line: str) -> None:
    text = file.read_text("utf-8")
    if after not in text:
        raise NotReleasable(f"{file.name} has no {after}:\n{text}")
    file.write_text(text.replace(after, f"{after}\n{line}"), encoding="utf-8")


@contextlib.contextmanager
def _timed(what: str) -> Iterator[None]:
    started_s = time.monotonic()
    yield
    print(f"own Kafka: {what}: {time.monotonic() - started_s:.2f} s", flush=True)


@contextlib.contextmanager
def _servers(data: Path) -> Iterator[tuple[Kafka, RedisCluster]]:
    ports, run, logs = Ports(), data / "run", data / "logs"
    with guarded(data):
        kafka = Kafka(
            data / "kafka", run=run, log=logs / "kafka.log", port=ports.any(), controller_port=ports.any()
        )
        addresses = [(HOST, ports.any(), ports.any()) for _ in range(6)]
        redis = RedisCluster(data / "redis", run=run, logs=logs, addresses=addresses, appendonly=False)
        kafka.start()
        redis.start()
        kafka.wait_ready(_READY_S)
        redis.wait_ready(_READY_S)
        yield kafka, redis


def _produce(bootstrap: str) -> None:
    """Write the topic as librdkafka's own clients do."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1)])[_TOPIC].result(_READY_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(_ORDERS):
        producer.produce(_TOPIC, key=_key(number), value=json.dumps({"of": number}))
        producer.poll(0)
    if producer.flush(_READY_S):
        raise NotReleasable("the broker did not accept the orders")
