"""Keys that are JSON objects, asked for by the values of their fields."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

TOPIC = "typed"


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
    assert [each["key"] for each in many["records"]] == [written.decode(), '{"region":"us","number":-1}']
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
    assert [each["value"] for each in many["records"]] == [1]
