"""`KEYLANE_ACCESS`: the tokens that the authorizer accepts, and what each grants."""

import re
from collections.abc import Mapping
from typing import Any

from keylane.access.grants import Grant
from keylane.config.table import ACCESS
from keylane.errors import SettingsError
from keylane.model.patterns import are_patterns
from keylane.model.routes import PermissionKind

_VARIABLE = "KEYLANE_ACCESS"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def read_grants(environment: Mapping[str, str]) -> dict[str, Grant]:
    """Return the grants by the SHA-256 of their tokens. Raises SettingsError, which shows neither."""
    given = ACCESS.read(environment, _VARIABLE)
    if not given:
        raise SettingsError(_VARIABLE, "has no token: it must be " + ACCESS[_VARIABLE].accepts)
    return {digest: _grant(number, digest, each) for number, (digest, each) in enumerate(given.items(), 1)}


def _grant(number: int, digest: str, given: Any) -> Grant:
    if not _DIGEST.fullmatch(digest):
        what = f"has a name (number {number}) that is not a SHA-256: 64 hexadecimal digits in lower case"
        raise SettingsError(_VARIABLE, what)
    fields = {"name", *(kind.value for kind in PermissionKind)}
    if not isinstance(given, dict) or not given.keys() <= fields:
        what = f"has a grant (number {number}) that is not an object of {', '.join(sorted(fields))}"
        raise SettingsError(_VARIABLE, what)
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise SettingsError(_VARIABLE, f"has a grant (number {number}) without a name")
    lists = [given.get(kind.value, []) for kind in PermissionKind]
    if not all(map(are_patterns, lists)):
        raise SettingsError(
            _VARIABLE, f"has a grant (number {number}) with a field that is not an array of patterns"
        )
    return Grant(name, *map(tuple, lists))
