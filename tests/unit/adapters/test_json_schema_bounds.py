"""What a JSON Schema that any writer may register can take: time, memory, and never the process."""

from __future__ import annotations

import contextlib
import json
import resource
import time
from typing import Any

import pytest
from tests.support.fakes import FakeTime

from keylane.adapters.registry import json_schema_bounded as bounded
from keylane.adapters.registry.client import RegisteredSchema
from keylane.adapters.registry.json_schema_cost import WORST_MS, estimate
from keylane.adapters.registry.value_checks import CHECKS_MS, ValueChecks
from keylane.errors import KeylaneError, RegistryUnavailable, ValueInvalid
from keylane.model.records import NewRecord
from keylane.model.schema_rules import SchemaRule
from keylane.ports import Deadline


def doubled(levels: int, keyword: str) -> dict[str, Any]:
    """A schema in which each level names the next one twice."""
    definitions: dict[str, Any] = {
        f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": definitions | {f"d{levels}": {"type": "string"}}}


def chain(length: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {
        f"d{step}": {"anyOf": [{"$ref": f"#/$defs/d{step + 1}"}]} for step in range(length)
    }
    return {"$ref": "#/$defs/d0", "$defs": definitions | {f"d{length}": {}}}


RECURSIVE_TWICE = {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
DEEP = b'{"a":' * 24 + b"1" + b"}" * 24
TREE = {"properties": {"name": {"type": "string"}, "children": {"items": {"$ref": "#"}}}}
LOOK_AROUND = {"items": {"pattern": r"^(?!x)\w+$"}}


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that does much else, a second of the processor may take a minute."""
    monkeypatch.setattr(bounded, "CHILD_WALL_S", 3_000)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (doubled(26, "anyOf"), b"1"),
        (doubled(26, "oneOf"), b'"x"'),
        (doubled(60, "allOf"), b'"x"'),
        (RECURSIVE_TWICE, DEEP),
    ],
    ids=["anyOf", "oneOf", "allOf", "recursive"],
)
def test_a_schema_that_takes_for_ever_is_a_fault_of_the_value_and_ends_no_process(schema: Any, value: bytes):
    begun = resource.getrusage(resource.RUSAGE_SELF)
    fault = bounded.bounded_validator(json.dumps(schema), ()).find_fault(value)
    used = resource.getrusage(resource.RUSAGE_SELF)
    assert fault == bounded.TOO_MUCH
    assert used.ru_utime - begun.ru_utime < 1.5


def test_a_schema_whose_reading_overflows_the_stack_ends_no_process():
    """On a busy machine it takes too much, at its reading or at the check."""
    found: Any = None
    with contextlib.suppress(ValueError):
        found = bounded.bounded_validator(json.dumps(chain(20_000)), ()).find_fault(b"1")
    assert found in {None, bounded.TOO_MUCH}


def test_a_fault_is_found_without_collecting_all_others():
    begun = time.thread_time()
    fault = bounded.validator(doubled(26, "allOf"))(b"1")
    assert fault
    assert time.thread_time() - begun < 1


@pytest.mark.parametrize(
    ("schema", "value", "is_valid"),
    [
        (doubled(16, "allOf"), b'"x"', True),
        (doubled(16, "allOf"), b"1", False),
        ({"unevaluatedProperties": False, "properties": {"a": True}}, b'{"b": 1}', False),
        (
            {"$dynamicAnchor": "n", "properties": {"a": {"$dynamicRef": "#n"}}, "type": "object"},
            b'{"a":{}}',
            True,
        ),
        (LOOK_AROUND, json.dumps(["y"] * 2_000).encode(), True),
        (LOOK_AROUND, json.dumps(["xy"] * 2_000).encode(), False),
    ],
)
def test_what_the_estimate_cannot_bound_is_checked_in_a_process_of_its_own(
    schema: Any, value: bytes, is_valid: bool
):
    cost = estimate(schema, {})
    assert cost is None or not cost.allows(value)
    assert (bounded.bounded_validator(json.dumps(schema), ()).find_fault(value) is None) is is_valid


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, b'{"n": 1}'),
        (TREE, json.dumps({"children": [{"children": [{"name": "x"}]}] * 100}).encode()),
        ({"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}, b'{"a":{"b":{"a":{"b":1}}}}'),
        (LOOK_AROUND, b'["y", "z"]'),
        ({"oneOf": [{"$ref": "#/definitions/a"}, {"type": "null"}], "definitions": {"a": {}}}, b"1"),
        ({"properties": {"who": {"$ref": "customer.json#/definitions/name"}}}, b'{"who": "Ann"}'),
    ],
)
def test_usual_schemas_are_checked_in_this_process(
    schema: Any, value: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delattr(bounded, "_ask_child")
    customer = ("customer.json", '{"definitions": {"name": {"type": "string"}}}')
    assert bounded.bounded_validator(json.dumps(schema), [customer]).find_fault(value) is None


def test_an_estimate_is_at_least_what_the_check_takes():
    schema = {"items": {"allOf": [{"type": "string"}] * 500}}
    value = json.dumps(["x"] * 5_000).encode()
    cost = estimate(schema, {})
    assert cost
    parts = 1 + value.count(b",") + value.count(b"[")
    begun = time.thread_time()
    assert bounded.validator(schema)(value) is None
    assert time.thread_time() - begun < max(0.5, parts * cost.visit_ns / 1e9)
    assert not cost.allows(value * 20)
    assert WORST_MS < 1_000


class OneSchema:
    """A registry whose subjects all have one schema; each request moves the clock."""

    def __init__(self, schema: Any, now: FakeTime, takes_s: float) -> None:
        self._schema = RegisteredSchema("JSON", json.dumps(schema), [])
        self._time, self._takes_s = now, takes_s

    def latest(self, _subject: str, _deadline: object) -> RegisteredSchema:
        self._time.pause(self._takes_s)
        return self._schema

    def referenced(self, _schema: object, _deadline: object) -> list[tuple[str, str]]:
        return []


def faults(schema: Any, *records: NewRecord, takes_s: float = 0) -> list[KeylaneError | None]:
    now = FakeTime()
    rule = SchemaRule("*", None, "{topic}-value", is_plain=True)
    checks = ValueChecks([rule], OneSchema(schema, now, takes_s), now.clock)  # type: ignore[arg-type]
    return checks.faults(records, Deadline.after_ms(1_000, now.clock))


def record(topic: str, value: bytes = b'{"a": 1}') -> NewRecord:
    return NewRecord(topic, b"k", value)


def test_a_value_whose_check_takes_too_much_is_invalid():
    [error] = faults(RECURSIVE_TWICE, record("orders", DEEP))
    assert isinstance(error, ValueInvalid)
    assert "simplify the schema" in str(error)


def test_a_schema_that_the_other_process_cannot_use_is_reported_as_unavailable():
    [error] = faults(chain(50) | {"pattern": "(", "unevaluatedItems": True}, record("orders"))
    assert isinstance(error, RegistryUnavailable)
    assert "can't be used" in str(error)


def test_a_check_that_gets_no_processor_time_is_not_the_values_fault(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bounded, "CHILD_WALL_S", 0.001)
    [error] = faults(RECURSIVE_TWICE, record("orders", DEEP))
    assert isinstance(error, RegistryUnavailable)
    assert "in time" in str(error)


def test_the_checks_of_one_request_end():
    first, second = faults({}, record("orders"), record("orders"), takes_s=CHECKS_MS / 1_000 + 2)
    assert first is None
    assert isinstance(second, ValueInvalid)
    assert "fewer records" in str(second)
