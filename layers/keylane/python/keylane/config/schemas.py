"""KEYLANE_SCHEMAS: what the values of a topic must be like.

A JSON object of rules by pattern; the first pattern that fits a topic counts:

    {"orders*": {"schema": {"type": "object"}}}          a JSON Schema
    {"orders*": {"file": "schemas/orders.json"}}         one in a file, relative to the function's folder
    {"*": {"subject": "{topic}-value"}}                  in a Schema Registry's wire format, by a subject
    {"*": {"subject": "{topic}-value", "plain": true}}   JSON, by the latest JSON Schema of a subject

Tombstones have no value: no rule applies to them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keylane.config.table import WRITES
from keylane.errors import SettingsError
from keylane.model.schema_rules import SchemaRule

SCHEMAS = "KEYLANE_SCHEMAS"
_KINDS = {"schema", "file", "subject"}


def schema_rules(environment: Mapping[str, str]) -> tuple[SchemaRule, ...]:
    """Return all rules of KEYLANE_SCHEMAS in their order, with the schemas in files loaded.

    Raises SettingsError.
    """
    given = WRITES.read(environment, SCHEMAS)
    folder = Path(environment.get("LAMBDA_TASK_ROOT", "."))
    return tuple(_rule(pattern, rule, folder) for pattern, rule in given.items())


def _rule(pattern: str, given: Any, folder: Path) -> SchemaRule:
    name = pattern[:100]
    if not isinstance(given, dict) or len(given.keys() & _KINDS) != 1 or given.keys() - _KINDS - {"plain"}:
        known = ", ".join(sorted(_KINDS))
        what = f"has a rule {name!r} that is not an object with one of {known}: "
        what += f"it must be {WRITES[SCHEMAS].accepts}"
        raise SettingsError(SCHEMAS, what)
    plain = given.get("plain", False)
    if not isinstance(plain, bool) or (plain and "subject" not in given):
        raise SettingsError(
            SCHEMAS, f"has a rule {name!r} whose plain is not true or false, or which has no subject"
        )
    if "schema" in given:
        return SchemaRule(pattern, given["schema"])
    [(kind, text)] = ((kind, given[kind]) for kind in _KINDS & given.keys())
    if not isinstance(text, str) or not text:
        raise SettingsError(SCHEMAS, f"has a rule {name!r} whose {kind} is not a string")
    if kind == "subject":
        return SchemaRule(pattern, None, text, plain)
    try:
        return SchemaRule(pattern, json.loads((folder / text).read_bytes()))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(SCHEMAS, f"has a rule {name!r} whose file cannot be read: {error}") from error
