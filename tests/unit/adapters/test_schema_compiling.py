r"""What compiling a schema of any writer may take: time, and memory for as long as it is kept."""

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema_rs
import pytest
from tests.support.fakes import FakeTime

from keylane.adapters.registry import json_schema_bounded as bounded
from keylane.adapters.registry import keys
from keylane.adapters.registry.client import RegisteredSchema
from keylane.adapters.registry.compiled import CHARACTERS_LIMIT, CompiledSchemas, one_at_a_time
from keylane.adapters.registry.encoders import make_encoder
from keylane.adapters.registry.json_schema_cost import COMPILE_MS, estimate
from keylane.adapters.registry.pattern_cost import compile_ns
from keylane.adapters.registry.protobuf import compile_schema
from keylane.adapters.registry.value_checks import LATEST_MS, ValueChecks
from keylane.errors import RegistryUnavailable
from keylane.model.records import NewRecord
from keylane.model.schema_rules import SchemaRule
from keylane.ports import Deadline, SchemaRefused

LARGE = [
    *(r"\p{L}{1,60}", r"\pL{60}", r"\P{L}{60,}", r"(?:\p{L}|x){60}", r"(\p{L}{10}){6}", r"[\p{L}\p{N}]{60}"),
    *(r"[^\p{L}]{60}", r"(?=\p{L}{60})x", r"(?i)\p{L}{1,30}", r"\p{L}{60}?", r"(?i:\p{L}){ 60 }"),
]
SMALL = [
    *(
        "^[A-Za-z0-9._-]{1,249}$",
        r"^\d{4}-\d{2}-\d{2}T",
        r"\p{Lu}",
        "^(?:a|b|c)$",
        r"^(?!x)\w+$",
        "(?i)^utf-8$",
    ),
    *(
        r"^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$",
        r"^[^/\s]{1,100}$",
        ".{1,255}",
        r"^.*\S.*$",
        "(?i)^utf-8$",
    ),
]


@pytest.mark.parametrize("pattern", [*LARGE, *SMALL])
def test_an_estimate_is_at_least_what_compiling_takes(pattern: str):
    estimated_ns = compile_ns({"properties": {"a": {"pattern": pattern}}})
    assert estimated_ns
    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=1_000)
    taken_s = []
    for _ in range(3):
        begun_s = time.thread_time()
        jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options)
        taken_s.append(time.thread_time() - begun_s)
    assert min(taken_s) * 1e9 < 5 * estimated_ns + 1_000_000  # a neighbour of this core costs half of that
    assert (estimated_ns > COMPILE_MS * 1e6 / 3) is (pattern in LARGE)


@pytest.mark.parametrize(
    "pattern",
    [
        "(?x)a b",
        "[[:alpha:]]{60}",
        r"[a-z&&\p{L}]{60}",
        r"[]\p{L}]{60}",
        r"[^]\p{L}]{60}",
        "(a)?(?(1)b|c)",
        "(?#x)",
    ],
)
def test_what_is_not_read_is_not_estimated(pattern: str):
    assert compile_ns({"pattern": pattern}) is None
    assert estimate({"items": {"pattern": pattern}}, {}) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"patternProperties": {rf"\p{{L}}{{1,60}}z{number}": {} for number in range(300)}},
        {"$defs": {"unused": {"pattern": r"\p{L}{9999}"}}},
        {"properties": {"a": {"items": [{"pattern": r"((\p{L}{1,60}){1,60}){1,60}"}]}}},
    ],
)
def test_patterns_that_no_process_compiles_are_refused_by_their_size(
    schema: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delattr(bounded, "_ask_child")
    monkeypatch.delattr(bounded, "validator")
    for made in (schema, {"$ref": "other.json"}):
        with pytest.raises(ValueError, match="too long to compile"):
            bounded.bounded_validator(json.dumps(made), [("other.json", json.dumps(schema))])


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"pattern": rf"\p{{L}}{{1,60}}{number}"} for number in range(3)]},
        {"items": {"format": "regex"}},
        {"enum": ["x" * 100] * 1_000},
        {"pattern": "(?x)a"},
    ],
    ids=["patterns", "format", "long", "unread"],
)
def test_what_takes_long_to_compile_is_compiled_in_a_process_of_its_own(
    schema: Any, monkeypatch: pytest.MonkeyPatch
):
    asked: list[bytes | None] = []
    monkeypatch.setattr(bounded, "_ask_child", lambda _text, _references, value=None: asked.append(value))
    monkeypatch.delattr(bounded, "validator")
    assert bounded.bounded_validator(json.dumps(schema), ()).find_fault(b"1") is None
    assert asked == [None, b"1"]


def test_few_requests_wait_for_such_a_process(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bounded, "WAIT_S", 0.001)
    monkeypatch.setattr(bounded, "_run_child", lambda _: None)
    places = [bounded._place() for _ in range(bounded.CHILDREN)]
    for place in places:
        place.__enter__()
    with pytest.raises(RegistryUnavailable, match="other values"):
        bounded.bounded_validator('{"unevaluatedItems": true}', ())
    for place in places:
        place.__exit__(None, None, None)
    with pytest.raises(ValueError, match="simplify"):
        bounded.bounded_validator('{"unevaluatedItems": true}', ())


def test_a_latest_schema_that_is_the_same_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch):
    compiled: list[str] = []
    made = bounded.BoundedValidator(lambda _: None, 1)
    monkeypatch.setattr(
        "keylane.adapters.registry.value_checks.bounded_validator",
        lambda text, _: compiled.append(text) or made,
    )
    now = FakeTime()

    class Registry:
        text = '{"unevaluatedItems": true}'

        def latest(self, _subject: str, _deadline: object) -> RegisteredSchema:
            return RegisteredSchema("JSON", self.text, [])

        def referenced(self, _schema: object, _deadline: object) -> list[tuple[str, str]]:
            return []

    registry: Any = Registry()
    checks = ValueChecks([SchemaRule("*", None, "{topic}-value", is_plain=True)], registry, now.clock)
    for text in (registry.text, registry.text, "{}"):
        registry.text = text
        assert checks.faults([NewRecord("t", b"k", b"1")], Deadline.after_ms(1_000, now.clock)) == [None]
        now.pause(LATEST_MS / 1000 + 1)
    assert compiled == ['{"unevaluatedItems": true}', "{}"]


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_an_avro_or_protobuf_schema_is_not_longer_than_is_compiled_quickly(kind: str):
    text = '{"type": "int", "doc": "%s"}' if kind == "AVRO" else 'syntax = "proto3"; message M {} // %s'
    assert make_encoder(kind, text % "x").size_bytes < 5_000
    with pytest.raises(ValueError, match="characters"):
        make_encoder(kind, text % ("x" * CHARACTERS_LIMIT))
    with pytest.raises(ValueError, match="characters"):
        one_at_a_time(len, "x", [("name", "x" * CHARACTERS_LIMIT)])


def test_each_version_of_a_keys_subject_is_short():
    now = FakeTime()

    class Registry:
        def versions(self, _subject: str, _deadline: object) -> list[int]:
            return [1]

        def version(self, _subject: str, version: int, _deadline: object) -> tuple[int, RegisteredSchema]:
            return version, RegisteredSchema("JSON", "{}" + " " * keys.CHARACTERS_LIMIT, [])

    found = keys.RegistryKeys(Registry(), CompiledSchemas())  # type: ignore[arg-type]
    with pytest.raises(SchemaRefused, match="characters"):
        found.encoders("t-key", Deadline.after_ms(1_000, now.clock))


def test_what_is_kept_is_bounded_by_bytes_and_what_is_used_stays():
    kept: CompiledSchemas[str] = CompiledSchemas(100)
    for key in "abc":
        kept.keep(key, key, 30)
    assert kept.get("a") == "a"
    kept.keep("d", "d", 30)
    assert [kept.get(key) for key in "abcd"] == ["a", None, "c", "d"]
    kept.keep("d", "D", 20)
    assert kept.size_bytes == 80
    kept.keep("large", "large", 1_000)
    assert [kept.get(key) for key in ("a", "d", "large")] == [None, None, "large"]
    kept.keep("a", "a", 30)
    assert (kept.get("large"), kept.size_bytes) == (None, 30)


def test_a_thousand_maps_of_a_large_message_are_measured_once():
    maps = " ".join(f"map<int32, M> f{number} = {number + 1};" for number in range(1_700))
    begun_s = time.thread_time()
    compile_schema(f'syntax = "proto3"; message M {{ {maps} }}', ())
    assert time.thread_time() - begun_s < 0.3
