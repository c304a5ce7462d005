"""`KEYLANE_ACCESS`: the tokens that the authorizer accepts, and what each grants."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from keylane.access.grants import Grant
from keylane.errors import SettingsError
from keylane.model.routes import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "KEYLANE_ACCESS"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def grants_of(environment: Mapping[str, str]) -> dict[str, Grant]:
    """KEYLANE_ACCESS. Raises SettingsError, which shows neither tokens nor their hashes."""
    try:
        given = json.loads(environment.get(VARIABLE) or "null")
    except (ValueError, RecursionError):
        raise SettingsError(VARIABLE, "is no JSON") from None
    if not isinstance(given, dict) or not given:
        raise SettingsError(VARIABLE, "is no JSON object of tokens' hashes")
    return {digest: _grant(number, digest, each) for number, (digest, each) in enumerate(given.items(), 1)}


def _grant(number: int, digest: str, given: Any) -> Grant:
    if not _DIGEST.fullmatch(digest):
        raise SettingsError(
            VARIABLE, f"has as name {number} no SHA-256 of 64 hexadecimal digits, in lower case"
        )
    fields = {"name", *(kind.value for kind in Kind)}
    if not isinstance(given, dict) or not given.keys() <= fields:
        raise SettingsError(VARIABLE, f"has as grant {number} no object of {', '.join(sorted(fields))}")
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise SettingsError(VARIABLE, f"has no name in grant {number}")
    lists = [given.get(kind.value, []) for kind in Kind]
    if not all(
        isinstance(each, list) and all(isinstance(one, str) and one for one in each) for each in lists
    ):
        raise SettingsError(VARIABLE, f"has in grant {number} something that is no list of patterns")
    return Grant(name, *map(tuple, lists))
