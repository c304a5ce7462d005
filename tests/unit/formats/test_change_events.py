"""What a change event says of its row, in each of its forms."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keylane.formats import change_events
from keylane.formats.change_events import parse_event
from keylane.formats.extended_json import to_plain
from keylane.formats.json_text import members

ROW = '{"id": 7, "price": 12.500, "op": "d", "big": 12345678901234567890123}'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("operation", ["c", "u", "r"])
def test_a_set_has_its_row_digit_by_digit(operation):
    event = f'{{"before": null, "after": {ROW}, "source": {{}}, "op": "{operation}", "ts_ms": 1}}'
    assert parse_event(event).row == ROW


def test_a_deletion_has_no_row_whatever_it_says_of_the_row_before():
    assert parse_event(f'{{"before": {ROW}, "after": null, "op": "d"}}').row is None


def test_a_payload_beside_its_schema_is_the_event():
    event = f'{{"after": {ROW}, "op": "c"}}'
    assert parse_event(f'{{"schema": {{"op": "d"}}, "payload": {event}}}').row == ROW
    assert parse_event('{"schema": null, "payload": {"op": "d"}}').row is None


def test_an_unwrapped_event_is_the_row_even_with_columns_that_are_called_op_and_payload():
    row = '{"id": 1, "op": "d", "payload": {"op": "d"}, "__deleted": "false"}'
    assert parse_event(row).row == row
    assert parse_event(f'{{"schema": {{}}, "payload": {row}}}').row == row
    for deleted in ('"true"', "true"):
        assert parse_event(f'{{"id": 1, "__deleted": {deleted}}}').row is None


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ("", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ('{"op": "c"', "not valid JSON"),
        ('{"op": "c"} x', "not valid JSON"),
        ('{"op": "c",}', "not valid JSON"),
        ('{"op": "c", }', "not valid JSON"),
        ('{1: "c"}', "not valid JSON"),
        ('{"op" "c"}', "not valid JSON"),
        ('{"op": NaN}', "not valid JSON"),
        ("{}", "it has no op"),
        ('{"op": null, "after": {}}', "it has no op"),
        ('{"payload": null}', "it has no op"),
        ('{"payload": [1]}', "not a JSON object"),
        ('{"op": "t"}', 'its op is "t"'),
        ('{"op": ["c"], "after": {}}', "its op is"),
        ('{"op": "u", "after": null}', "it has no after"),
        ('{"op": "u", "after": [1]}', "it has no after"),
        ('{"op": "u", "after": "[1]"}', "its after is not a JSON object"),
        ('{"op": "u", "after": "{1}"}', "its after is not a JSON object"),
        ('{"op": "c", "after": ""}', "its after is not a JSON object"),
        ('{"op": "u", "after": "{\\"a\\":{\\"$numberLong\\":\\"1\\"}"}', "its after is not a JSON object"),
        (
            '{"op": "u", "after": "{\\"a\\":\\"{\\"$numberLong\\":\\"1\\"}\\"}"}',
            "its after is not a JSON object",
        ),
        (
            '{"op": "u", "after": null, "updateDescription": {"updatedFields": "{}"}}',
            "updateDescription alone",
        ),
        ('{"__deleted": "perhaps"}', "its __deleted is not true or false"),
        ('{"op": "c", "after": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    ],
)
def test_what_is_not_an_event_says_why(event, reason):
    with pytest.raises(ValueError, match=reason):
        parse_event(event)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5), st.sampled_from([None, 1]), st.booleans())
def test_members_of_any_object_are_those_that_json_finds(document, indent, is_ascii):
    text = f" {json.dumps(document, indent=indent, ensure_ascii=is_ascii)}\n"
    assert {name: json.loads(value) for name, value in members(text).items()} == document


@settings(deadline=None)
@given(st.text(alphabet='{}[]":,1a \\', max_size=12))
def test_members_refuse_what_json_refuses(text):
    try:
        expected = json.loads(text)
    except ValueError:
        expected = None
    try:
        found = {name: json.loads(value) for name, value in members(text).items()}
    except ValueError:
        found = None
    assert found == (expected if isinstance(expected, dict) else None)


@pytest.mark.parametrize(
    "event", ['{"after": %s, "op": "c"}', '{"schema": {}, "payload": {"after":%s,"op":"u"}}']
)
def test_a_document_of_mongodb_is_its_plain_json(event):
    document = (
        '{"_id" : {"$oid" : "596e"},"n": {"$numberLong": "7"}, "s": "{\\"$oid\\": \\"x\\"}", "p": 1.50}'
    )
    plain = '{"_id" : "596e","n": 7, "s": "{\\"$oid\\": \\"x\\"}", "p": 1.50}'
    assert parse_event(event % json.dumps(document)).row == plain
    assert parse_event(event % json.dumps('\n{"a":"\ud83d"} ')).row == '{"a":"\\ud83d"}'


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ('{"$oid":"596e275826f08b2730779e1f"}', '"596e275826f08b2730779e1f"'),
        ('{ "$numberInt" : "-1" }', "-1"),
        ('{"$numberLong":"9223372036854775807"}', "9223372036854775807"),
        ('{"$numberDouble":"1.0E10"}', "1.0E10"),
        ('{"$numberDouble":"-Infinity"}', '"-Infinity"'),
        ('{"$numberDecimal":"12.50"}', '"12.50"'),
        ('{"$date":1577836800000}', "1577836800000"),
        ('{"$date":{"$numberLong":"-1"}}', "-1"),
        ('{"$date":"2020-01-01T00:00:00Z"}', '"2020-01-01T00:00:00Z"'),
        ('{"$binary":"YQ==","$type":"00"}', '"YQ=="'),
        ('{"$binary":{"base64":"YQ==","subType":"04"}}', '"YQ=="'),
        ('{"$uuid":"7d0cd9a8"}', '"7d0cd9a8"'),
        ('{"$symbol":"a\\"}"}', '"a\\"}"'),
        *(
            (each, each)
            for each in (
                '{"$timestamp":{"t":1,"i":2}}',
                '{"$regularExpression":{"pattern":"a","options":"i"}}',
                '{"$minKey":1}',
                '{"$numberLong":"01"}',
                '{"$oid":"a","b":1}',
                '{"$ref":"a","$id":1}',
            )
        ),
    ],
)
def test_a_type_of_extended_json_is_plain_where_json_has_it(typed, plain):
    document = f'{{"a": [{typed}, {{"b":{typed}}}], "c" :{typed}}}'
    assert to_plain(document) == document.replace(typed, plain)
    json.loads(to_plain(document))


def test_the_operations_are_those_that_debezium_documents_of_rows():
    assert (*change_events.SETS, change_events.DELETE) == ("c", "u", "r", "d")
