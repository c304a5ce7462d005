"""Keys that are JSON objects, asked for by the values of their fields."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

from tests.servers import schema_registry as sr

TOPIC = "typed"
NUMBERS = {
    kind: json.dumps({"type": "record", "name": "Key", "fields": [{"name": "id", "type": kind}]})
    for kind in ("int", "long")
}


def test_a_row_is_found_by_its_key_in_any_form(client, key):
    written = b'{"region":"eu","number":%d}' % int(key.rpartition(b"-")[2])
    number = json.loads(written)["number"]
    position = client.put(TOPIC, written, b'{"n": 1}')
    for asked in (written, b'{ "number": %d, "region": "eu" }' % number):
        answer = client.get_at(TOPIC, asked, position)
        assert (answer.status, answer.json) == (200, {"n": 1}), asked
    text = json.dumps({"number": number, "region": "eu"})
    path = f"/topics/{TOPIC}/keys/{quote(text, safe='')}/history"
    (entry,) = client.request("GET", path).json["records"]
    assert entry["position"] == position
    body = json.dumps({"keys": [text, '{"region": "us", "number": -1}']}).encode()
    many = client.request("POST", f"/topics/{TOPIC}/keys:read", body, Content_Type="application/json").json
    shown = [(each["key"], each["key_format"]) for each in many["records"]]
    assert shown == [(json.loads(written), "json"), ({"region": "us", "number": -1}, "json")]
    assert [each.get("absent", False) for each in many["records"]] == [False, True]
    assert client.get(TOPIC, text.encode(), f"?as_of={position}").json == {"n": 1}


def test_a_key_of_other_fields_is_refused_and_base64_reads_any_key(client, key):
    position = client.put(TOPIC, key, b"1")
    answer = client.get(TOPIC, key)
    assert (answer.status, answer.json["parameter"]) == (400, "key")
    assert '{"region": ..., "number": ...}' in answer.json["detail"]
    encoded = base64.urlsafe_b64encode(key).decode()
    path = f"/topics/{TOPIC}/keys/{quote(encoded)}?key_format=base64"
    answer = client.request("GET", path, Keylane_Min_Position=position, Prefer="wait=20")
    assert (answer.status, answer.body) == (200, b"1")
    body = json.dumps({"keys": [encoded], "key_format": "base64"}).encode()
    many = client.request("POST", f"/topics/{TOPIC}/keys:read", body, Content_Type="application/json").json
    assert [(each["value"], each["key"]) for each in many["records"]] == [(1, key.decode())]


def test_a_key_with_its_schema_is_found_by_its_value_and_shown_without_it(client, key):
    number = int(key.rpartition(b"-")[2])
    schema = '{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}],"optional":false}'
    written = f'{{"schema":{schema},"payload":{{"id":{number}}}}}'.encode()
    position = client.put("schema-keys", written, b'{"n": 1}')
    assert client.get_at("schema-keys", str(number).encode(), position).json == {"n": 1}
    shown = client.get("schema-keys", str(number).encode(), "?envelope=true").json
    assert (shown["key"], shown["key_format"]) == ({"id": number}, "json")
    page = client.request("GET", "/topics/schema-keys/keys?keys_only=true").json["records"]
    assert {"key": {"id": number}, "key_format": "json"} in page


def test_a_registry_s_key_is_found_by_its_value_whatever_its_schema(client, key, registry, produce):
    """The registry that the stack has: schemas of the key's subject are registered as producers do."""
    number = int(key.rpartition(b"-")[2])
    topic, asked = "registered-keys", str(number).encode()
    old, new = (sr.avro_key(registry.client, topic, NUMBERS[kind], {"id": number}) for kind in NUMBERS)
    assert old != new
    position = produce(topic, old, b'{"n": 1}')
    assert client.get_at(topic, asked, position).json == {"n": 1}
    position = produce(topic, new, b'{"n": 2}')
    for each in (asked, b'{"id": %d}' % number):
        answer = client.get_at(topic, each, position, "?envelope=true")
        assert (answer.json["key"], answer.json["key_format"], answer.json["value"]) == (
            {"id": number},
            "json",
            {"n": 2},
        )
    history = client.request("GET", f"/topics/{topic}/keys/{number}/history").json
    assert [each["value"]["n"] for each in history["records"]] == [2, 1]
    assert history["key"] == {"id": number}
    body = json.dumps({"keys": [str(number), "999999999999"]}).encode()
    many = client.request("POST", f"/topics/{topic}/keys:read", body, Content_Type="application/json").json
    assert [(each["key"], each.get("absent", False)) for each in many["records"]] == [
        ({"id": number}, False),
        ({"id": 999999999999}, True),
    ]
    position = produce(topic, new, None)
    gone = client.get_at(topic, asked, position)
    assert (gone.status, gone.json["type"]) == (404, "urn:keylane:problem:key-absent")
    raw = base64.urlsafe_b64encode(old).decode()
    answer = client.get(topic, raw.encode(), "?key_format=base64&envelope=true").json
    # Whether these bytes are UTF-8 depends on the id that the schema got.
    shown = {"text": str.encode, "base64": base64.b64decode}[answer["key_format"]](answer["key"])
    assert (shown, answer["value"]) == (old, {"n": 1})
    refused = client.get(topic, b"seven")
    assert (refused.status, refused.json["parameter"]) == (400, "key")
    assert "is not an integer of 64 bits" in refused.json["detail"]
