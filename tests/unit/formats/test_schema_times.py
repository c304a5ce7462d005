"""Times of a schema: what is no schema has none, and one that names itself comes to an end."""

from __future__ import annotations

import json

import pytest

from keylane.formats.schema_times import time_kinds

MICRO = "io.debezium.time.MicroTimestamp"
AGAIN = {"type": "record", "name": "A", "fields": [{"name": "a", "type": ["A", "null"]}] * 200}
AT = {"type": "long", "connect.name": MICRO}


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "[",
        "null",
        "1",
        '"A"',
        "[1]",
        '{"fields": 1}',
        '{"fields": [1, {}]}',
        '{"properties": []}',
        "[" * 9_999,
    ],
)
def test_what_is_no_schema_says_nothing(schema):
    assert time_kinds(schema, [("a", "b")], of_event=True) == {}


def test_a_schema_that_names_itself_ends():
    assert time_kinds(json.dumps(AGAIN), [("a",) * 50], of_event=False) == {}
    deep: object = AT
    for _ in range(200):
        deep = {"type": deep}
    assert time_kinds(json.dumps({"fields": [{"name": "a", "type": deep}]}), [("a",)], of_event=False) == {}


def test_a_name_of_a_namespace_is_found():
    inner = {"type": "record", "name": "Value", "namespace": "x.y", "fields": [{"name": "at", "type": AT}]}
    fields = [{"name": "before", "type": inner}, {"name": "after", "type": ["null", "x.y.Value"]}]
    schema = json.dumps({"type": "record", "name": "Envelope", "fields": fields})
    assert time_kinds(schema, [("at",)], of_event=True) == {("at",): "time_us"}
    assert time_kinds(schema, [("after", "at"), ("before", "x")], of_event=False) == {
        ("after", "at"): "time_us"
    }


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("MicroTime", "time_us"),
        ("MicroDuration", "time_us"),
        ("NanoDuration", "time_ns"),
        ("Date", "time_days"),
    ],
)
def test_numbers_of_debezium_have_their_units(name, kind):
    schema = {"fields": [{"field": "at", "type": "int64", "name": f"io.debezium.time.{name}"}]}
    assert time_kinds(json.dumps(schema), [("at",)], of_event=False) == {("at",): kind}
