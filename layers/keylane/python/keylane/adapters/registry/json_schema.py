"""JSON Schemas compiled by jsonschema-rs into functions that find a value's first fault.

Nothing is fetched: a schema may refer to its own parts, to its references and to the drafts. Patterns match
in linear time; those with look-around or back-references, which cannot, stop after a number of steps.

Imported where the settings name a schema, not before.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urljoin

import jsonschema_rs

from keylane.formats.json_text import decoder

BACKTRACK_LIMIT = 100_000
"""Steps of a pattern that cannot match in linear time: a few milliseconds."""
REASON_CHARACTERS = 300


class Fault(NamedTuple):
    """What is wrong with a value. `path`: a JSON Pointer (RFC 6901), "" for the complete value."""

    path: str
    reason: str


def validator(schema: Any, references: Sequence[tuple[str, str]] = ()) -> Callable[[bytes], Fault | None]:
    """Return a function from a value to its first fault, None for a valid value.

    `references`: other schemas' names, as the schema's `$ref` has them, and texts. Raises ValueError, which
    says what is wrong, for an invalid schema.
    """
    resources = [(uri, json.loads(text)) for name, text in references for uri in uris(schema, name)]
    try:
        compiled = jsonschema_rs.validator_for(
            schema,
            mask="the value",
            registry=jsonschema_rs.Registry(resources) if resources else None,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT),
            offline=True,
        )
    except jsonschema_rs.ValidationError as error:
        raise ValueError(error.message[:REASON_CHARACTERS]) from error
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(str(error)[:REASON_CHARACTERS]) from error

    def find_fault(value: bytes) -> Fault | None:
        try:
            document = decoder.decode(value.decode())
        except (ValueError, RecursionError):
            return Fault("", "the value is not valid JSON")
        try:
            # Not `iter_errors`, which collects all faults first: there may be millions.
            compiled.validate(document)
        except jsonschema_rs.ValidationError as error:
            return Fault(_pointer(error.instance_path), error.message[:REASON_CHARACTERS])
        except ValueError:
            return Fault("", "the value is nested too deeply")
        return None

    return find_fault


def uris(schema: Any, name: str) -> set[str]:
    """The URIs that a `$ref` to the name may resolve to: it is relative to the schema's own `$id`."""
    if not isinstance(schema, dict):
        return {name}
    base = schema.get("id" if "draft-04" in str(schema.get("$schema")) else "$id", "")
    return {name, urljoin(base, name)} if isinstance(base, str) else {name}


def _pointer(path: Sequence[str | int]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
