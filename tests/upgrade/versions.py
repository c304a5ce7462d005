"""What a version has left behind: its state, its log, its queue's messages, its settings and its answers.

Each version has a folder in `fixtures`:

    about.json          commit, prefix of the topics' names, their ids in Kafka, names of all settings
    keylane.toml        the job's settings
    environment.json    those of server and functions, with placeholders for addresses: {redis}, {kafka}, ...
    log.jsonl           the records of all topics, in the order in which they were written
    redis.jsonl         all keys in Redis
    queue.json          messages of the write-ahead log, its objects, and dead letters
    answers.jsonl       requests and what the version's server answered; ids of streams' first events

`python -m tests.upgrade.record --to tests/upgrade/fixtures/VERSION` makes one of the present version.
Its keys are text that can be reviewed: bytes are strings of U+0000 to U+00FF, one for each byte.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from tests.servers.own import create_topic
from tests.support import lanes as t
from tests.upgrade.sample import TOPICS, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redis.cluster import RedisCluster
    from tests.servers.aws import Aws


class StoredKey(NamedTuple):
    """A key, its type as Redis names it, its content, and in how many ms it expires (-1: never)."""

    key: bytes
    kind: str
    content: Any
    expires_in_ms: int

    def to_json(self) -> str:
        return json.dumps(
            {"key": _text(self.key), self.kind: self.content, "expires_in_ms": self.expires_in_ms}
        )

    @classmethod
    def from_json(cls, line: str) -> StoredKey:
        fields = json.loads(line)
        key, expires_in_ms = fields.pop("key"), fields.pop("expires_in_ms")
        [(kind, content)] = fields.items()
        return cls(_bytes(key), kind, content, expires_in_ms)


def stored_keys(nodes: str, patterns: Iterable[str]) -> list[StoredKey]:
    """All keys of a cluster that match one of the patterns, in order."""
    with t.client(nodes) as client:
        found = {
            key
            for pattern in patterns
            for key in client.scan_iter(match=pattern, count=10_000, target_nodes="primaries")
        }
        return [_read(client, key) for key in sorted(found)]


def store(nodes: str, keys: Iterable[StoredKey]) -> None:
    """Write keys as they were, and wait until a replica of each has them."""
    with t.client(nodes) as client:
        for each in keys:
            _write(client, each)
            client.wait(1, 5_000, target_nodes=client.get_node_from_key(_text(each.key)))


def _read(client: RedisCluster, key: bytes) -> StoredKey:
    kind = client.type(key).decode()
    content: Any
    if kind == "string":
        content = _text(client.get(key))
    elif kind == "hash":
        content = {_text(name): _text(value) for name, value in sorted(client.hgetall(key).items())}
    elif kind == "zset":
        content = [[_text(member), score] for member, score in client.zrange(key, 0, -1, withscores=True)]
    elif kind == "list":
        content = [_text(each) for each in client.lrange(key, 0, -1)]
    else:
        raise LookupError(f"{key!r} is a {kind}: how is it kept?")
    return StoredKey(key, kind, content, client.pttl(key))


def _write(client: RedisCluster, entry: StoredKey) -> None:
    key, content = entry.key, entry.content
    if entry.kind == "string":
        client.set(key, _bytes(content))
    elif entry.kind == "hash":
        client.hset(key, mapping={_bytes(name): _bytes(value) for name, value in content.items()})
    elif entry.kind == "zset":
        client.zadd(key, {_bytes(member): score for member, score in content})
    elif entry.kind == "list":
        client.rpush(key, *map(_bytes, content))
    else:
        raise LookupError(f"{key!r} is a {entry.kind}: how is it stored?")
    if entry.expires_in_ms >= 0:
        client.pexpire(key, entry.expires_in_ms)


def _text(data: bytes) -> str:
    return data.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


FIXTURES = Path(__file__).with_name("fixtures")
LOG_CONFIG = {"retention.ms": "-1"}
"""The records are years old."""


class Kept(NamedTuple):
    """A request, and what the version answered. `event`: the request is a stream's, the body its first id."""

    method: str
    path: str
    headers: dict[str, str]
    body: str
    status: int
    answer: str
    answer_headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Version:
    """The folder of a version."""

    folder: Path

    @property
    def about(self) -> dict[str, Any]:
        return self._json("about.json")

    @property
    def prefix(self) -> str:
        """What the names of its topics and views begin with."""
        return str(self.about["prefix"])

    @property
    def topics(self) -> list[str]:
        """The names, without the prefix, of the topics that its job has written: later samples have more."""
        return [name for name in self.about["partitions"] if name in TOPICS]

    @property
    def config(self) -> str:
        return (self.folder / "keylane.toml").read_text(encoding="utf-8")

    def environment(self, places: Mapping[str, str]) -> dict[str, str]:
        """The settings of server and functions, with addresses filled in."""
        return filled(self._json("environment.json"), places)

    @property
    def log(self) -> list[Row]:
        return [Row(*json.loads(line)) for line in self._lines("log.jsonl")]

    @property
    def keys(self) -> list[StoredKey]:
        return [StoredKey.from_json(line) for line in self._lines("redis.jsonl")]

    @property
    def queue(self) -> dict[str, Any]:
        return self._json("queue.json")

    @property
    def answers(self) -> list[Kept]:
        return [Kept(*json.loads(line)) for line in self._lines("answers.jsonl")]

    def _json(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / name).read_text(encoding="utf-8"))
        return found

    def _lines(self, name: str) -> list[str]:
        return (self.folder / name).read_text(encoding="utf-8").splitlines()


def filled(settings: Mapping[str, str], places: Mapping[str, str]) -> dict[str, str]:
    """Settings with addresses in the place of their placeholders."""
    found = dict(settings)
    for place, address in places.items():
        found = {name: value.replace(f"{{{place}}}", address) for name, value in found.items()}
    return found


def versions() -> list[Version]:
    """All versions that are kept, the oldest first."""
    return [Version(folder) for folder in sorted(FIXTURES.iterdir()) if folder.is_dir()]


def topic_ids(kafka: str, topics: Iterable[str]) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": kafka})
    found = admin.describe_topics(TopicCollection(list(topics)))
    return {name: str(each.result(30).topic_id) for name, each in found.items()}


def append(kafka: str, prefix: str, log: Iterable[Row]) -> None:
    """Write records to their partitions, in their order."""
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 5})
    for row in log:
        headers = [(name, value.encode()) for name, value in row.headers]
        value = None if row.value is None else row.value.encode()
        producer.produce(
            f"{prefix}-{row.topic}", value, row.key, row.partition, timestamp=row.at_ms, headers=headers
        )
    assert producer.flush(60) == 0


def ends_of(log: Iterable[Row]) -> Counter[tuple[str, int]]:
    """How many records each partition has, by topic and partition."""
    return Counter((row.topic, row.partition) for row in log)


def restore(version: Version, redis: str, kafka: str) -> None:
    """Write log and state of a version into running servers, as if they had been its own.

    Topics get other ids from this Kafka, and lanes another history of writes from this Redis: both are named
    in the state, and are replaced there.
    """
    about = version.about
    for name, partitions in about["partitions"].items():
        create_topic(kafka, f"{version.prefix}-{name}", partitions, config=LOG_CONFIG)
    append(kafka, version.prefix, version.log)
    now = topic_ids(kafka, about["topic_ids"])
    ids = {old.encode(): now[name].encode() for name, old in about["topic_ids"].items()}
    store(redis, [_adopted(each, ids) for each in version.keys])
    _claim_lanes(redis, version.prefix)


def _adopted(entry: StoredKey, ids: Mapping[bytes, bytes]) -> StoredKey:
    if b"}:topic:" not in entry.key:
        return entry
    content = entry.content
    for old, new in ids.items():
        content = content.replace(old.decode(), new.decode())
    return entry._replace(content=content)


def _claim_lanes(redis: str, prefix: str) -> None:
    """Name this cluster's nodes as those on which the lanes were opened: an upgrade leaves Redis running."""
    with t.client(redis) as client:
        for key in list(
            client.scan_iter(match=f"{{*}}:*{prefix}-*:l:*", count=10_000, target_nodes="primaries")
        ):
            node = client.get_node_from_key(key.decode("latin-1"))
            client.set(key, client.info("replication", target_nodes=node)["master_replid"])
            client.wait(1, 5_000, target_nodes=node)


def restore_queue(version: Version, aws: Aws) -> dict[str, str]:
    """Write messages, objects and dead letters into queues and a bucket; return these, by placeholder."""
    dead, bucket = aws.queue(), aws.bucket()
    queue = aws.queue(dead=dead, receives=3)
    kept = version.queue
    with aws.client("s3") as s3, aws.client("sqs") as sqs:
        for name, text in kept["objects"].items():
            s3.put_object(Bucket=bucket, Key=name, Body=text.encode("latin-1"))
        for url, messages in ((queue, kept["messages"]), (dead, kept["dead"])):
            for message in messages:
                sqs.send_message(QueueUrl=url, **message)
    return {"queue": queue, "dead": dead, "bucket": bucket}
