"""JSON Schemas as functions that look for a value's first fault, by jsonschema-rs.

Nothing is fetched: a schema knows its own parts, those that come with it, and the drafts. Patterns are
matched in linear time; those with look-around or back-references, which can't be, in so many steps at most.

Imported where settings name a schema, not before.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin

import jsonschema_rs

from keylane.formats.json_text import finite, no_constant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STEPS = 100_000
"""Of matching a pattern that has no linear way: a few milliseconds."""
REASON_CHARACTERS = 300

_decoder = json.JSONDecoder(parse_constant=no_constant, parse_float=finite)


class Fault(NamedTuple):
    """What is wrong with a value; `path` is a JSON Pointer (RFC 6901), "" for the value as a whole."""

    path: str
    reason: str


def validator(schema: Any, references: Sequence[tuple[str, str]] = ()) -> Callable[[bytes], Fault | None]:
    """Give the function that finds a value's first fault. Raises ValueError, which says why, for no schema.

    `references`: names, as the schema's `$ref` has them, and texts of other schemas.
    """
    resources = [(uri, json.loads(text)) for name, text in references for uri in _uris(schema, name)]
    try:
        compiled = jsonschema_rs.validator_for(
            schema,
            mask="the value",
            registry=jsonschema_rs.Registry(resources) if resources else None,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=STEPS),
            offline=True,
        )
    except jsonschema_rs.ValidationError as error:
        raise ValueError(error.message[:REASON_CHARACTERS]) from error
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(str(error)[:REASON_CHARACTERS]) from error

    def fault_of(value: bytes) -> Fault | None:
        try:
            document = _decoder.decode(value.decode())
        except (ValueError, RecursionError):
            return Fault("", "it is no JSON")
        try:
            error = next(iter(compiled.iter_errors(document)), None)
        except ValueError:
            return Fault("", "it is nested too deep")
        return (
            None if error is None else Fault(_pointer(error.instance_path), error.message[:REASON_CHARACTERS])
        )

    return fault_of


def _uris(schema: Any, name: str) -> set[str]:
    """What a `$ref` to the name may mean: it is relative to the schema's own `$id`."""
    base = schema.get("$id", "") if isinstance(schema, dict) else ""
    return {name, urljoin(base, name)} if isinstance(base, str) else {name}


def _pointer(path: Sequence[str | int]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
