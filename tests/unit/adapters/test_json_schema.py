"""JSON Schemas of values that are to be written: the fault's place, and what schemas may not do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from keylane.adapters.registry.json_schema import Fault, validator

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "lines": {"type": "array", "items": {"properties": {"n/a~": {"minimum": 1}}}},
        "mail": {"type": "string", "pattern": "^(a+)+$"},
    },
    "required": ["id"],
}


def fault(schema: Any, value: Any, *references: tuple[str, str]) -> Fault | None:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return validator(schema, references)(data)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"id": "7"}, "/id"),
        ({}, ""),
        ([], ""),
        ({"id": 1, "lines": [{}, {"n/a~": 0}]}, "/lines/1/n~1a~0"),
        ({"id": 1, "mail": "a" * 10_000 + "!"}, "/mail"),
        ({"id": 1, "mail": 10**400}, "/mail"),
    ],
)
def test_the_fault_is_told_with_its_place_and_without_the_value(value: Any, path: str):
    found = fault(ORDER, value)
    assert found
    assert found.path == path
    assert len(found.reason) <= 300
    assert "aaaaa" not in found.reason


def test_sound_values_have_none():
    assert fault(ORDER, {"id": 1, "lines": [{"n/a~": 1}], "mail": "aa", "more": None}) is None
    assert fault({"multipleOf": 0.01}, b"19.99") is None
    assert fault(True, b"null") is None


@pytest.mark.parametrize(
    "value", [b"", b"{", b"NaN", b"1e999", b"\xff", b"{}{}", b"[" * 100_000, b"9" * 5_000, b"\xef\xbb\xbf{}"]
)
def test_what_is_no_json_is_told_as_that(value: bytes):
    assert fault({}, value) == Fault("", "it is no JSON")


def test_values_nested_deeper_than_can_be_looked_at_are_refused():
    assert fault({"type": "integer"}, b"[" * 900 + b"]" * 900) is not None
    found = fault({"properties": {"a": {"const": 1}}}, b'{"a":' * 900 + b"1" + b"}" * 900)
    assert found == Fault("", "it is nested too deep")


def test_patterns_take_no_time_to_speak_of():
    linear = {"pattern": "^(a+)+$"}
    bounded = {"pattern": "^(?=a)(a|aa)+$(?!b)"}
    for schema in (linear, bounded):
        assert fault(schema, "a" * 50_000 + "!") is not None


@pytest.mark.parametrize(
    "schema",
    [
        5,
        None,
        {"type": "nonsense"},
        {"pattern": "("},
        {"$ref": "#/nowhere"},
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$schema": "http://example.org/mine"},
    ],
)
def test_what_is_no_schema_or_would_have_to_be_fetched_is_refused(schema: Any):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (its sentence is the library's)
        validator(schema)
    assert str(caught.value)


@pytest.mark.parametrize("identity", [{}, {"$id": "http://example.org/order.json"}])
def test_schemas_that_come_with_it_are_known_by_their_names(identity: dict[str, str]):
    schema = identity | {"properties": {"who": {"$ref": "customer.json"}}}
    customer = ("customer.json", '{"required": ["name"]}')
    assert fault(schema, {"who": {"name": "Ann"}}, customer) is None
    found = fault(schema, {"who": {}}, customer)
    assert found
    assert found.path == "/who"
    with pytest.raises(ValueError, match=r"customer\.json"):
        validator(schema)
