"""What `keylane new` and `keylane check` take for the topic of a database's table."""

from __future__ import annotations

import pytest
from tests.servers.registry_double import serve_double

from keylane.model.records import Options
from keylane_cli.survey.table_guess import (
    decode_registered,
    find_event_faults,
    find_key_faults,
    guess_key_fields,
    guess_key_schema,
    has_change_events,
    has_registry_keys,
)

EVENT = b'{"before":null,"after":{"id":1},"op":"c"}'


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([EVENT, b'{"before":{"id":1},"after":null,"op":"d"}'], True),
        ([b'{"schema":{},"payload":{"after":{},"op":"r"}}', b'{"id":1,"__deleted":"false"}'], True),
        ([EVENT, b'{"ts_ms": 1}'], False),
        ([EVENT, b"\xff"], False),
        ([], False),
    ],
)
def test_a_table_is_a_topic_of_which_all_values_are_events(values, expected):
    assert has_change_events(values) is expected


def test_faults_say_why_and_values_of_a_registry_are_left_out():
    assert list(find_event_faults([EVENT, b"\0\0\0\0\7x", b"\xff", b"{}"])) == [
        "it is not UTF-8",
        "it is not a change event: it has no op",
    ]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([b'{"id":1}', b'{"id":22}'], (("id", "integer"),)),
        ([b'{"region":"eu","id":1}'], (("region", "string"), ("id", "integer"))),
        ([b'{"ok":true}'], (("ok", "boolean"),)),
        ([b'{"id":1}', b'{"id":"1"}'], ()),
        ([b'{"id":1}', b'{"no":1}'], ()),
        ([b'{"id": 1}'], ()),
        ([b'{"id":1.5}'], ()),
        ([b'{"schema":{},"payload":{"id":1}}'], ()),
        ([b"{}"], ()),
        ([b"7"], ()),
        ([b"key"], ()),
        ([b"\xff"], ()),
        ([b'{"a":' * 100_000], ()),
        ([], ()),
    ],
)
def test_fields_are_those_of_all_keys_in_the_converter_s_form(keys, expected):
    assert guess_key_fields(keys) == expected


def test_keys_that_no_client_would_find_are_faults():
    keys = [b'{"id":1}', b'{"id": 1}', b'{"id":"a"}']
    assert list(find_key_faults(Options(key_fields=(("id", "integer"),)), keys)) == [
        "their JSON is not that of Connect's converter",
        "the key has a field 'id' that is not an integer: keys of this topic are {\"id\": ...}",
    ]


SCHEMA = '{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}],"optional":false}'


def with_schema(payload: str, schema: str = SCHEMA) -> bytes:
    return f'{{"schema":{schema},"payload":{payload}}}'.encode()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([with_schema('{"id":1}'), with_schema('{"id":2}')], SCHEMA),
        ([with_schema("7", '{"type":"int64","optional":false}')], '{"type":"int64","optional":false}'),
        ([with_schema('{"id":1}'), with_schema('{"id":1}', SCHEMA.replace("int32", "int64"))], ""),
        ([with_schema('{"id": 1}')], ""),
        ([with_schema('{"id":1.5}', SCHEMA.replace("int32", "double"))], ""),
        ([with_schema('{"id":1}'), b'{"id":1}'], ""),
        ([with_schema('{"id":1}'), b"\xff"], ""),
        ([b'{"schema":{},"payload":{"id":1}}'], ""),
        ([], ""),
    ],
)
def test_the_schema_of_keys_is_the_one_that_all_have_in_them(keys, expected):
    assert guess_key_schema(keys) == expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([b"\0\0\0\0\7\x0e", b"\0\0\0\0\x08\x0e"], True),
        ([b"\0\0\0\0\0\0\0\7"], False),
        ([b"\0\0\0\0\7"], False),
        ([b"\0\0\0\0\7\x0e", b"key"], False),
        ([], False),
    ],
)
def test_keys_of_a_registry_begin_with_the_id_of_a_schema(keys, expected):
    assert has_registry_keys(keys) is expected


def test_keys_that_have_no_schema_or_another_one_are_faults():
    keys = [with_schema('{"id":1}'), b'{"id":1}', with_schema('{"id": 1}')]
    assert list(find_key_faults(Options(key_schema=SCHEMA), keys)) == [
        "they have another schema, or none",
        "their JSON is not that of Connect's converter",
    ]
    assert list(find_key_faults(Options(key_format="registry"), [b"\0\0\0\0\7\x0e", b"7"])) == [
        "it does not begin with the byte 0 and the id of a schema"
    ]
    assert list(find_key_faults(Options(), keys)) == []


def test_values_of_a_registry_are_decoded_where_it_answers():
    with serve_double() as registry:
        registry.has("/schemas/ids/7", {"schema": "{}", "schemaType": "JSON"})
        given = {"KEYLANE_SCHEMA_REGISTRY_URL": registry.url}
        assert decode_registered([b"\0\0\0\0\7" + EVENT], given) == [EVENT]
        assert decode_registered([b"\0\0\0\0\x08" + EVENT], given) == []
    assert decode_registered([b"\0\0\0\0\7" + EVENT], given) == []
    assert decode_registered([b"\0\0\0\0\7" + EVENT], {}) == []
