"""Metadata as REST Proxy's clients read it: v2 by negotiation, v3 by its paths, over fakes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import (
    a_layout,
    a_request,
    an_application,
    an_event,
    explore_settings,
    headers_of,
    layout_entry,
    no_schemas,
    reader_settings,
)
from tests.support.fakes import FakeKafka, FakeState, FakeTime

from keylane.api.http.gateway import answer
from keylane.app import explore
from keylane.config.api import ApiSettings
from keylane.model.clusters import DEFAULT, Named
from keylane.model.kafka import LogRecord
from keylane.model.served_topics import ServedTopics
from keylane.query.layouts import Layouts
from keylane.query.store import Store
from keylane.wiring.explore import ExploreParts

if TYPE_CHECKING:
    from collections.abc import Callable

    Get = Callable[..., tuple[int, Any]]

V2 = "application/vnd.kafka.v2+json"
REPLICA = {"broker": 1, "leader": True, "in_sync": True}
PARTITIONS = [{"partition": number, "leader": 1, "replicas": [REPLICA]} for number in range(2)]


@pytest.fixture
def kafka() -> FakeKafka:
    kafka = FakeKafka()
    logs = kafka.create("t", 2)
    logs[0].add(*(LogRecord(offset, b"k", b"v", 1_000, "CreateTime") for offset in range(3)))
    kafka.create("_schemas", 1)
    kafka.create("secret", 1)
    return kafka


@pytest.fixture
def get(kafka: FakeKafka) -> Get:
    other = FakeKafka(cluster_id="second")
    other.create("eu.t", 1)
    clock = FakeTime().clock
    layout = a_layout("t", 2)
    state = FakeState(layout_entry(layout))
    parts = ExploreParts(
        explore_settings(Named("eu", ("eu.*",), reader_settings("kafka:9092"))),
        clock,
        kafka,
        kafka,
        {DEFAULT: kafka, "eu": other},
        no_schemas,
        Store(state, Layouts(state, clock, 0), clock),
    )
    served = ApiSettings(topics=ServedTopics(("t", "nowhere", "eu.*")))
    application = an_application(explore.OPERATIONS, parts, served)

    def ask(path: str, accept: str = V2, method: str = "GET") -> tuple[int, Any]:
        event = an_event(method, path, headers={"Accept": accept})
        answered = answer(application, event, None)
        ask.headers = headers_of(answered)
        return answered["statusCode"], json.loads(answered["body"])

    return ask


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/topics", ["t"]),
        ("/topics/t", {"name": "t", "configs": {"cleanup.policy": "delete"}, "partitions": PARTITIONS}),
        ("/topics/t/partitions", PARTITIONS),
        ("/topics/t/partitions/1", PARTITIONS[1]),
        ("/topics/t/partitions/0/offsets", {"beginning_offset": 0, "end_offset": 3}),
        ("/brokers", {"brokers": [1]}),
    ],
)
def test_v2_documents_are_those_of_the_reference(get: Get, path: str, document: Any):
    assert get(path) == (200, document)
    assert get.headers["Content-Type"] == V2
    assert get.headers["Vary"] == "Accept"


@pytest.mark.parametrize(
    ("accept", "is_v2"),
    [
        ("application/vnd.kafka.v2+json", True),
        ("application/vnd.kafka+json", True),
        ("application/vnd.kafka.v1+json, application/vnd.kafka+json, application/json", True),
        ("Application/Vnd.Kafka.JSON.v2+json", True),
        ("application/vnd.kafka.v2+json; q=0.9, application/json; q=0.5", True),
        ("application/vnd.kafka.v2+json; q=0.5, application/json", False),
        ("application/vnd.kafka.v2+json; q=0, */*", False),
        ("application/vnd.kafka.v3+json", False),
        ("application/json", False),
        ("*/*", False),
    ],
)
def test_accept_chooses_between_the_two_documents(get: Get, accept: str, is_v2: bool):
    status, document = get("/topics/t/partitions", accept)
    assert (status, isinstance(document, list)) == (200, is_v2)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/topics/nowhere", 404, 40401),
        ("/topics/nowhere/partitions", 404, 40401),
        ("/topics/nowhere/partitions/0", 404, 40401),
        ("/topics/t/partitions/2", 404, 40402),
        ("/topics/t/partitions/2/offsets", 404, 40402),
        ("/topics/secret", 403, 40301),
        ("/topics/_schemas/partitions", 403, 40301),
        ("/topics/t/partitions/x", 400, 400),
    ],
)
def test_v2_errors_have_their_code(get: Get, path: str, status: int, code: int):
    answered, document = get(path)
    assert (answered, document["error_code"]) == (status, code)
    assert document["message"] == document["detail"]
    assert "error_code" not in get(path, "application/json")[1]


def test_kafka_that_is_away_is_503_with_50003(get: Get, kafka: FakeKafka):
    kafka.away = True
    for path in ("/topics", "/brokers", "/v3/clusters/fake"):
        status, document = get(path)
        assert (status, document["error_code"]) == (503, 50003)


def test_the_state_of_a_topic_is_described_while_kafka_is_away(get: Get, kafka: FakeKafka):
    kafka.away = True
    status, document = get("/topics/t", "application/json")
    assert (status, document["topic"], len(document["lanes"])) == (200, "t", 2)


BASE = "http://api.example.org/v3/clusters"
CLUSTER = f"{BASE}/fake"


def link(path: str) -> dict[str, str]:
    return {"related": f"{CLUSTER}/{path}"}


def resource(kind: str, path: str, own: str, /, **fields: Any) -> dict[str, Any]:
    """Return a resource of the cluster: `path` is where it is, `own` the end of its resource's name."""
    metadata = {"self": f"{CLUSTER}/{path}", "resource_name": f"crn:///kafka=fake/{own}"}
    return {"kind": kind, "metadata": metadata, "cluster_id": "fake", **fields}


def setting(kind: str, owner: str, name: str, *synonyms: str, **fields: Any) -> dict[str, Any]:
    """Return a setting of `topics/t` or `brokers/1`."""
    return resource(
        kind,
        f"{owner}/configs/{name}",
        f"{owner.replace('s/', '=')}/config={name}",
        **fields,
        name=name,
        value="delete",
        is_default=True,
        is_read_only=False,
        is_sensitive=False,
        source="DEFAULT_CONFIG",
        synonyms=[{"name": each, "value": "delete", "source": "DEFAULT_CONFIG"} for each in synonyms],
    )


PARTITION = "topics/t/partitions/1"
IN_PARTITION = {"topic_name": "t", "partition_id": 1}
GROUP = "consumer-groups/b%2F1%202"
RESOURCES = {
    "topics": resource(
        "KafkaTopic",
        "topics/t",
        "topic=t",
        topic_name="t",
        is_internal=False,
        replication_factor=1,
        partitions_count=2,
        partitions=link("topics/t/partitions"),
        configs=link("topics/t/configs"),
        partition_reassignments=link("topics/t/partitions/-/reassignment"),
    ),
    "topics/t/partitions": resource(
        "KafkaPartition",
        PARTITION,
        "topic=t/partition=1",
        **IN_PARTITION,
        leader=link(f"{PARTITION}/replicas/1"),
        replicas=link(f"{PARTITION}/replicas"),
        reassignment=link(f"{PARTITION}/reassignment"),
    ),
    f"{PARTITION}/replicas": resource(
        "KafkaReplica",
        f"{PARTITION}/replicas/1",
        "topic=t/partition=1/replica=1",
        **IN_PARTITION,
        broker_id=1,
        is_leader=True,
        is_in_sync=True,
        broker=link("brokers/1"),
    ),
    "brokers": resource(
        "KafkaBroker",
        "brokers/1",
        "broker=1",
        broker_id=1,
        host="kafka",
        port=9092,
        rack=None,
        configs=link("brokers/1/configs"),
        partition_replicas=link("brokers/1/partition-replicas"),
    ),
    "topics/t/configs": setting(
        "KafkaTopicConfig", "topics/t", "cleanup.policy", "log.cleanup.policy", topic_name="t"
    ),
    "brokers/1/configs": setting("KafkaBrokerConfig", "brokers/1", "log.cleanup.policy", broker_id=1),
    "consumer-groups": resource(
        "KafkaConsumerGroup",
        GROUP,
        "consumer-group=b/1 2",
        consumer_group_id="b/1 2",
        is_simple=False,
        partition_assignor="range",
        state="STABLE",
        coordinator=link("brokers/1"),
        consumers=link(f"{GROUP}/consumers"),
        lag_summary=link(f"{GROUP}/lag-summary"),
    ),
    f"{GROUP}/consumers": resource(
        "KafkaConsumer",
        f"{GROUP}/consumers/c-1",
        "consumer-group=b/1 2/consumer=c-1",
        consumer_group_id="b/1 2",
        consumer_id="c-1",
        instance_id=None,
        client_id="client",
        assignments=link(f"{GROUP}/consumers/c-1/assignments"),
    ),
}
"""The last resource of each list, by the list's path."""


@pytest.mark.parametrize("path", RESOURCES)
def test_v3_lists_have_resources_with_links_and_each_is_at_its_own_path(
    get: Get, kafka: FakeKafka, path: str
):
    for group in ("b/1 2", "a"):
        kafka.consume(group, "t", {})
    expected = RESOURCES[path]
    status, document = get(f"/v3/clusters/fake/{path}", "*/*")
    assert (status, document["kind"]) == (200, f"{expected['kind']}List")
    assert document["metadata"] == {"self": f"{CLUSTER}/{path}", "next": None}
    count = 2 if path in {"topics/t/partitions", "consumer-groups"} else 1
    assert (len(document["data"]), document["data"][-1]) == (count, expected)
    own = expected["metadata"]["self"].removeprefix("http://api.example.org")
    # A consumer has no route of its own.
    assert get(own) == (200, expected) or path.endswith("/consumers")


def test_v3_clusters_are_resources_with_links(get: Get):
    status, document = get("/v3/clusters", "*/*")
    assert (status, document["kind"]) == (200, "KafkaClusterList")
    assert document["metadata"] == {"self": BASE, "next": None}
    first, second = document["data"]
    assert (first["cluster_id"], second["cluster_id"]) == ("fake", "second")
    assert first["metadata"] == {"self": CLUSTER, "resource_name": "crn:///kafka=fake"}
    assert (first["controller"], first["topics"]) == (link("brokers/1"), link("topics"))
    assert get("/v3/clusters/fake") == (200, first)


def test_v3_lags_are_of_topics_that_are_served_the_largest_first(kafka: FakeKafka, get: Get):
    kafka.logs["t"][1].add(LogRecord(0, b"k", b"v"))
    kafka.logs["secret"][0].add(LogRecord(0, b"k", b"v"))
    kafka.consume("g", "t", {0: 1, 1: 2})
    kafka.consumers["g"][1].update({("secret", 0): 0, ("eu.t", 0): 0, ("gone", 0): 0})
    status, document = get("/v3/clusters/fake/consumer-groups/g/lags")
    assert (status, document["kind"]) == (200, "KafkaConsumerLagList")
    found = [(each["topic_name"], each["partition_id"], each["lag"]) for each in document["data"]]
    assert found == [("t", 0, 2), ("t", 1, 0)]  # a committed offset may be above the end: no lag
    group = "consumer-groups/g"
    assert document["data"][0] == resource(
        "KafkaConsumerLag",
        f"{group}/lags/t/partitions/0",
        "consumer-group=g/lag=t/partition=0",
        consumer_group_id="g",
        topic_name="t",
        partition_id=0,
        consumer_id="c-1",
        instance_id=None,
        client_id="client",
        current_offset=1,
        log_end_offset=3,
        lag=2,
    )
    assert get(f"/v3/clusters/fake/{group}/lag-summary") == (
        200,
        resource(
            "KafkaConsumerGroupLagSummary",
            f"{group}/lag-summary",
            "consumer-group=g/lag-summary",
            consumer_group_id="g",
            max_lag_consumer_id="c-1",
            max_lag_instance_id=None,
            max_lag_client_id="client",
            max_lag_topic_name="t",
            max_lag_partition_id=0,
            max_lag=2,
            total_lag=2,
            max_lag_consumer=link(f"{group}/consumers/c-1"),
            max_lag_partition=link("topics/t/partitions/0"),
        ),
    )


def test_v3_lags_of_a_partition_that_nobody_reads_have_no_consumer(kafka: FakeKafka, get: Get):
    group = kafka.consume("g", "t", {0: 3})
    kafka.consumers["g"] = group._replace(members=(), state="EMPTY"), {("t", 0): 3}
    _, document = get("/v3/clusters/fake/consumer-groups/g/lags")
    assert [(each["consumer_id"], each["client_id"], each["lag"]) for each in document["data"]] == [
        ("", "", 0)
    ]
    kafka.consumers["g"] = group, {("secret", 0): 0}
    assert get("/v3/clusters/fake/consumer-groups/g/lags")[0] == 404


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v3/clusters/none/topics/t", 404, 404),
        ("/v3/clusters/fake/topics/eu.t", 404, 40403),
        ("/v3/clusters/fake/topics/secret", 403, 40301),
        ("/v3/clusters/fake/topics/secret/partitions/0/offset", 403, 40301),
        ("/v3/clusters/fake/topics/t/partitions/2/replicas", 404, 404),
        ("/v3/clusters/fake/topics/t/partitions/1/replicas/2", 404, 404),
        ("/v3/clusters/fake/topics/eu.t/configs", 404, 40403),
        ("/v3/clusters/fake/topics/nowhere/configs", 404, 40403),
        ("/v3/clusters/fake/topics/secret/configs", 403, 40301),
        ("/v3/clusters/fake/brokers/2/configs", 404, 404),
        ("/v3/clusters/fake/brokers/1/configs/none", 404, 404),
        ("/v3/clusters/none/brokers", 404, 404),
        ("/v3/clusters/none/consumer-groups", 404, 404),
        ("/v3/clusters/fake/consumer-groups/none/consumers", 404, 404),
        ("/v3/clusters/fake/consumer-groups/none/lag-summary", 404, 404),
    ],
)
def test_v3_errors_have_their_code(get: Get, path: str, status: int, code: int):
    answered, document = get(path, "*/*")
    assert (answered, document["error_code"]) == (status, code)
    assert document["message"]


def test_links_have_the_stage_of_api_gateways_own_host(kafka: FakeKafka):
    from keylane.api.rest_proxy.v3_resources import Links  # noqa: PLC0415

    request = a_request("GET", "/v3/clusters", headers={"Host": "a1.execute-api.eu-west-1.amazonaws.com"})
    assert Links.of(request).url() == "https://a1.execute-api.eu-west-1.amazonaws.com/v1/v3/clusters"
    request = a_request("GET", "/kafka/v3/clusters", headers={"X-Forwarded-Proto": "https"})
    assert Links.of(request).url("c") == "https://api.example.org/kafka/v3/clusters/c"


@pytest.mark.parametrize(
    ("name", "value"),
    [("Host", "evil/x?"), ("Host", "a, b"), ("Host", ""), ("X-Forwarded-Proto", "javascript")],
)
def test_links_have_no_text_that_is_no_host_or_scheme(name: str, value: str):
    from keylane.api.rest_proxy.v3_resources import Links  # noqa: PLC0415

    request = a_request("GET", "/v3/clusters", headers={name: value})
    assert Links.of(request).url() in {
        "http://localhost/v3/clusters",
        "http://api.example.org/v3/clusters",
    }
