"""KEYLANE_SCHEMAS: what values of a topic must be like.

A JSON object, topics by pattern, of which the first that fits holds:

    {"orders*": {"schema": {"type": "object"}}}          a JSON Schema
    {"orders*": {"file": "schemas/orders.json"}}         one in a file, from the function's folder on
    {"*": {"subject": "{topic}-value"}}                  in a Schema Registry's wire format, of its subject
    {"*": {"subject": "{topic}-value", "plain": true}}   JSON, by the subject's latest JSON Schema

Tombstones have no value, and pass.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keylane.config.env import json_object
from keylane.errors import SettingsError
from keylane.model.schema_rules import SchemaRule

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMAS = "KEYLANE_SCHEMAS"
_EXAMPLE = '{"orders*": {"file": "schemas/orders.json"}, "*": {"subject": "{topic}-value"}}'
_KINDS = {"schema", "file", "subject"}


def schema_rules(environment: Mapping[str, str]) -> tuple[SchemaRule, ...]:
    """Read them all, files too. Raises SettingsError."""
    given = json_object(environment, SCHEMAS, _EXAMPLE)
    folder = Path(environment.get("LAMBDA_TASK_ROOT", "."))
    return tuple(_rule(pattern, rule, folder) for pattern, rule in given.items())


def _rule(pattern: str, given: Any, folder: Path) -> SchemaRule:
    name = pattern[:100]
    if not isinstance(given, dict) or len(given.keys() & _KINDS) != 1 or given.keys() - _KINDS - {"plain"}:
        known = ", ".join(sorted(_KINDS))
        raise SettingsError(SCHEMAS, f"has for {name!r} no object with one of {known}, like {_EXAMPLE}")
    plain = given.get("plain", False)
    if not isinstance(plain, bool) or (plain and "subject" not in given):
        raise SettingsError(SCHEMAS, f"has for {name!r} a plain that is no true or false beside a subject")
    if "schema" in given:
        return SchemaRule(pattern, given["schema"])
    [(kind, text)] = ((kind, given[kind]) for kind in _KINDS & given.keys())
    if not isinstance(text, str) or not text:
        raise SettingsError(SCHEMAS, f"has for {name!r} a {kind} that is no text")
    if kind == "subject":
        return SchemaRule(pattern, None, text, plain)
    try:
        return SchemaRule(pattern, json.loads((folder / text).read_bytes()))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(SCHEMAS, f"has for {name!r} a file that can't be read: {error}") from error
