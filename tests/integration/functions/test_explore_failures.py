"""Looking into a real broker that goes away, hangs, compacts, and would create topics for those who ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.functions.test_explore import asking, values_of, write
from tests.servers.own import create_topic, eventually, own_kafka, suspended, wait_writable
from tests.support.builders import a_topic
from tests.support.stopwatch import takes_about

from keylane_local.servers import kafka as local_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.functions.test_explore import Get

    from keylane_local.servers.kafka import Kafka

TIMEOUT_MS = 2_000


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker that creates topics for those who ask, and looks often for what to compact."""
    with pytest.MonkeyPatch.context() as patch:
        settings = local_kafka._SERVER.replace(
            "auto.create.topics.enable=false", "auto.create.topics.enable=true"
        )
        assert settings != local_kafka._SERVER
        patch.setattr(local_kafka, "_SERVER", settings + "log.cleaner.backoff.ms=100\n")
        with own_kafka(tmp_path_factory.mktemp("explored-kafka")) as broker:
            yield broker


@pytest.fixture
def broker(one_broker: Kafka) -> Kafka:
    """A broker to break, up again for each test."""
    one_broker.start()
    wait_writable(one_broker)
    return one_broker


@pytest.fixture
def topic(broker: Kafka) -> str:
    name = a_topic()
    create_topic(broker.bootstrap, name, 1)
    write(broker.bootstrap, name, [b"0", b"1", b"2"])
    return name


@pytest.fixture
def get(broker: Kafka, monkeypatch: pytest.MonkeyPatch) -> Get:
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("KEYLANE_EXPLORE_TIMEOUT_MS", str(TIMEOUT_MS))
    monkeypatch.setenv("KEYLANE_HEALTH_TIMEOUT_MS", "500")
    return asking()


def assert_503_in_time(get: Get, topic: str) -> None:
    for path in ("", "/0/records"):
        with takes_about(TIMEOUT_MS / 1000):
            status, problem = get(f"/topics/{topic}/partitions{path}")
        assert (status, problem["type"]) == (503, "urn:keylane:problem:log-unavailable")
    with takes_about(0.8):
        status, health = get("/health")
    assert (status, health["ready"], list(health["parts"])) == (503, False, ["kafka"])


def assert_readable_again(get: Get, topic: str) -> None:
    def is_read() -> bool:
        status, page = get(f"/topics/{topic}/partitions/0/records", offset=1)
        assert status in {200, 503}
        return status == 200 and values_of(page) == [(1, 1), (2, 2)]

    eventually(is_read, 40)
    eventually(lambda: get("/health")[0] == 200)


def test_broker_that_goes_away_is_503_in_time_and_read_again_when_it_is_back(
    broker: Kafka, topic: str, get: Get
):
    assert values_of(get(f"/topics/{topic}/partitions/0/records")[1]) == [(0, 0), (1, 1), (2, 2)]
    broker.kill()
    assert_503_in_time(get, topic)
    broker.start()
    broker.wait_ready()
    assert_readable_again(get, topic)


@pytest.mark.long
def test_broker_that_hangs_is_503_in_time_and_read_again_when_it_goes_on(broker: Kafka, topic: str, get: Get):
    assert get(f"/topics/{topic}/partitions/0/records")[0] == 200
    process = broker.program.process
    assert process
    with suspended(process.pid):
        assert_503_in_time(get, topic)
    assert_readable_again(get, topic)


def test_a_topic_that_is_asked_for_is_never_created_by_that(broker: Kafka, get: Get):
    name = a_topic()
    for _ in range(2):
        for path in ("", "/0", "/0/offsets", "/0/records"):
            status, problem = get(f"/topics/{name}/partitions{path}")
            assert (status, problem["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
    assert get("/topics", prefix=name)[1] == {"topics": []}
    created = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics
    assert name not in created


def test_what_compaction_removed_is_no_fault(broker: Kafka, get: Get):
    name = a_topic()
    options = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.0"}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=options)])[name].result(20)
    path = f"/topics/{name}/partitions/0/records"

    def is_compacted() -> bool:
        # A segment ends with the write that comes after its time; the last one is never compacted.
        write(broker.bootstrap, name, [b"%d" % n for n in range(10)])
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


def test_address_where_no_broker_is_is_503_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("KEYLANE_EXPLORE_TIMEOUT_MS", "300")
    get = asking()
    for path in ("/topics", "/clusters", "/topics/t/partitions/0/records"):
        with takes_about(0.6):
            status, problem = get(path)
        assert (status, problem["type"]) == (503, "urn:keylane:problem:log-unavailable")
