"""Keys over HTTP: host, application, Kafka, Spark, Redis, application, host."""

from __future__ import annotations

import base64
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime

import pytest
from tests.e2e.client import Client, path_of
from tests.support.stopwatch import takes_about

TOPIC = "flights"


def problem(answer) -> dict:
    """Return the problem document, after checking its format."""
    assert answer.headers["Content-Type"] == "application/problem+json"
    document = answer.json
    assert document["status"] == answer.status
    assert document["type"].startswith("urn:keylane:problem:")
    assert "Traceback" not in document["detail"]
    return document


def test_a_client_reads_its_own_write_with_its_metadata(client, key):
    before_ms = time.time_ns() // 1_000_000
    position = client.put(TOPIC, key, b'{"from": "JFK"}')
    answer = client.get(TOPIC, key, Keylane_Min_Position=position)
    after_ms = time.time_ns() // 1_000_000
    partition, offset = map(int, position.split(":"))
    assert (answer.status, answer.body) == (200, b'{"from": "JFK"}')
    assert answer.headers["Content-Type"] == "application/json"
    assert re.fullmatch(rf'"{partition}-{offset}@[1-9][0-9]*"', answer.headers["ETag"])
    assert answer.headers["Keylane-Position"] == position
    written_ms = int(answer.headers["Keylane-Timestamp"])
    assert before_ms <= written_ms <= after_ms
    assert parsedate_to_datetime(answer.headers["Last-Modified"]).timestamp() == written_ms // 1000
    of_lane, next_offset = map(int, answer.headers["Keylane-Watermark"].split(":"))
    assert of_lane == partition
    assert next_offset > offset
    assert 0 <= int(answer.headers["Keylane-Age-Ms"]) < 30_000


@pytest.mark.parametrize("topic", ["flights", "striped"])
def test_the_last_of_many_writes_is_read_and_min_offset_waits_for_it(client, key, topic):
    for number in range(20):
        position = client.put(topic, key, b"%d" % number)
    answer = client.get(topic, key, f"?min_offset={position.split(':')[1]}")
    assert (answer.status, answer.body) == (200, b"19")


def test_a_deleted_key_is_absent_until_it_is_written_again(client, key):
    client.put(TOPIC, key, b"1")
    deleted = client.request("DELETE", path_of(TOPIC, key))
    assert deleted.status == 200
    answer = client.get(TOPIC, key, Keylane_Min_Position=deleted.json["position"])
    assert answer.status == 404
    assert problem(answer)["type"] == "urn:keylane:problem:key-absent"
    assert answer.headers["Keylane-Watermark"]
    assert answer.headers["Keylane-Age-Ms"]
    position = client.put(TOPIC, key, b"2")
    assert client.get(TOPIC, key, Keylane_Min_Position=position).body == b"2"


@pytest.mark.parametrize(
    ("value", "content_type"),
    [
        (b'{"a": [1, "\xc3\xa9"]}', "application/json"),
        (b"17", "application/json"),
        (b"Gr\xc3\xbc\xc3\x9fe", "text/plain; charset=utf-8"),
        (b"", "text/plain; charset=utf-8"),
        (bytes(range(256)), "application/octet-stream"),
    ],
)
def test_values_come_back_byte_for_byte_with_their_content_type(client, key, value, content_type):
    position = client.put(TOPIC, key, value, Content_Type="application/octet-stream")
    answer = client.get(TOPIC, key, Keylane_Min_Position=position)
    assert (answer.status, answer.body) == (200, value)
    assert answer.headers["Content-Type"] == content_type


@pytest.mark.parametrize("odd", [b"a/b", b"a b+c", b"100%", "ключ".encode(), b"\x00\xff\xfe", b"?#&=", b".."])
def test_a_key_may_be_any_bytes(client, key, odd):
    name = key + odd
    position = client.put(TOPIC, name, b"odd")
    assert client.get(TOPIC, name, Keylane_Min_Position=position).body == b"odd"
    coded = base64.urlsafe_b64encode(name).decode()
    assert client.request("GET", f"/topics/{TOPIC}/keys/{coded}?key_format=base64").body == b"odd"


def test_a_read_waits_for_a_position_until_its_timeout_and_then_says_so(client, key):
    position = client.put(TOPIC, key, b"1")
    partition, offset = map(int, position.split(":"))
    began_s = time.monotonic()
    with takes_about(2):
        answer = client.get(TOPIC, key, f"?min_offset={offset + 1_000_000}", Prefer="wait=1")
    assert time.monotonic() - began_s > 0.9
    assert answer.status == 412
    assert f"{partition}:{offset + 1_000_000}" in problem(answer)["detail"]


@pytest.mark.parametrize("partition", [9, 17, 18])
def test_a_position_in_a_partition_that_the_topic_does_not_have_is_refused(client, key, partition):
    answer = client.get(TOPIC, key, Keylane_Min_Position=f"{partition}:0", Prefer="wait=20")
    # One that was waited for is 412. The job looks for new partitions twice a second.
    assert answer.status == 400
    assert problem(answer)["parameter"] == "Keylane-Min-Position"
    assert f"has no partition {partition}: its last one is 8" in problem(answer)["detail"]


def test_a_value_at_the_limit_of_the_service_is_accepted(client, key):
    value = json.dumps({"x": "y" * 1_000_000}).encode()
    position = client.put(TOPIC, key, value)
    assert client.get(TOPIC, key, Keylane_Min_Position=position).body == value


def test_a_value_over_its_topics_limit_is_left_in_kafka_and_reported_with_its_position(client, key):
    client.put("limited", key, b"x" * 100)
    position = client.put("limited", key, b"x" * 101)
    answer = client.get("limited", key, Keylane_Min_Position=position)
    assert answer.status == 422
    assert problem(answer)["type"] == "urn:keylane:problem:value-left-in-kafka"
    assert answer.headers["Keylane-Position"] == position
    assert answer.headers["Keylane-Value-Bytes"] == "101"
    document = client.get("limited", key, "?envelope=true").json
    assert (document["value"], document["value_bytes"], document["headers"]) == (None, 101, [])


def test_many_clients_each_read_their_own_writes(stack, key):
    def write_and_read(number: int) -> list[bytes]:
        client = Client(stack.http_url)
        mine = b"%b-%d" % (key, number)
        seen = []
        for turn in range(10):
            position = client.put(TOPIC, mine, b"%d" % turn)
            seen.append(client.get(TOPIC, mine, Keylane_Min_Position=position).body)
        client.close()
        return seen

    with ThreadPoolExecutor(8) as pool:
        for seen in pool.map(write_and_read, range(8)):
            assert seen == [b"%d" % turn for turn in range(10)]
