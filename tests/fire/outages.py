"""Scenarios of what is behind the server: Kafka stops or is late, registry and names hang, a topic grows."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import TYPE_CHECKING

import redis
from confluent_kafka import Producer
from tests.fire.figures import Expectation, answered_with, gap_below, none_failed, outcomes_of, p99_below
from tests.fire.stage import (
    DOMAIN,
    GROWING_TOPIC,
    KAFKA_NAME,
    PARTITIONS,
    REGISTRY_TOPIC,
    in_front,
    resolver,
    with_resolver,
)
from tests.fire.trial import DURING, HEALS, READ_MS, open_trial
from tests.servers.own import eventually, grow_topic, suspended
from tests.servers.standing import StandingServer
from tests.support.jobs import State
from tests.torture.links import Mode

from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tests.fire.figures import Found
    from tests.fire.stage import FireStage
    from tests.fire.trial import Trial


STOP_S, LATE_S, LATE_FOR_S, HANG_S = 60.0, 5.0, 60.0, 30.0
WRITERS, REGISTRY_READERS = 400, 400
HEALED_WITHIN_S = 15.0
LIVE_MS = 50
SCHEMA_ID = 7
_SERVES = (
    p99_below(READ_MS, "read", DURING),
    none_failed("read", DURING),
    p99_below(LIVE_MS, "live", DURING),
)


def kafka_stops(stage: FireStage) -> Found:
    """Kafka is stopped for a minute, while 400 writers go on."""
    with open_trial(stage) as trial:
        trial.start_load(connections=WRITERS, per_s=WRITERS, seconds=STOP_S + 5, write_part=1.0)
        trial.phase("with writers", 5)
        with suspended(stage.kafka.program.process.pid):
            trial.phase(DURING, STOP_S)
        return _healed(trial)


KAFKA_STOPS = (*_SERVES, answered_with({201, 503, 504, 0}, "write", DURING), *HEALS)


def late_broker(stage: FireStage) -> Found:
    """The broker answers every request after 5 s, for a minute, while 400 writers go on."""
    late = stage.kafka.late
    with open_trial(stage, variables={"KEYLANE_KAFKA_BOOTSTRAP": late.bootstrap}) as trial:
        trial.start_load(connections=WRITERS, per_s=WRITERS, seconds=LATE_FOR_S, write_part=1.0)
        with late.set(Mode.LATE, LATE_S):
            trial.phase(DURING, LATE_FOR_S)
        return _healed(trial)


LATE_BROKER = (*_SERVES, answered_with({201, 503, 504}, "write", DURING), *HEALS)


def _healed(trial: Trial) -> Found:
    """Wait until writes are good again, and end the trial with a phase of rest."""
    trial.phase("until it heals")
    begun_s = time.monotonic()
    count_loads(trial)
    eventually(lambda: trial.server.ask("PUT", "/topics/fire/keys/healed", b'{"number": 0}')[0] == 201)
    trial.found.facts["heals within, s"] = round(time.monotonic() - begun_s, 1)
    return trial.rest_and_finish(3)


def count_loads(trial: Trial) -> list[dict[str, Any]]:
    """Wait for the loads, and add up their outcomes; return what each of them has printed."""
    reports = trial.end_loads()
    for report in reports:
        for status, count in report["outcomes"].items():
            if not count:
                continue
            (name,) = outcomes_of([int(status)])
            trial.found.load[name] = trial.found.load.get(name, 0) + count
    return reports


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """Yield the address of a server that takes connections and what they send, and says nothing."""
    with socket.create_server((HOST, 0), backlog=4096) as listening:
        yield f"http://{HOST}:{listening.getsockname()[1]}"


def registry_hangs(stage: FireStage) -> Found:
    """400 readers want values of a registry that says nothing; Redis' connections break meanwhile."""
    with silent_server() as url, open_trial(stage, variables={"KEYLANE_SCHEMA_REGISTRY_URL": url}) as trial:
        producer = Producer({"bootstrap.servers": stage.kafka.bootstrap})
        producer.produce(REGISTRY_TOPIC, b"\0" + SCHEMA_ID.to_bytes(4, "big") + b"\2", b"k")
        producer.flush()
        path = f"/topics/{REGISTRY_TOPIC}/keys/k"
        raw = {"Accept": "application/octet-stream"}
        eventually(lambda: trial.server.ask("GET", path, **raw)[0] == 200)
        trial.start_load(connections=REGISTRY_READERS, per_s=REGISTRY_READERS, seconds=HANG_S, path=path)
        trial.phase("with readers", 3)
        trial.phase(DURING, HANG_S / 3)
        for node in stage.redis.nodes:
            break_connections(trial, stage, node.port)
        trial.phase(DURING, HANG_S / 3)
        return _healed(trial)


REGISTRY_HANGS = (*_SERVES, none_failed("write", DURING), *HEALS)


def break_connections(trial: Trial, stage: FireStage, port: int) -> int:
    """Have a Redis node close the server's connections; return how many there were."""
    (node,) = (each for each in stage.redis.nodes if each.port == port)
    broken = 0
    for worker in trial.workers():
        for connection in worker.net_connections("tcp"):
            if connection.raddr and connection.raddr.port == port:
                address = f"{connection.laddr.ip}:{connection.laddr.port}"
                broken += int(node.command("CLIENT", "KILL", "ADDR", address))
    return broken


def dns_hangs(stage: FireStage) -> Found:
    """Names of Redis' nodes and of the broker are not resolved any more, and a shard's connections break."""
    nodes = stage.redis.nodes
    variables = {
        "KEYLANE_REDIS_NODES": f"redis-0.{DOMAIN}:{nodes[0].port}",
        "KEYLANE_KAFKA_BOOTSTRAP": f"{KAFKA_NAME}:{stage.kafka.named_port}",
    }
    with resolver() as names, _nodes_by_name(stage):
        log = stage.folder / "logs" / "server.log"
        program = in_front(with_resolver(stage.folder))
        server = StandingServer(log, {**stage.variables, **variables}, program=program)
        with open_trial(stage, server=server) as trial:
            names.is_silent, asked = True, names.asked
            begun_s, shard = time.monotonic(), stage.redis.shards
            found = trial.found.facts
            trial.phase(DURING)
            found["connections broken"] = sum(
                break_connections(trial, stage, node.port) for node in (nodes[0], nodes[shard])
            )
            time.sleep(HANG_S)
            found["queries that were not answered"] = names.asked - asked
            names.is_silent = False
            trial.phase("until it heals", HEALED_WITHIN_S)
            found["DNS hung for, s"] = round(time.monotonic() - begun_s - HEALED_WITHIN_S, 1)
            return trial.rest_and_finish()


DNS_HANGS = (
    p99_below(LIVE_MS, "live", DURING),
    answered_with({200, 404, 503}, "read", DURING),
    gap_below(2.5, "read", DURING),
    none_failed("write", DURING),
    Expectation(
        "names were asked for",
        lambda found: found.facts["queries that were not answered"] > 0,
        lambda found: found.facts["queries that were not answered"],
    ),
    *HEALS,
)


@contextlib.contextmanager
def _nodes_by_name(stage: FireStage) -> Iterator[None]:
    """Have Redis' nodes announce names, as those of a managed cluster do."""
    for number, node in enumerate(stage.redis.nodes):
        node.command("CONFIG", "SET", "cluster-announce-hostname", f"redis-{number}.{DOMAIN}")
    _prefer(stage, "hostname")
    try:
        eventually(lambda: all(_knows_names(stage, node.port) for node in stage.redis.nodes))
        yield
    finally:
        _prefer(stage, "ip")


def _knows_names(stage: FireStage, port: int) -> bool:
    (node,) = (each for each in stage.redis.nodes if each.port == port)
    slots = node.command("CLUSTER SLOTS")
    return f"redis-{len(stage.redis.nodes) - 1}.{DOMAIN}" in str(slots)


def _prefer(stage: FireStage, kind: str) -> None:
    for node in stage.redis.nodes:
        node.command("CONFIG", "SET", "cluster-preferred-endpoint-type", kind)


KEYS, VALUE_BYTES = 20_000, 170
READERS, READS_PER_S, MOST_S = 16, 100, 30


def key_of(number: int) -> bytes:
    return b"key-%06d" % number


def topic_grows(stage: FireStage) -> Found:
    """A topic of 20,000 keys grows from 6 to 12 partitions, while 100 reads/s look up one of its keys."""
    with open_trial(stage) as trial, contextlib.closing(State(stage.redis.addresses, GROWING_TOPIC)) as state:
        facts = trial.found.facts
        fill(stage.kafka.bootstrap)
        path = f"/topics/{GROWING_TOPIC}/keys/{key_of(KEYS - 1).decode()}"
        eventually(lambda: trial.server.ask("GET", path)[0] == 200)
        old, before_mib = state.layout, memory_mib(stage)
        assert old
        trial.phase(DURING)
        trial.start_load(connections=READERS, per_s=READS_PER_S, seconds=MOST_S, path=path)
        grown_s = time.monotonic()
        grow_topic(stage.kafka.bootstrap, GROWING_TOPIC, 2 * PARTITIONS)
        eventually(lambda: state.layout not in (None, old))
        switched_s, most_mib = time.monotonic(), memory_mib(stage)
        eventually(lambda: bool(state.record) and state.record.remove == ())
        facts["from growth until the new generation serves, s"] = round(switched_s - grown_s, 1)
        facts["from there until the old one is gone, s"] = round(time.monotonic() - switched_s, 1)
        facts["memory of the primaries, MiB"] = (before_mib, most_mib, memory_mib(stage))
        count_loads(trial)
        return trial.rest_and_finish()


def fill(bootstrap: str) -> None:
    """Write a record of each key."""
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 20})
    for number in range(KEYS):
        value = json.dumps({"number": number, "filler": "x" * VALUE_BYTES}).encode()
        producer.produce(GROWING_TOPIC, value, key_of(number))
        producer.poll(0)
    assert producer.flush(60) == 0


def memory_mib(stage: FireStage) -> float:
    used = 0
    for node in stage.redis.primaries():
        with redis.Redis(port=node.port) as client:
            used += client.info("memory")["used_memory"]
    return round(used / 2**20, 1)


TOPIC_GROWS = (
    none_failed("read", DURING),
    none_failed("write", DURING),
    Expectation(
        "reads of the topic that grows: nothing but 200",
        lambda found: set(found.load) == {"200"},
        lambda found: found.load,
    ),
    *HEALS,
)
