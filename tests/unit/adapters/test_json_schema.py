"""JSON Schemas of values that are to be written: paths of faults, and what schemas may not do."""

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
def test_a_fault_has_a_path_and_does_not_show_the_value(value: Any, path: str):
    found = fault(ORDER, value)
    assert found
    assert found.path == path
    assert len(found.reason) <= 300
    assert "aaaaa" not in found.reason


def test_valid_values_have_no_fault():
    assert fault(ORDER, {"id": 1, "lines": [{"n/a~": 1}], "mail": "aa", "more": None}) is None
    assert fault({"multipleOf": 0.01}, b"19.99") is None
    assert fault(True, b"null") is None


@pytest.mark.parametrize(
    "value", [b"", b"{", b"NaN", b"1e999", b"\xff", b"{}{}", b"[" * 100_000, b"9" * 5_000, b"\xef\xbb\xbf{}"]
)
def test_a_value_that_is_not_json_is_a_fault(value: bytes):
    assert fault({}, value) == Fault("", "the value is not valid JSON")


def test_values_that_are_nested_too_deep_are_refused():
    assert fault({"type": "integer"}, b"[" * 900 + b"]" * 900) is not None
    found = fault({"properties": {"a": {"const": 1}}}, b'{"a":' * 900 + b"1" + b"}" * 900)
    assert found == Fault("", "the value is nested too deeply")


def test_patterns_are_matched_in_bounded_time():
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
def test_invalid_schemas_and_those_that_would_have_to_be_fetched_are_refused(schema: Any):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (its sentence is the library's)
        validator(schema)
    assert str(caught.value)


@pytest.mark.parametrize(
    "identity",
    [
        {},
        {"$id": "http://example.org/order.json"},
        {"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://example.org/order.json"},
    ],
)
def test_references_are_known_by_their_names(identity: dict[str, str]):
    schema = identity | {"properties": {"who": {"$ref": "customer.json"}}}
    customer = ("customer.json", '{"required": ["name"]}')
    assert fault(schema, {"who": {"name": "Ann"}}, customer) is None
    found = fault(schema, {"who": {}}, customer)
    assert found
    assert found.path == "/who"
    with pytest.raises(ValueError, match=r"customer\.json"):
        validator(schema)
