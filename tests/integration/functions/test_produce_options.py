"""A producer's options, on a real broker: queues that are full, partitioners, acknowledgements."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import create_topic, messages_of
from tests.support.builders import a_topic, an_event, load_handler

from keylane import routing

if TYPE_CHECKING:
    from collections.abc import Callable

    Post = Callable[..., tuple[int, dict[str, Any]]]

PARTITIONS = 3


@pytest.fixture
def producing(kafka: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Post]:
    """`producing(VARIABLE=text)` gives a warm function: `post(method, path, body)`, status and document."""

    def make(**variables: str) -> Post:
        monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", kafka)
        monkeypatch.setenv("KEYLANE_PRODUCE_TIMEOUT_MS", "60000")
        for name, value in variables.items():
            monkeypatch.setenv(f"KEYLANE_{name}", value)
        function = load_handler("produce")

        def post(method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
            event = an_event(method, path, body=json.dumps(body).encode())
            answer = function.lambda_handler(event, None)
            return answer["statusCode"], json.loads(answer["body"])

        return post

    return make


def records_for(topic: str, count: int, **fields: Any) -> dict[str, Any]:
    return {"records": [{"topic": topic, "data": "v", **fields} for _ in range(count)]}


def test_a_queue_that_is_full_is_waited_for(producing: Callable[..., Post], topic: str):
    post = producing(KAFKA_QUEUE_RECORDS="10")
    status, document = post("POST", "/push", records_for(topic, 500))
    assert (status, document["status"]) == (200, "ok")
    assert None not in document["positions"]


def test_a_full_queue_is_an_error_where_that_is_configured(producing: Callable[..., Post], topic: str):
    post = producing(KAFKA_QUEUE_RECORDS="10", KAFKA_QUEUE_FULL="error")
    status, document = post("POST", "/push", records_for(topic, 25))
    assert status == 422, "a part was written"
    assert [position is not None for position in document["positions"]] == [True] * 10 + [False] * 15
    refused = document["errors"][10]
    assert "was not written" in refused["message"]
    assert refused["retriable"]
    assert post("POST", "/push", records_for(topic, 10))[0] == 200


def test_records_go_round_the_partitions_where_the_topic_says_so(producing: Callable[..., Post], topic: str):
    post = producing(PARTITIONERS=json.dumps({topic: "round_robin"}))
    _, document = post("POST", "/push", records_for(topic, 6, key="same"))
    assert document["positions"] == ["0:0", "1:0", "2:0", "0:1", "1:1", "2:1"]
    assert post("PUT", f"/topics/{topic}/keys/same", "v")[1]["position"] == "0:2"


def test_records_go_anywhere_where_the_topic_says_so(producing: Callable[..., Post], topic: str):
    post = producing(PARTITIONERS=json.dumps({topic: "random"}))
    _, document = post("POST", "/push", records_for(topic, 100, key="same"))
    assert {position.partition(":")[0] for position in document["positions"]} == {"0", "1", "2"}


def test_records_must_name_their_partition_where_the_topic_says_so(
    producing: Callable[..., Post], topic: str
):
    post = producing(PARTITIONERS=json.dumps({topic: "explicit"}))
    status, problem = post("PUT", f"/topics/{topic}/keys/k", "v")
    assert (status, problem["code"]) == (400, "INVALID_REQUEST")
    mixed = records_for(topic, 2)
    mixed["records"][1]["partition"] = 2
    _, document = post("POST", "/push", mixed)
    assert document["positions"] == [None, "2:0"]
    assert document["errors"][0]["field"] == "partition"
    assert not document["errors"][0]["retriable"]


def test_topics_may_have_partitioners_of_their_own(kafka: str, producing: Callable[..., Post], topic: str):
    usual = a_topic()
    create_topic(kafka, usual, PARTITIONS)
    post = producing(PARTITIONER="fnv1a", PARTITIONERS=json.dumps({topic: "crc32"}))
    keys = [f"key-{number}" for number in range(20)]
    for name, partitioner in ((topic, "crc32"), (usual, "fnv1a")):
        _, document = post(
            "POST", "/push", {"records": [{"topic": name, "key": k, "data": ""} for k in keys]}
        )
        found = [int(position.partition(":")[0]) for position in document["positions"]]
        assert found == [routing.partition_for(key.encode(), PARTITIONS, partitioner) for key in keys]


def test_options_of_others_clients_are_taken(kafka: str, producing: Callable[..., Post], topic: str):
    """As a user of kprf would carry its settings over."""
    post = producing(
        KAFKA_ACKS="1",
        KAFKA_RETRIES="3",
        KAFKA_RETRY_BACKOFF_MS="100",
        KAFKA_LINGER_MS="10",
        KAFKA_COMPRESSION="zstd",
        KAFKA_QUEUE_KBYTES="1048576",
        KAFKA_BATCH_RECORDS="200",
        KAFKA_BATCH_BYTES="1048576",
        KAFKA_MESSAGE_TIMEOUT_MS="20000",
        KAFKA_REQUEST_TIMEOUT_MS="30000",
        KAFKA_SOCKET_TIMEOUT_MS="30000",
        KAFKA_IDLE_TIMEOUT_MS="600000",
        KAFKA_CLIENT_ID="orders-api",
    )
    assert post("POST", "/push", records_for(topic, 50, partition=0))[0] == 200
    assert {message.value() for message in messages_of(kafka, topic, 0)} == {b"v"}
