"""Writes to a real broker and looks into it, while it is away, hangs, compacts, and comes back."""

from __future__ import annotations

import gc
import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Uuid
from confluent_kafka.admin import AdminClient
from tests.integration.functions.test_explore import asking, values_of, write
from tests.servers.own import (
    create_topic,
    deadline,
    eventually,
    own_kafka,
    records_of,
    repair,
    suspended,
    wait_writable,
)
from tests.support.builders import a_topic, an_event, headers_of, kafka_settings, load_handler, written
from tests.support.stopwatch import takes_about

from keylane.adapters.kafka.options import Connection
from keylane.adapters.kafka.producer import KafkaProducer
from keylane.errors import LogUnavailable, UnknownTopic
from keylane.model.kafka import LogRange
from keylane.wiring.explore import open_reader
from keylane_local.servers.kafka import Kafka
from keylane_spark.log.kafka_admin import JobKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.functions.test_explore import Get

TIMEOUT_MS, EXPLORE_MS = 1_500, 1_000


class EagerKafka(Kafka):
    """A broker that creates topics for those who ask, and looks often for what to compact."""

    def more_settings(self) -> str:
        """See `Kafka.more_settings`."""
        return "auto.create.topics.enable=true\nlog.cleaner.backoff.ms=100\n"


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with own_kafka(tmp_path_factory.mktemp("breaking-kafka"), EagerKafka) as broker:
        yield broker


@pytest.fixture
def breaking(one_broker: Kafka) -> Kafka:
    """A broker to break, up again for each test and ready for its writes."""
    one_broker.start()
    wait_writable(one_broker)
    return one_broker


@pytest.fixture
def topic(breaking: Kafka) -> str:
    name = a_topic()
    create_topic(breaking.bootstrap, name, 1)
    return name


class Warm:
    """A produce function, as Lambda keeps it."""

    def __init__(self) -> None:
        self._function = load_handler("produce")

    def put(self, topic: str, value: bytes) -> dict[str, Any]:
        return self._ask("PUT", f"/topics/{topic}/keys/k", value)

    def push(self, topic: str, value: str) -> dict[str, Any]:
        """Push it under three keys."""
        records = [{"topic": topic, "key": f"k{number}", "data": value} for number in range(3)]
        return self._ask("POST", "/push", json.dumps({"records": records}).encode())

    def _ask(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        answer: dict[str, Any] = self._function.lambda_handler(an_event(method, path, body=body), None)
        return answer


@pytest.fixture(autouse=True)
def variables(breaking: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of functions that use the broker."""
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", breaking.bootstrap)
    monkeypatch.setenv("KEYLANE_PRODUCE_TIMEOUT_MS", str(TIMEOUT_MS))
    monkeypatch.setenv("KEYLANE_EXPLORE_TIMEOUT_MS", str(EXPLORE_MS))
    monkeypatch.setenv("KEYLANE_HEALTH_TIMEOUT_MS", "500")


def assert_put_is_503_in_time(warm: Warm, topic: str, value: bytes) -> None:
    with takes_about(TIMEOUT_MS / 1000):
        answer = warm.put(topic, value)
    assert answer["statusCode"] == 503
    assert headers_of(answer)["Retry-After"] == "1"
    assert json.loads(answer["body"])["type"] == "urn:keylane:problem:log-unavailable"


def assert_push_is_uncertain_in_time(warm: Warm, topic: str, value: str) -> None:
    with takes_about(TIMEOUT_MS / 1000):
        answer = warm.push(topic, value)
    assert (answer["statusCode"], headers_of(answer)["Retry-After"]) == (503, "1")
    document = json.loads(answer["body"])
    assert document["positions"] == [None] * 3
    assert all(entry["retriable"] and entry["uncertain"] for entry in document["errors"])


def assert_reads_are_503_in_time(get: Get, topic: str) -> None:
    for path in ("", "/0/records"):
        with takes_about(EXPLORE_MS / 1000):
            status, problem = get(f"/topics/{topic}/partitions{path}")
        assert (status, problem["type"]) == (503, "urn:keylane:problem:log-unavailable")
    with takes_about(0.8):
        status, health = get("/health")
    assert (status, health["ready"], list(health["parts"])) == (503, False, ["kafka"])


def values_read(get: Get, topic: str) -> list[Any]:
    """The values of the topic, none while Kafka is not there for the function."""
    status, page = get(f"/topics/{topic}/partitions/0/records")
    assert status in {200, 503}
    return [value for _, value in values_of(page)] if status == 200 else []


def test_with_the_broker_away_all_answer_503_in_time_and_what_failed_is_not_sent_later(
    breaking: Kafka, topic: str
):
    warm, get, job = Warm(), asking(), JobKafka(Connection(breaking.bootstrap))
    eventually(lambda: warm.put(topic, b"put before")["statusCode"] == 201)
    eventually(lambda: warm.push(topic, "push before")["statusCode"] == 200)
    assert values_read(get, topic)[0] == "put before"
    end = job.end_offsets({topic: 1})
    breaking.kill()
    assert_put_is_503_in_time(warm, topic, b"lost")
    assert_put_is_503_in_time(warm, topic, b"lost too")
    assert_push_is_uncertain_in_time(warm, topic, "lost")
    started_meanwhile = Warm()
    assert_put_is_503_in_time(started_meanwhile, topic, b"lost")
    assert_reads_are_503_in_time(get, topic)
    repair(breaking)

    def is_seen_by_the_job() -> bool:
        """Its client knows the partition under a leader epoch that is over."""
        try:
            return job.end_offsets({topic: 1}) == end
        except LogUnavailable:
            return False

    eventually(is_seen_by_the_job)
    eventually(lambda: warm.put(topic, b"put after")["statusCode"] == 201)
    eventually(lambda: warm.push(topic, "push after")["statusCode"] == 200)
    eventually(lambda: started_meanwhile.put(topic, b"put after")["statusCode"] == 201)
    values = [value for _, value in records_of(breaking.bootstrap, topic, 0)]
    assert set(values) == {b"put before", b"push before", b"put after", b"push after"}
    assert values[-4:] == [b"push after"] * 3 + [b"put after"]
    eventually(lambda: values_read(get, topic) == [value.decode() for value in values if value])
    eventually(lambda: get("/health")[0] == 200)


def test_with_a_broker_that_hangs_reads_are_503_and_the_outcome_of_a_write_is_called_unknown(
    breaking: Kafka, topic: str
):
    log = KafkaProducer(kafka_settings(breaking.bootstrap, timeout_ms=TIMEOUT_MS))
    assert written(log, topic, b"k", b"before", deadline(20_000)).offset == 0
    get = asking()
    assert values_read(get, topic) == ["before"]
    process = breaking.program.process
    assert process
    unknown = pytest.raises(LogUnavailable, match="may or may not have been written")
    with suspended(process.pid):
        with takes_about(1), unknown:
            written(log, topic, b"k", b"uncertain", deadline(500))
        assert_reads_are_503_in_time(get, topic)
    position = written(log, topic, b"k", b"after", deadline(20_000))
    assert records_of(breaking.bootstrap, topic, 0)[position.offset] == (b"k", b"after")
    eventually(lambda: "after" in values_read(get, topic))
    log.close()


def test_a_topic_that_is_asked_for_is_never_created_by_that(breaking: Kafka):
    name, get = a_topic(), asking()
    for _ in range(2):
        for path in ("", "/0", "/0/offsets", "/0/records"):
            status, problem = get(f"/topics/{name}/partitions{path}")
            assert (status, problem["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
    assert get("/topics", prefix=name)[1] == {"topics": []}
    reader = open_reader(os.environ)
    with pytest.raises((UnknownTopic, LogUnavailable)):
        reader.read([LogRange(name, 0, 0, 1, 1)], 1, deadline(2_000))
    created = AdminClient({"bootstrap.servers": breaking.bootstrap}).list_topics(timeout=10).topics
    assert name not in created


def test_what_compaction_removed_is_no_fault(breaking: Kafka):
    name = a_topic()
    options = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.0"}
    create_topic(breaking.bootstrap, name, 1, config=options)
    get = asking()
    path = f"/topics/{name}/partitions/0/records"

    def is_compacted() -> bool:
        # A segment ends with the write that comes after its time; the last one is never compacted.
        write(breaking.bootstrap, name, [b"%d" % n for n in range(10)])
        _, page = get(path, limit=1_000)
        found = [record["offset"] for record in page["records"]]
        assert found == sorted(found)
        assert page["next_offset"] == page["watermarks"]["high"]
        return len(found) < page["watermarks"]["high"]

    eventually(is_compacted)

    def reads_on_behind_the_gap() -> bool:
        # Compaction may go on between the two reads: then the first record is another one.
        _, page = get(path, limit=1_000)
        first = page["records"][0]["offset"]
        _, again = get(path, offset=0, limit=1)
        assert again["next_offset"] == again["records"][0]["offset"] + 1
        assert first > 0
        return again["records"][0]["offset"] == first

    eventually(reads_on_behind_the_gap)


def test_looks_at_an_address_where_no_broker_is_are_503_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("KEYLANE_EXPLORE_TIMEOUT_MS", "300")
    get = asking()
    for path in ("/topics", "/clusters", "/topics/t/partitions/0/records"):
        with takes_about(0.6):
            status, problem = get(path)
        assert (status, problem["type"]) == (503, "urn:keylane:problem:log-unavailable")


def test_a_topic_that_is_described_with_each_heartbeat_leaves_nothing_in_memory(kafka: str):
    topic = a_topic()
    create_topic(kafka, topic, 2)
    broker = JobKafka(Connection(kafka))

    def topic_ids() -> int:
        gc.collect()
        return sum(isinstance(each, Uuid) for each in gc.get_objects())

    before = topic_ids()
    for _ in range(50):
        assert broker.describe([topic])[topic].partition_count == 2
    assert topic_ids() <= before
