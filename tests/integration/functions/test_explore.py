"""The explore function on a real broker, and on the state that a real cluster has."""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.servers.own import create_topic, eventually, fill
from tests.support.builders import a_layout, a_topic, an_event, headers_of, layout_entry, load_handler
from tests.support.stopwatch import Stopwatch, takes_about

from keylane import routing

if TYPE_CHECKING:
    from collections.abc import Callable

    Get = Callable[..., tuple[int, dict[str, Any]]]
PARTITIONS = 2


@pytest.fixture
def get(kafka: str, monkeypatch: pytest.MonkeyPatch) -> Get:
    """One warm function: `get(path, **query)` gives status and document."""
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", kafka)
    return asking()


def asking() -> Get:
    function = load_handler("explore")

    def ask(path: str, **query: Any) -> tuple[int, dict[str, Any]]:
        texts = {name: str(value) for name, value in query.items()}
        answer = function.lambda_handler(an_event("GET", path, query=texts or None), None)
        assert len(json.dumps(answer)) < 6 * 1024 * 1024
        assert "Content-Type" in headers_of(answer)
        return answer["statusCode"], json.loads(answer["body"])

    return ask


def write(kafka: str, topic: str, values: list[bytes | None], partition: int = 0, **record: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka, "message.max.bytes": 1_100_000})
    for value in values:
        producer.produce(topic, value, b"k", partition, **record)
    assert producer.flush(20) == 0


class Transaction:
    """A transactional producer; what it writes is on the broker when `write` returns."""

    def __init__(self, kafka: str, topic: str) -> None:
        self.topic = topic
        self.producer = Producer({"bootstrap.servers": kafka, "transactional.id": a_topic()})
        self.producer.init_transactions(30)
        self.producer.begin_transaction()

    def write(self, *values: bytes) -> None:
        for value in values:
            self.producer.produce(self.topic, value, b"k", 0)
        assert self.producer.flush(20) == 0


def values_of(page: dict[str, Any]) -> list[tuple[int, Any]]:
    return [(record["offset"], record["value"]) for record in page["records"]]


def test_transactions_leave_gaps_that_are_no_fault(get: Get, kafka: str, topic: str):
    records, latest = f"/topics/{topic}/partitions/0/records", f"/topics/{topic}/partitions/0/offsets"
    aborted, committed = Transaction(kafka, topic), Transaction(kafka, topic)
    aborted.write(b"a0", b"a1")
    committed.write(b"c2")
    # A transaction's marker may come a moment after the commit is acknowledged.
    aborted.producer.abort_transaction(20)
    eventually(lambda: get(latest, isolation="read_uncommitted")[1]["offset"] == 4)
    committed.write(b"c4")
    committed.producer.commit_transaction(20)
    eventually(lambda: get(latest)[1]["offset"] == 6)
    _, page = get(records)
    assert values_of(page) == [(2, "c2"), (4, "c4")]
    assert (page["next_offset"], page["watermarks"]) == (6, {"low": 0, "high": 6})
    _, page = get(records, limit=1)
    assert (values_of(page), page["next_offset"]) == ([(2, "c2")], 3)
    _, page = get(records, offset=5)
    assert (values_of(page), page["next_offset"]) == ([], 6)
    _, page = get(records, isolation="read_uncommitted")
    assert values_of(page) == [(0, "a0"), (1, "a1"), (2, "c2"), (4, "c4")]
    assert page["next_offset"] == 6

    open_one = Transaction(kafka, topic)
    open_one.write(b"o6")
    write(kafka, topic, [b"v7"])
    _, page = get(records, offset=4)
    assert (values_of(page), page["next_offset"]) == ([(4, "c4")], 6)
    assert page["watermarks"] == {"low": 0, "high": 6}
    _, page = get(records, offset=7)
    assert (values_of(page), page["next_offset"]) == ([], 7)
    assert get(records, offset=9)[0] == 404
    _, page = get(records, offset=4, isolation="read_uncommitted")
    assert values_of(page) == [(4, "c4"), (6, "o6"), (7, "v7")]
    assert (get(latest)[1]["offset"], get(latest, isolation="read_uncommitted")[1]["offset"]) == (6, 8)
    open_one.producer.commit_transaction(20)
    eventually(lambda: get(latest)[1]["offset"] == 9)
    assert values_of(get(records, offset=5)[1]) == [(6, "o6"), (7, "v7")]


def test_records_that_retention_removed_are_out_of_range(get: Get, kafka: str, topic: str):
    write(kafka, topic, [b"%d" % n for n in range(10)])
    path = f"/topics/{topic}/partitions/0/records"
    assert values_of(get(path, limit=1)[1]) == [(0, 0)]
    admin = AdminClient({"bootstrap.servers": kafka})
    (removed,) = admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    assert removed.result(20).low_watermark == 4
    status, problem = get(path, offset=3)
    assert (status, problem["code"]) == (404, "OFFSET_OUT_OF_RANGE")
    assert (problem["low"], problem["high"]) == (4, 10)
    assert [offset for offset, _ in values_of(get(path)[1])] == list(range(4, 10))
    assert get(path, offset=11)[1]["code"] == "OFFSET_OUT_OF_RANGE"
    status, page = get(path, offset=10)
    assert (status, page["records"], page["next_offset"]) == (200, [], 10)


def test_requests_of_a_warm_function_do_not_disturb_each_other(get: Get, kafka: str, topic: str):
    for partition in (0, 1):
        write(kafka, topic, [b'"%d-%d"' % (partition, n) for n in range(3_000)], partition)
    asked = [(p, offset, isolation) for p in (0, 1) for offset in (0, 2_500, 10) for isolation in ("", "un")]
    times: list[float] = []
    for partition, offset, isolation in asked * 2:
        with Stopwatch() as watch:
            _, page = get(
                f"/topics/{topic}/partitions/{partition}/records",
                offset=offset,
                limit=1_000,
                isolation=f"read_{isolation}committed",
            )
        times.append(watch.seconds)
        expected = range(offset, min(offset + 1_000, 3_000))
        assert values_of(page) == [(n, f"{partition}-{n}") for n in expected]
        assert page["next_offset"] == expected.stop
    assert median(times) < 0.8, "what was fetched for one request holds the next ones up"


def test_a_topic_that_was_made_anew_is_read_as_it_is_now(get: Get, kafka: str, topic: str):
    path = f"/topics/{topic}/partitions/0/records"
    write(kafka, topic, [b'"old"'] * 5)
    assert values_of(get(path)[1])[0] == (0, "old")
    before = get(f"/topics/{topic}/partitions")[1]["topic_id"]
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_topics([topic])[topic].result(20)
    eventually(lambda: get(path)[0] == 404)
    create_topic(kafka, topic, 1)
    write(kafka, topic, [b'"new"'])
    with takes_about(1):
        assert values_of(get(path)[1]) == [(0, "new")]
    assert get(f"/topics/{topic}/partitions")[1]["topic_id"] != before


def test_partitions_have_the_slots_and_shards_that_readers_use(
    kafka: str, redis_cluster: str, monkeypatch: pytest.MonkeyPatch
):
    layout = a_layout(partition_count=3)
    create_topic(kafka, layout.topic, 3)
    fill(redis_cluster, layout_entry(layout))
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", kafka)
    monkeypatch.setenv("KEYLANE_REDIS_NODES", redis_cluster)
    get = asking()
    status, found = get(f"/topics/{layout.topic}/partitions")
    assert (status, found["state"], found["internal"]) == (200, "kept", False)
    assert [each["slot"] for each in found["partitions"]] == [routing.slot_for(n, 0, 3, 1) for n in range(3)]
    shards = [each["shard"] for each in found["partitions"]]
    assert len(set(shards)) == 3
    assert set(shards) <= set(redis_cluster.split(","))
    _, one = get(f"/topics/{layout.topic}/partitions/2")
    assert one == {"topic": layout.topic, "state": "kept"} | found["partitions"][2]
    assert one["leader"] in one["replicas"] == one["in_sync"]
    assert {"topic": layout.topic, "partitions": 3} in get("/topics", prefix=layout.topic)[1]["topics"]
    status, health = get("/health")
    assert (status, {name: part["ready"] for name, part in health["parts"].items()}) == (
        200,
        {"kafka": True, "redis": True},
    )
