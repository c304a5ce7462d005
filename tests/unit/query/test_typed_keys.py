"""Keys of databases' topics, from what clients ask for: the bytes that Connect's JSON converter writes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import a_layout

from keylane.errors import BadRequest
from keylane.formats.connect_keys import ConnectKeys
from keylane.model.records import KeyFields, Options
from keylane.state.json_keys import encode_json, encode_prefix

ID = (("id", "integer"),)
BOTH = (("region", "string"), ("number", "integer"))


def encode_key(fields: KeyFields, key: bytes) -> bytes:
    """The bytes of a key with these fields, without a schema."""
    return encode_json(ConnectKeys(fields), key)


@pytest.mark.parametrize(
    ("fields", "asked", "key"),
    [
        (ID, "7", '{"id":7}'),
        (ID, "-7", '{"id":-7}'),
        (ID, "007", '{"id":7}'),
        (ID, "12345678901234567890", '{"id":12345678901234567890}'),
        (ID, ' {"id": 7}'.strip(), '{"id":7}'),
        ((("id", "string"),), "7", '{"id":"7"}'),
        ((("id", "string"),), "", '{"id":""}'),
        ((("id", "string"),), 'a"\\/\b\t\n\f\r\x01\x1f\x7f\u00fc\u2028\U0001f6eb', None),
        ((("id", "string"),), '{"id": "{"}', '{"id":"{"}'),
        ((("id", "string"),), '{"$oid": "596e"}', '{"id":"{\\"$oid\\": \\"596e\\"}"}'),
        ((("id", "string"),), '{"a":1,"b":[2]}', '{"id":"{\\"a\\":1,\\"b\\":[2]}"}'),
        ((("ok", "boolean"),), "true", '{"ok":true}'),
        ((("ok", "boolean"),), '{"ok": false}', '{"ok":false}'),
        (BOTH, '{"number": 7, "region": "e\\u0075"}', '{"region":"eu","number":7}'),
        ((('a"b', "integer"),), "1", '{"a\\"b":1}'),
    ],
)
def test_a_key_is_written_as_jackson_writes_it(fields, asked, key):
    if key is None:
        key = '{"id":"a\\"\\\\/\\b\\t\\n\\f\\r\\u0001\\u001F\x7f\u00fc\u2028\U0001f6eb"}'
    assert encode_key(fields, asked.encode()) == key.encode()


@pytest.mark.parametrize(
    ("fields", "asked", "why"),
    [
        (ID, b"seven", "a field 'id' that is not an integer"),
        (ID, b"7.0", "not an integer"),
        (ID, b"+7", "not an integer"),
        (ID, b" 7", "not an integer"),
        (ID, "\u0667".encode(), "not an integer"),
        (ID, b"9" * 41, "not an integer"),
        (ID, b'{"id": true}', "not an integer"),
        (ID, b'{"id": 7.0}', "not an integer"),
        (ID, b'{"id": null}', "not an integer"),
        (ID, b'{"id": 7', "is not valid JSON"),
        (ID, b"{" + b'"a":{' * 100_000, "is not valid JSON"),
        (ID, b'{"id": 7, "x": 1}', 'has other fields: keys of this topic are {"id": ...}'),
        ((("id", "string"),), b'{"id": "7", "x": 1}', "has other fields"),
        ((("id", "string"),), b'{"id', "is not valid JSON"),
        (ID, b'{"x": 1}', "has other fields"),
        (ID, b"\xff", "is not UTF-8"),
        ((("id", "string"),), b'{"id": "\\ud83d"}', "is not valid Unicode"),
        (BOTH, b"7", "is not a JSON object"),
        (BOTH, b'{"region": "eu"}', "has other fields"),
        (BOTH, b'{"region": 1, "number": 1}', "a field 'region' that is not a string"),
        ((("ok", "boolean"),), b"yes", "not a boolean"),
    ],
)
def test_what_can_be_no_key_of_the_topic_says_why(fields, asked, why):
    with pytest.raises(BadRequest) as raised:
        encode_key(fields, asked)
    assert why in str(raised.value)
    assert raised.value.parameter == "key"


@given(st.text(), st.integers(-(2**63), 2**63 - 1))
def test_a_key_is_the_same_json_however_it_was_asked_for(region, number):
    asked = {"number": number, "region": region}
    try:
        texts = [json.dumps(asked, ensure_ascii=is_ascii).encode() for is_ascii in (True, False)]
    except UnicodeEncodeError:
        return
    found = {encode_key(BOTH, text) for text in texts}
    assert len(found) == 1
    assert list(json.loads(*found).items()) == [("region", region), ("number", number)]


def test_a_layout_keeps_the_fields_in_their_order():
    options = Options(key_fields=BOTH)
    stored = json.loads(json.dumps(options.to_dict()))
    assert Options.from_dict(stored) == options
    assert a_layout(options=options).options.key_fields == BOTH


@given(st.text(max_size=3), st.text(max_size=3))
def test_the_keys_with_a_prefix_are_those_whose_text_begins_with_it(prefix, text):
    name = (("id", "string"),)
    begins = encode_key(name, json.dumps({"id": text}).encode()).startswith(
        encode_prefix(ConnectKeys(name), prefix.encode())
    )
    assert begins == text.startswith(prefix) or prefix.startswith("{")


@pytest.mark.parametrize(
    ("form", "prefix", "bytes_of_keys"),
    [
        (ConnectKeys(BOTH), b'{"region":"eu"', b'{"region":"eu"'),
        (ConnectKeys(ID), b'{"id":7', b'{"id":7'),
        (ConnectKeys(ID, '{"schema":{},"payload":', "}"), b'{"id":7', b'{"schema":{},"payload":{"id":7'),
        (ConnectKeys((("id", "string"),), is_bare=True), b'a"', b'"a\\"'),
    ],
)
def test_a_prefix_begins_what_answers_show(form, prefix, bytes_of_keys):
    assert encode_prefix(form, prefix) == bytes_of_keys


@pytest.mark.parametrize(
    ("fields", "prefix"), [(ID, b"7"), (BOTH, b"eu"), ((("id", "string"),), b"\xff"), (ID, b'"id"')]
)
def test_a_prefix_that_begins_no_key_says_what_to_give(fields, prefix):
    with pytest.raises(BadRequest, match="give bytes, with key_format=base64") as raised:
        encode_prefix(ConnectKeys(fields), prefix)
    assert raised.value.parameter == "prefix"
