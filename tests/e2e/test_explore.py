"""Kafka's own data over HTTP, compared with the query function's answers for the same topic."""

from __future__ import annotations

TOPIC = "flights"


def test_a_record_is_read_from_kafka_at_the_position_that_its_write_returned(client, key):
    partition, offset = client.put(TOPIC, key, b'{"n": 1.50}').split(":")
    client.put(TOPIC, key, b"\xff")
    answer = client.request("GET", f"/topics/{TOPIC}/partitions/{partition}/records?offset={offset}&limit=2")
    assert answer.status == 200
    assert b'{"n": 1.50}' in answer.body
    first, second = answer.json["records"]
    assert (first["key"], first["position"], first["value"]) == (
        key.decode(),
        f"{partition}:{offset}",
        {"n": 1.5},
    )
    assert (second["value"], second["value_format"]) == ("/w==", "base64")
    latest = client.request("GET", f"/topics/{TOPIC}/partitions/{partition}/offsets?at=latest").json
    assert latest["offset"] == answer.json["next_offset"] == answer.json["watermarks"]["high"]
    found = client.request(
        "GET", f"/topics/{TOPIC}/partitions/{partition}/offsets?at={first['timestamp']}"
    ).json
    assert found["offset"] <= int(offset)


def test_partitions_have_the_slots_and_shards_of_their_lanes(client):
    for topic in (TOPIC, "striped"):
        lanes = client.request("GET", f"/topics/{topic}").json["lanes"]
        partitions = client.request("GET", f"/topics/{topic}/partitions").json
        assert partitions["state"] == "kept"
        assert [(each["partition"], each["slot"], each["shard"]) for each in partitions["partitions"]] == [
            (lane["partition"], lane["slot"], lane["shard"]) for lane in lanes if lane["stripe"] == 0
        ]


def test_topics_clusters_and_health_are_returned(client, stack):
    listed = client.request("GET", "/topics?prefix=fl").json["topics"]
    assert {"topic": TOPIC, "partitions": 9} in listed
    (cluster,) = client.request("GET", "/clusters").json["clusters"]
    assert [f"{each['host']}:{each['port']}" for each in cluster["brokers"]] == [stack.kafka_bootstrap]
    health = client.request("GET", "/health")
    assert (health.status, health.json["ready"], set(health.json["parts"])) == (200, True, {"kafka", "redis"})
    head = client.request("HEAD", "/health")
    assert (head.status, head.body) == (200, b"")
