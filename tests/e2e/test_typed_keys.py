"""Keys that are JSON objects, asked for by the values of their fields."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka.schema_registry import Schema
from tests.servers import schema_registry as sr

TOPIC = "typed"
NUMBERS = {
    kind: json.dumps({"type": "record", "name": "Key", "fields": [{"name": "id", "type": kind}]})
    for kind in ("int", "long")
}
PAIR = {"region": {"type": "string"}, "number": {"type": "integer"}}
CONNECT = {
    "type": "struct",
    "fields": [{"type": "int32", "optional": False, "field": "id"}],
    "optional": False,
}


@dataclass(frozen=True)
class Form:
    """A way to write a typed key by REST Proxy's requests. `kind` and `schema`: of the registry, if any.

    `key`: what a request has, made of a number. `value`: a value by `value_schema`, for v2.
    """

    topic: str
    key: str
    kind: str = ""
    schema: str = ""
    value_schema: str = '"string"'
    value: Any = "x"

    def key_of(self, number: int) -> Any:
        return json.loads(self.key % number)


FORMS = {
    "key_fields": Form(TOPIC, '{"region": "eu", "number": %d}'),
    "key_schema": Form("schema-keys", f'{{"schema": {json.dumps(CONNECT)}, "payload": {{"id": %d}}}}'),
    "avro": Form("avro-keys", '{"id": %d}', "AVRO", NUMBERS["int"]),
    "jsonschema": Form(
        "json-schema-keys",
        '{"region": "eu", "number": %d}',
        "JSON",
        json.dumps({"type": "object", "properties": PAIR}),
        '{"type": "object", "properties": {"n": {"type": "integer"}}}',
        {"n": 1},
    ),
    "protobuf": Form(
        "protobuf-keys",
        '{"region": "eu", "number": %d}',
        "PROTOBUF",
        'syntax = "proto3"; message Key { string region = 1; int32 number = 2; }',
        'syntax = "proto3"; message Value { int32 n = 1; }',
        {"n": 1},
    ),
}
V2 = {"": "json", "AVRO": "avro", "JSON": "jsonschema", "PROTOBUF": "protobuf"}


@pytest.mark.parametrize("version", ["v2", "v3"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_key_is_written_by_rest_proxy_s_requests_and_found_by_its_value(
    client, key, registry, form, version
):
    number = int(key.rpartition(b"-")[2])
    shown = form.key_of(number).get("payload", form.key_of(number))
    schema_id = None
    if form.kind:
        schema_id = registry.client.register_schema(f"{form.topic}-key", Schema(form.schema, form.kind))
    if version == "v2":
        ids = {"key_schema_id": schema_id, "value_schema": form.value_schema} if form.kind else {}
        body = ids | {"records": [{"key": form.key_of(number), "value": form.value}]}
        path, media = f"/topics/{form.topic}", f"application/vnd.kafka.{V2[form.kind]}.v2+json"
    else:
        by = {"schema_id": schema_id} if form.kind else {"type": "JSON"}
        body = {"key": by | {"data": form.key_of(number)}, "value": {"type": "JSON", "data": {"n": 1}}}
        path, media = f"/v3/clusters/lkc-0/topics/{form.topic}/records", "application/json"
    answer = client.request("POST", path, json.dumps(body).encode(), Content_Type=media)
    assert answer.status == 200, answer.body
    result = answer.json["offsets"][0] if version == "v2" else answer.json
    names = ("partition", "offset") if version == "v2" else ("partition_id", "offset")
    position = ":".join(str(result[name]) for name in names)
    asked = str(number) if len(shown) == 1 else json.dumps(dict(reversed(shown.items())))
    found = client.get_at(form.topic, asked.encode(), position, "?envelope=true")
    assert (found.status, found.json.get("position")) == (200, position), found.body
    assert (found.json["key"], found.json["key_format"]) == (shown, "json")


def test_a_key_in_a_path_is_that_which_reads_find(client, key):
    bare = key.rpartition(b"-")[2]
    position = client.put("schema-keys", bare, b'{"n": 1}')
    assert client.get_at("schema-keys", bare, position).json == {"n": 1}
    answer = client.request("DELETE", f"/topics/schema-keys/keys/{bare.decode()}")
    found = client.get_at("schema-keys", bare, answer.json["position"])
    assert (found.status, found.json["type"]) == (404, "urn:keylane:problem:key-absent")


def test_a_key_in_a_push_is_bytes_and_one_that_reads_do_not_find_is_written_on_request_alone(client, key):
    """The key `7` is no key `{"id": 7}`: see docs/http/write.md."""
    bare = key.rpartition(b"-")[2]
    record = {"topic": "schema-keys", "key": bare.decode(), "data": '{"n": 1}'}
    body = json.dumps({"records": [record], "wait_for_send": True}).encode()
    refused = client.request("POST", "/push", body)
    assert (refused.status, refused.json["errors"][0]["field"]) == (422, "key")
    (position,) = client.request("POST", "/push?raw=true", body).json["positions"]
    raw = base64.urlsafe_b64encode(bare)
    found = client.get_at("schema-keys", raw, position, "?key_format=base64")
    assert (found.status, found.json) == (200, {"n": 1})
    missing = client.get("schema-keys", bare)
    assert (missing.status, missing.json["type"]) == (404, "urn:keylane:problem:key-absent")


@pytest.mark.parametrize("name", ["key_fields", "jsonschema"])
def test_a_json_key_with_its_fields_in_another_order_is_another_key(client, key, registry, name):
    form, number = FORMS[name], int(key.rpartition(b"-")[2])
    shown = {"region": "other-order", "number": number}
    body = {"records": [{"key": dict(reversed(shown.items())), "value": form.value}]}
    if form.kind:
        body |= {"key_schema": form.schema, "value_schema": form.value_schema}
    media = f"application/vnd.kafka.{V2[form.kind]}.v2+json"
    answer = client.request("POST", f"/topics/{form.topic}", json.dumps(body).encode(), Content_Type=media)
    (written,) = answer.json["offsets"]
    if not form.kind:
        assert (written["error_code"], written["field"]) == (50002, "key")
        assert "readers ask for it as" in written["error"]
        return
    position = f"{written['partition']}:{written['offset']}"
    found = client.get_at(form.topic, json.dumps(shown).encode(), position)
    assert (found.status, found.json["type"]) == (404, "urn:keylane:problem:key-absent")


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
    path = f"/topics/{TOPIC}/keys/{key.decode()}"
    for answer in (client.request("GET", path), client.request("PUT", path, b"1")):
        assert (answer.status, answer.json["parameter"]) == (400, "key")
        assert '{"region": ..., "number": ...}' in answer.json["detail"]
    written = client.request("PUT", f"{path}?raw=true", b"1")
    position = written.json["position"]
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
