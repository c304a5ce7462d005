"""What `keylane new` and `keylane check` take for the topic of a database's table."""

from __future__ import annotations

import json

import pytest
from tests.servers.registry_double import RegistryDouble

from keylane.model.records import Options
from keylane_cli.survey.table_guess import (
    decode_registered,
    explain_events,
    explain_keys,
    explain_registered,
    find_event_faults,
    find_key_faults,
    guess_key_fields,
    guess_key_schema,
    guess_times,
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


ORACLE = (
    '{"type":"struct","fields":[{"type":"struct","fields":[{"type":"int32","field":"scale"},'
    '{"type":"bytes","field":"value"}],"name":"io.debezium.data.VariableScaleDecimal","field":"ID"}]}'
)
HINT = "decimal.handling.mode=string"


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ([b'{"ID":{"scale":0,"value":"Bw=="}}'], ("the field 'ID' is not a string", HINT)),
        ([b'{"a":1,"b":{"c":1}}'], ("the field 'b' is not a string",)),
        ([b'{"a":null}', b'{"a":1}'], ("the field 'a' is not a string",)),
        ([b'{"id":1}', b'{"id":"1"}'], ("a field 'id' that is not a",)),
        ([b'{"id":1}', b'{"no":1}'], ("several fields",)),
        ([b'{"a":1,"b":1}', b'{"b":1,"a":1}'], ("several fields, or several orders",)),
        ([b'{"id": 1}'], ("not Connect's converter's",)),
        ([b'{"id":' + b"9" * 5_000 + b"}"], ("not Connect's converter's",)),
        ([f'{{"schema":{ORACLE},"payload":{{"ID":{{"scale":0}}}}}}'.encode()], ("type 'struct'", HINT)),
        ([b'{"schema":{"a":1},"payload":1}', b'{"schema":{"b":1},"payload":1}'], ("several schemas",)),
        *(([each], ()) for each in (b"7", b"key", b'"a"', b"[1]", b"\xff")),
        ([], ()),
    ],
)
def test_keys_that_are_objects_and_get_no_option_say_why(keys, why):
    found = explain_keys(keys)
    assert all(each in found for each in why)
    assert bool(found) is bool(why)


MONGO = b'{"after":"{\\"_id\\": {\\"$oid\\": \\"a\\"}}","op":"c"}'
UPDATE = b'{"after":null,"updateDescription":{"updatedFields":"{}"},"op":"u"}'


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([MONGO, EVENT], ""),
        ([MONGO, UPDATE], "1 of 2 values are not change events: it is an update without its document"),
        ([UPDATE], "1 of 1 values are not change events: it is an update without its document"),
        ([b"{}", b"no"], ""),
        ([b"{}", b"\0\1"], ""),
        ([EVENT, b"\0\1", b"no"], "1 of 2 values are not change events: "),
        ([], ""),
    ],
)
def test_a_topic_with_some_change_events_says_what_the_others_are(values, why):
    assert explain_events(values).startswith(why)
    assert bool(explain_events(values)) is bool(why)
    assert has_change_events(values) is (values == [MONGO, EVENT])


US = 1793491200000000
TYPED = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": []}, {"field": "op"}]}
TYPED["fields"][0]["fields"] = [{"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"}]


@pytest.mark.parametrize(
    ("values", "guessed", "typed"),
    [
        (
            [{"at": US // 1000, "us": US, "ns": US * 1000, "s": US // 10**6}],
            ["time", "time_us", "time_ns", "time_s"],
            {},
        ),
        ([{"on": 20758, "year": 2013}], ["time_days", "number"], {}),
        ([{"a": {"at": US}, "b": None, "c": [US]}, {"a": {"at": None}}], ["time_us"], {}),
        ([{"at": US}, {"at": 7}], [], {}),
        ([{"at": True, "b": "x", "c": 1.5}], [], {}),
        ([{"op": "c", "after": {"at": US}}], ["time_us"], {}),
        ([{"schema": TYPED, "payload": {"op": "c", "after": {"at": US}}}], [], {"at": "time_us"}),
        ([[1], None, 5], [], {}),
        ([], [], {}),
    ],
)
def test_fields_may_be_times_by_their_numbers_or_are_by_their_schema(values, guessed, typed):
    found = guess_times([json.dumps(each).encode() for each in values])
    assert (list(found.guessed.values()), found.typed) == (guessed, typed)
    assert guess_times([b"\xff", b"\0\0\0\0\7x", b"no"]) == ({}, {})


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
    with RegistryDouble() as registry:
        registry.has("/schemas/ids/7", {"schema": "{}", "schemaType": "JSON"})
        given = {"KEYLANE_SCHEMA_REGISTRY_URL": registry.url}
        assert decode_registered([b"\0\0\0\0\7" + EVENT], given) == ([EVENT], "")
        found, why = decode_registered([b"\0\0\0\0\x08" + EVENT], given)
        assert (found, "status 404" in why) == ([], True)
    for environment, reason in ((given, "Schema Registry"), ({}, "KEYLANE_SCHEMA_REGISTRY_URL")):
        found, why = decode_registered([b"\0\0\0\0\7" + EVENT], environment)
        assert (found, reason in why) == ([], True)
    assert not has_change_events([b"\0\0\0\0\7" + EVENT])


def test_keys_of_a_registry_are_compared_with_what_their_schemas_make():
    fields = '{"name":"scale","type":"int"},{"name":"value","type":"bytes"}'
    decimal = f'{{"type":"record","name":"D","fields":[{fields}]}}'
    key = f'{{"type":"record","name":"K","fields":[{{"name":"ID","type":{decimal}}}]}}'
    with RegistryDouble() as registry:
        schema = {"schema": key, "schemaType": "AVRO"}
        registry.has("/schemas/ids/7", schema)
        given = {"KEYLANE_SCHEMA_REGISTRY_URL": registry.url}
        registry.has("/subjects/t-key/versions", {"error_code": 40401, "message": "no"}, 404)
        assert "t-key" in explain_registered("t", [b"\0\0\0\0\7\0\2\7"], given)
        registry.has("/subjects/t-key/versions", [1])
        registry.has("/subjects/t-key/versions/1", schema | {"id": 7, "version": 1, "subject": "t-key"})
        assert explain_registered("t", [b"\0\0\0\0\7\0\2\7"], given) == ""
    assert explain_registered("t", [b"\0\0\0\0\7\0\2\7"], {}) == ""
