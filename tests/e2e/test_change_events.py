"""Rows of a database's tables over HTTP, from change events as Debezium writes them."""

from __future__ import annotations

import json

import pytest
from tests.servers import schema_registry as sr
from tests.servers.own import eventually

AT = {"name": "ts_ms", "type": ["null", "long"], "default": None}
AVRO = sr.envelope_schema("shop.public.orders", {"id": "int", "qty": "int"}, AT)
SCHEMA = json.dumps({"title": "Event", "type": "object", "properties": {"op": {"type": "string"}}})


def event(operation: str, before: dict | None = None, after: dict | None = None) -> dict:
    return {"before": before, "after": after, "op": operation, "ts_ms": 1}


def bare(_registry, given: dict) -> bytes:
    return json.dumps(given).encode()


def with_schema(_registry, given: dict) -> bytes:
    return json.dumps({"schema": {"type": "struct", "op": "d"}, "payload": given}).encode()


def by_avro(registry, given: dict) -> bytes:
    return sr.avro(registry.client, "shop.public.orders.Envelope", AVRO, given)


def by_json_schema(registry, given: dict) -> bytes:
    return sr.json_schema(registry.client, "Event", SCHEMA, given)


@pytest.mark.parametrize(
    ("topic", "encode"),
    [
        ("rows", bare),
        ("rows", with_schema),
        ("registered-rows", by_avro),
        ("registered-rows", by_json_schema),
    ],
)
def test_a_row_is_read_until_its_deletion_whether_or_not_a_tombstone_follows(
    client, key, registry, produce, topic, encode
):
    first, second = {"id": 1, "qty": 2}, {"id": 1, "qty": 3}
    position = produce(topic, key, encode(registry, event("r", None, first)))
    assert client.get_at(topic, key, position).json == first
    position = produce(topic, key, encode(registry, event("u", first, second)))
    answer = client.get_at(topic, key, position, "?fields=qty")
    assert (answer.json, answer.headers["Keylane-Position"]) == ({"qty": 3}, position)
    assert client.get(topic, key, "?event=true").json["before" if encode is not with_schema else "payload"]
    assert client.get(topic, key, "?envelope=true").json["value"] == second
    position = produce(topic, key, encode(registry, event("d", second, None)))
    answer = client.get_at(topic, key, position)
    assert (answer.status, answer.json["type"]) == (404, "urn:keylane:problem:key-absent")
    partition, _, offset = position.partition(":")
    assert answer.headers["Keylane-Watermark"] == f"{partition}:{int(offset) + 1}"
    assert not client.request("GET", f"/topics/{topic}/keys?prefix={key.decode()}").json["records"]
    position = produce(topic, key, encode(registry, event("c", None, first)))
    assert client.get_at(topic, key, position).json == first


def test_every_kind_of_read_sees_rows_and_histories_have_the_events_on_request(client, key, produce):
    path, rows = f"/topics/rows/keys/{key.decode()}", [{"id": 1, "qty": n} for n in (1, 2)]
    made = produce("rows", key, bare(None, event("c", None, rows[0])))
    produce("rows", key, bare(None, event("u", rows[0], rows[1])))
    gone = produce("rows", key, bare(None, event("d", rows[1])))
    assert client.get_at("rows", key, gone).status == 404
    history = client.request("GET", f"{path}/history").json["records"]
    assert [each.get("value", "deleted") for each in history] == ["deleted", rows[1], rows[0]]
    assert (history[0]["position"], history[0]["deleted"]) == (gone, True)
    events = client.request("GET", f"{path}/history?event=true").json["records"]
    assert [each["value"]["before"] for each in events[1:]] == [rows[0], None]
    assert client.request("GET", f"{path}?as_of={made}").json == rows[0]
    position = produce("rows", key, bare(None, event("c", None, rows[1])))
    assert client.get_at("rows", key, position).json == rows[1]
    body = json.dumps({"keys": [key.decode(), "e2e-no-row"]}).encode()
    many = client.request("POST", "/topics/rows/keys:read?fields=qty", body, Content_Type="application/json")
    assert [each.get("value", "absent") for each in many.json["records"]] == [{"qty": 2}, "absent"]
    (row,) = client.request("GET", f"/topics/rows/keys?prefix={key.decode()}").json["records"]
    assert row["value"] == rows[1]
    joined = client.request("GET", f"/join/{key.decode()}?topics=rows,registered-rows").json["records"]
    assert (joined["rows"]["value"], joined["registered-rows"]["absent"]) == (rows[1], True)


@pytest.mark.parametrize(
    ("topic", "value", "reason"),
    [
        ("rows", b'{"id": 1}', "it has no op"),
        ("rows", b"no", "it is not a JSON object"),
        ("rows", b'{"op": "t"}', "its op is"),
        ("registered-rows", b"\0\0\0\xff\xff\x02", "does not have schema 65535"),
        ("registered-rows", None, "cannot be decoded by schema"),
    ],
)
def test_a_value_that_is_no_event_is_answered_why_and_what_follows_is_applied(
    stack, client, key, registry, produce, topic, value, reason
):
    whole = by_avro(registry, event("c", None, {"id": 1, "qty": 2}))
    position = produce(topic, key, whole[:-2] if value is None else value)
    answer = client.get_at(topic, key, position)
    assert (answer.status, answer.json["type"]) == (422, "urn:keylane:problem:value-not-decodable")
    assert reason in answer.json["detail"]
    raw = client.get(topic, key, Accept="application/octet-stream")
    assert raw.body == (whole[:-2] if value is None else value)
    (row,) = client.request("GET", f"/topics/{topic}/keys?prefix={key.decode()}").json["records"]
    assert row["value_format"] == "base64"
    told = f"topic {topic!r} has values that are not change events"
    eventually(lambda: told in stack.job.program.log.read_text())
    follows = bare(None, event("c", None, {"id": 2})) if topic == "rows" else whole
    position = produce(topic, key, follows)
    assert client.get_at(topic, key, position).json["id"]
