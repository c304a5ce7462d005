"""The disk of a Kafka broker is full: it stops in the middle of a write, and starts again with room."""

from __future__ import annotations

import contextlib
import itertools
import json
import resource
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import create_topic, eventually, own_kafka, records_of, repair
from tests.support import jobs
from tests.support import lanes as t
from tests.support.builders import an_event, headers_of, load_handler
from tests.support.jobs import State

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from keylane_local.servers.kafka import Kafka

NUMBERS = itertools.count()
LARGE = 100_000
"""Of values: the topic's log must be longer than the broker's own logs, so that it meets the bound first."""
TORN_BYTES = 50
"""What the disk still takes of the first batch that does not fit."""
OLD_MS, FRESH_MS = 3_000, 2_000


@pytest.fixture
def broker(tmp_path) -> Iterator[Kafka]:
    with own_kafka(tmp_path / "broker") as kafka:
        yield kafka
        kafka.stop()


@contextlib.contextmanager
def full_disk(kafka: Kafka, topic: str) -> Iterator[None]:
    """No file of the broker gets longer than the topic's log and a part of a batch; then it has room again.

    A bound of the process, for which nobody has to be root, stands for that of a file system.
    """
    assert kafka.program.process
    pid = kafka.program.process.pid
    (log,) = (kafka.home / "data" / f"{topic}-0").glob("*.log")
    room_bytes = log.stat().st_size + TORN_BYTES
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (room_bytes, most))
    try:
        yield
        assert not kafka.running, "the broker has not met the bound"
        assert log.stat().st_size == room_bytes
    finally:
        repair(kafka)


@dataclass
class Writer:
    """A warm produce function, and what became of its records: positions of those that it acknowledged."""

    topic: str
    function: ModuleType = field(default_factory=lambda: load_handler("produce"))
    acknowledged: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    uncertain: list[bytes] = field(default_factory=list)

    def put(self, key: bytes, value: bytes) -> bool:
        """Write one record; returns whether it was acknowledged. The other answer is that nobody knows."""
        path = f"/topics/{self.topic}/keys/{key.decode()}"
        answer = self._ask(an_event("PUT", path, body=value))
        document = json.loads(answer["body"])
        if answer["statusCode"] == 201:
            self.acknowledged[document["offset"]] = key, value
            return True
        assert (answer["statusCode"], document["type"]) == (503, "urn:keylane:problem:log-unavailable")
        assert headers_of(answer)["Retry-After"] == "1"
        assert "may or may not have been written" in document["detail"]
        self.uncertain.append(value)
        return False

    def push(self, *records: tuple[bytes, bytes]) -> None:
        """Write records, none of which is acknowledged."""
        rows = [{"topic": self.topic, "key": key.decode(), "data": value.decode()} for key, value in records]
        answer = self._ask(an_event("POST", "/push", body=json.dumps({"records": rows}).encode()))
        document = json.loads(answer["body"])
        assert (answer["statusCode"], document["positions"]) == (503, [None] * len(records))
        assert all(error["retriable"] and error["uncertain"] for error in document["errors"])
        self.uncertain += [value for _, value in records]

    def _ask(self, event: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.function.lambda_handler(event, None)
        return answer

    @property
    def latest(self) -> dict[bytes, bytes]:
        """The last acknowledged value of each key."""
        return {key: value for _, (key, value) in sorted(self.acknowledged.items())}


@pytest.mark.long
def test_a_broker_whose_disk_is_full_costs_no_read_and_no_acknowledged_record(
    broker, redis_cluster, tmp_path, monkeypatch
):
    topic = f"full-disk-{next(NUMBERS)}"
    create_topic(broker.bootstrap, topic, 1)
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("KEYLANE_PRODUCE_TIMEOUT_MS", "3000")
    config = f"[job]\nheartbeat_ms = 200\n[topics.{topic}]\n"
    job = jobs.start(broker.bootstrap, redis_cluster, tmp_path, config)
    writer, state = Writer(topic), State(redis_cluster, topic)
    reader = state.reader()

    def age_ms() -> int:
        """The age of an answer, whose value must be the last one that was acknowledged."""
        for key, value in writer.latest.items():
            answer = reader.latest(key)
            assert answer.record
            assert answer.record.value == value
        return answer.age_ms(t.CLOCK.now_ms())

    try:
        job.wait_for("keylane: ready: epoch ")
        eventually(lambda: writer.put(b"k0", b"0" * LARGE))
        for number in range(1, 20):
            assert writer.put(b"k%d" % (number % 5), b"%d" % number * LARGE)
        eventually(lambda: state.holds(dict(writer.latest)) and age_ms() < FRESH_MS)
        seen = len(job.lines)
        with full_disk(broker, topic):
            assert not writer.put(b"k0", b"torn" * LARGE)
            writer.push((b"k1", b"one"), (b"k2", b"two"))
            job.wait_for("heartbeat: Kafka can't be asked", after=seen)
            eventually(lambda: age_ms() > OLD_MS)
            assert job.process.poll() is None
        eventually(lambda: writer.put(b"k3", b"after"))
        eventually(lambda: state.holds(dict(writer.latest)) and age_ms() < FRESH_MS)
    finally:
        job.end()
        reader.close()
        state.close()
    log = records_of(broker.bootstrap, topic, 0)
    assert {offset: log[offset] for offset in writer.acknowledged} == writer.acknowledged
    values = [value for _, value in log]
    assert all(values.count(value) <= 1 for value in writer.uncertain)
