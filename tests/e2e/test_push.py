"""Many records in one request over HTTP, read back at the returned positions."""

from __future__ import annotations

import json

import pytest

PUSH = "/push"
JSON = "application/vnd.kafka.json.v2+json"


def post(client, path, body, media_type="application/json"):
    return client.request("POST", path, json.dumps(body).encode(), Content_Type=media_type)


@pytest.mark.parametrize("wait_for_send", [True, False])
def test_pushed_records_are_read_at_their_positions(client, key, wait_for_send):
    names = [key + b"-%d-%d" % (wait_for_send, number) for number in range(12)]
    records = [
        {"topic": "flights", "key": name.decode(), "data": f'{{"n": "{name.decode()}"}}'} for name in names
    ]
    answer = post(client, PUSH, {"records": records, "wait_for_send": wait_for_send})
    assert (answer.status, answer.json["status"], answer.json["errors"]) == (200, "ok", [])
    for name, position in zip(names, answer.json["positions"], strict=True):
        found = client.get_at("flights", name, position)
        assert (found.status, found.json) == (200, {"n": name.decode()})
        assert found.headers["Keylane-Position"] == position


def test_a_record_pushed_to_another_partition_is_still_found(client, key):
    records = [
        {"topic": "flights", "key": key.decode(), "partition": number, "data": "1"} for number in range(9)
    ]
    positions = post(client, PUSH, {"records": records}).json["positions"]
    for position in positions:
        # The stray's own lane: a read of the key waits for any partition's position.
        assert client.get_at("flights", key, position).body == b"1"


def test_records_in_rest_proxys_format_are_read_by_key(client, key):
    name = key.decode()
    records = [{"key": name, "value": {"to": "Zug"}}, {"key": name + "-gone", "value": None}]
    plain = post(client, "/topics/flights?key_format=text", {"records": records}, JSON)
    assert (plain.status, plain.headers["Content-Type"]) == (200, "application/vnd.kafka.v2+json")
    [there, gone] = [f"{each['partition']}:{each['offset']}" for each in plain.json["offsets"]]
    assert client.get_at("flights", key, there).json == {"to": "Zug"}
    assert client.get_at("flights", key + b"-gone", gone).status == 404
    quoted = post(client, "/topics/flights", {"records": records[:1]}, JSON).json["offsets"][0]
    position = f"{quoted['partition']}:{quoted['offset']}"
    found = client.get_at("flights", b'"%b"' % key, position)
    assert found.json == {"to": "Zug"}
