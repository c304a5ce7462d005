"""Records of random bytes and metadata for one job on real servers, and what must hold of them.

Partition 0 of each topic gets what is random, partition 1 a plain record each second. Of all of them:

1. the job's process never ends,
2. partition 1 stays fresh: each of its records is readable soon,
3. each record is stored, counted or passed by with its position: the lanes reach the log's end, each topic
   has the value that the readers' rule says, and a view's records are those in windows and those it counts.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.records.values import corpus
from tests.servers.own import PATIENCE_S, create_topic, own_cluster, own_kafka
from tests.support import jobs
from tests.support.views import Query

from keylane.api.http.rendering import as_json
from keylane.formats.change_events import parse_event
from keylane.model.records import Record
from keylane.routing import partition_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Say = Callable[[str], None]

TOPICS = {
    "plain": 'headers = true\nfields = { v = "text", at = "time" }',
    "where": 'where = "json is not null"\non_error = "keep"',
    "select": 'select = "json"\non_error = "skip"',
    "rows": 'envelope = "debezium"',
}
VIEWS = {
    "by-key": 'topic = "plain"\nkey = "k"\n[views.by-key.columns]\nn = "count()"\nl = "latest(v)"\n',
    "by-time": 'topic = "plain"\ntime = "at"\nwindow = "1d"\nlateness = "36500d"\n'
    '[views.by-time.columns]\nn = "count()"\n',
    "of-rows": 'topic = "rows"\nkey = "v"\n[views.of-rows.columns]\nn = "count()"\n',
}
CONFIG = '[job]\nreader = "{reader}"\nsmall_batch_records = {small}\nheartbeat_ms = 200\n'
ANY_TIME = {
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "message.timestamp.before.max.ms": str(2**63 - 1),
}
GO_ZERO_MS = -6_795_364_578_871_345_152
ODD_TIMES_MS = (GO_ZERO_MS, -(2**62), 2**63 - 1, 2**53, 9_223_372_036_854_776, -62_135_596_800_001, 1)
ODD_SHARE = 0.1
"""Of records with such a time."""
HUGE_EXPONENT = re.compile(rb"[eE][+-]?0*[1-9]\d{4}")
FRESH_KEY = next(key for number in range(100) if partition_for(key := b"fresh-%d" % number, 2) == 1)


@dataclass
class Fuzz:
    """One run. `values`: of partition 0, by topic and key; None: a tombstone."""

    bootstrap: str
    seed: int
    query: Query
    job: jobs.RunningJob
    say: Say
    nodes: str
    values: dict[str, dict[bytes, bytes | None]] = field(
        default_factory=lambda: {name: {} for name in TOPICS}
    )
    faults: list[str] = field(default_factory=list)
    sent: int = 0
    refused: int = 0
    oldest_s: float = 0.0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        self._pool = [value.data for value in corpus() if len(value.data) < 100_000]

    def run(self, seconds: float) -> None:
        """Send records, then judge."""
        until, number = time.monotonic() + seconds, 0
        while time.monotonic() < until and not self.faults:
            number += 1
            for topic in TOPICS:
                for _ in range(self._random.choice((1, 5, 16, 17, 60))):
                    self._send(topic)
            self._producer.flush(60)
            self._check_fresh(b"%d" % number)
            if number % 20 == 0:
                self.say(f"{self.sent:,} records, {self.refused:,} refused, fresh in {self.oldest_s:.1f} s")
        if not self.faults:
            self._judge()

    def _send(self, topic: str) -> None:
        key = self._key()
        value, ms = self._value(), int(time.time() * 1000)
        if self._random.random() < ODD_SHARE:
            ms = self._random.choice((*ODD_TIMES_MS, self._random.getrandbits(64) - 2**63))
        headers = [
            (self._random.choice(("", "traceparent", "é" * 9)), self._bytes())
            for _ in range(self._random.choice((0, 0, 3)))
        ]

        def delivered(error: Any, _: Any) -> None:
            if error is None:
                self.values[topic][key] = value
            else:
                self.refused += 1

        self.sent += 1
        with contextlib.suppress(KafkaException):
            self._producer.produce(
                topic, value, key, partition=0, on_delivery=delivered, timestamp=ms, headers=headers
            )
        self._producer.poll(0)

    def _key(self) -> bytes:
        """A new one of partition 0."""
        while True:
            key = b"%d-" % self.sent + self._random.randbytes(self._random.choice((1, 8, 40)))
            if partition_for(key, 2) == 0:
                return key

    def _bytes(self) -> bytes | None:
        return self._random.choice((None, b"", self._random.randbytes(30), b"00-" + b"1" * 52))

    def _value(self) -> bytes | None:
        """A value of the corpus, changed at random, often as fields that the views read."""
        kind, value = self._random.random(), self._random.choice(self._pool)
        if kind < 0.05:
            return None
        if kind < 0.35:
            at, data = (
                self._random.randrange(len(value) + 1),
                self._random.randbytes(self._random.choice((1, 1, 4))),
            )
            return value[:at] + data + value[at + self._random.choice((0, 1)) :]
        if kind < 0.75:
            other = self._random.choice(self._pool)
            return b'{"k":"%d","at":%s,"v":%s}' % (
                self._random.randrange(5),
                self._random.choice((b'"2013-07-04"', b"1", other)),
                value,
            )
        return value

    def _check_fresh(self, value: bytes) -> None:
        began = time.monotonic()
        for topic in TOPICS:
            fresh = b'{"before":null,"after":{"v":%s},"op":"c"}' % value
            self._producer.produce(topic, fresh, FRESH_KEY, 1)
        self._producer.flush(60)
        while waiting := [topic for topic in TOPICS if not self._shows(topic, value)]:
            if self.job.process.poll() is not None:
                self.faults.append(f"the job has ended: {self.job.lines[-5:]}")
                return
            if time.monotonic() - began > PATIENCE_S:
                self.faults.append(f"partition 1 of {waiting} is older than {PATIENCE_S} s")
                return
            time.sleep(0.1)
        self.oldest_s = max(self.oldest_s, time.monotonic() - began)

    def _shows(self, topic: str, value: bytes) -> bool:
        status, document = self.query.ask(f"/topics/{topic}/keys/{FRESH_KEY.decode()}")
        return status == 200 and value.decode() in json.dumps(document, default=str)

    def _judge(self) -> None:
        """Sentence 3."""
        for topic, values in self.values.items():
            state = jobs.State(self.nodes, topic)
            with contextlib.closing(state):
                ends = self._ends(topic)
                until = time.monotonic() + PATIENCE_S
                while any(
                    mark is None or mark.next_offset < ends[partition]
                    for (partition, _), mark in state.watermarks().items()
                ):
                    if time.monotonic() > until or self.job.process.poll() is not None:
                        self.faults.append(f"{topic}: {state.watermarks()} of {ends}")
                        return
                    time.sleep(0.2)
                reader = state.reader()
                for key, value in values.items():
                    found, wanted = reader.value(key), _wanted(topic, value)
                    if wanted is not Ellipsis and found != wanted:
                        self.faults.append(f"{topic} {key!r}: {found!r} is stored of {value!r}")
                reader.close()
        for view in VIEWS:
            self._judge_view(view)

    def _ends(self, topic: str) -> dict[int, int]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in (0, 1)}
        return {each.partition: found.result(30).offset for each, found in admin.list_offsets(asked).items()}

    def _judge_view(self, view: str) -> None:
        topic = "rows" if view == "of-rows" else "plain"
        values = [value for value in self.values[topic].values() if topic == "rows" or value is not None]
        until, found = time.monotonic() + PATIENCE_S, {}
        wanted = len(values) + self._fresh_count(topic)
        while time.monotonic() < until:
            status, state = self.query.ask(f"/views/{view}")
            rows = self.query.windows(view) if status == 200 else {}
            found = {name: state.get(name) for name in ("invalid", "failed", "failed_at", "stopped")}
            found["counted"] = sum(int(row["n"]) for row in rows.values())
            if found["stopped"]:
                break
            if topic == "rows" or found["counted"] + found["invalid"] + found["failed"] == wanted:
                self.say(f"view {view}: {found}")
                return
            time.sleep(0.5)
        self.faults.append(f"view {view}: {found} of {wanted} records")

    def _fresh_count(self, topic: str) -> int:
        return self._ends(topic)[1]


def _wanted(topic: str, value: bytes | None) -> Any:
    """What the topic stores of a value; Ellipsis where that depends on Spark's parser, too."""
    if topic == "plain" or value is None:
        return value
    if topic == "rows":
        try:
            return None if parse_event(value.decode()).row is None else value
        except ValueError:
            return value
    is_json = as_json(Record(b"", value, 0, 0, 0))[1] == "json"
    if topic == "where":
        # What is nested too deeply fails, and what has a number that a cast takes minutes for: it is kept.
        may_fail = value.count(b"[") + value.count(b"{") > 500 or HUGE_EXPONENT.search(value)
        return value if is_json else ... if may_fail else None
    return ... if is_json else None


def fuzz(folder: Path, seed: int, minutes: float, say: Say) -> list[str]:
    """Run for so long; returns the faults."""
    chance = random.Random(seed)
    config = CONFIG.format(reader=chance.choice(("direct", "spark")), small=chance.choice((0, 20, 20_000)))
    config += "".join(f"[topics.{name}]\n{options}\n" for name, options in TOPICS.items())
    config += "".join(f"[views.{name}]\n{options}" for name, options in VIEWS.items())
    say(f"seed {seed}: {config.splitlines()[1:3]}")
    with (
        own_kafka(folder) as kafka,
        own_cluster(folder, replicas=0) as redis,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in TOPICS:
            create_topic(kafka.bootstrap, name, 2, config=ANY_TIME)
        with jobs.running(kafka.bootstrap, redis.addresses, folder, config) as job:
            job.wait_for("keylane: ready")
            run = Fuzz(kafka.bootstrap, seed, Query(redis.addresses, patch), job, say, redis.addresses)
            run.run(minutes * 60)
            if job.process.poll() is not None:
                run.faults.append(f"the job has ended: {job.lines[-5:]}")
            say(f"{run.sent:,} records, {run.refused:,} refused, fresh in {run.oldest_s:.1f} s at most")
            return run.faults
