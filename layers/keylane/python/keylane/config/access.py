"""`KEYLANE_ACCESS`: the tokens and the issuers that are accepted, and what each of them grants.

The value is a JSON object, `file:PATH` of a JSON or TOML file, or a reference to one of AWS's stores:

    {"<SHA-256 of a token>": {"name": "billing", "read": ["orders*"]}, "issuers": [...], "rules": [...]}

A TOML file has the same as the table `[access]`. `access_rules` has what an issuer and a rule consist of.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from keylane.access.grants import Grant
from keylane.access.policy import AccessRule, Issuer, Policy, PolicyFault
from keylane.config.settings import FILE
from keylane.config.table import ACCESS
from keylane.errors import SettingsError, SettingsUnavailable
from keylane.formats.json_text import once, why_not_json
from keylane.model.patterns import are_patterns
from keylane.model.routes import PermissionKind

VARIABLE = "KEYLANE_ACCESS"
TABLE = "access"
MOST_ISSUERS, MOST_RULES = 20, 500
_LISTS = ("issuers", "rules")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class _WrittenPolicy(NamedTuple):
    """A policy as it is written: its object, and the file and the text of TOML, if it is in such a file."""

    given: dict[str, Any]
    file: str = ""
    toml: str = ""

    def fault(self, error: PolicyFault) -> SettingsError:
        """Return the error that says where a fault is."""
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.path)[1:]
        if self.toml:
            from keylane.formats.toml_lines import line_of  # noqa: PLC0415 (for a mistake alone)

            line = line_of(self.toml, (TABLE, *error.path))
            return SettingsError(VARIABLE, f"is wrong at {self.file}:{line}: {TABLE}.{path} {error.fault}")
        where = f" at {self.file}" if self.file else ""
        return SettingsError(VARIABLE, f"is wrong{where}: {path} {error.fault}")


def read_policy(environment: Mapping[str, str]) -> Policy:
    """Return the policy. Raises SettingsError, which shows no token's hash, and SettingsUnavailable."""
    try:
        return _read_policy(environment)
    except RecursionError:
        raise SettingsError(VARIABLE, "is nested too deeply") from None


def _read_policy(environment: Mapping[str, str]) -> Policy:
    source = _read_source(environment)
    issuers, rules = (_list_of(source, name) for name in _LISTS)
    digests = {name: each for name, each in source.given.items() if name not in _LISTS}
    if not digests and not rules:
        raise SettingsError(VARIABLE, "has no token and no rule: it must be " + ACCESS[VARIABLE].accepts)
    grants = {
        digest: _grant(number, digest, each) for number, (digest, each) in enumerate(digests.items(), 1)
    }
    try:
        return Policy(grants, *_read_rules(issuers, rules))
    except PolicyFault as error:
        raise source.fault(error) from None


def _read_rules(
    issuers: Sequence[Any], rules: Sequence[Any]
) -> tuple[tuple[Issuer, ...], tuple[AccessRule, ...]]:
    if not issuers and not rules:
        return (), ()
    from keylane.config.access_rules import issuer_of, rule_of  # noqa: PLC0415 (not for tokens alone)

    known = tuple(issuer_of(("issuers", number), each) for number, each in enumerate(issuers))
    names = [each.name for each in known]
    _check_once(names, "issuers", "issuer")
    made = tuple(rule_of(number, each, names) for number, each in enumerate(rules))
    _check_once([each.name for each in made], "rules", "name")
    return known, made


def _check_once(names: Sequence[str], part: str, field: str) -> None:
    for number, name in enumerate(names):
        if name in names[:number]:
            raise PolicyFault((part, number, field), "is there twice")


def _read_source(environment: Mapping[str, str]) -> _WrittenPolicy:
    text = str(ACCESS.read(environment, VARIABLE))
    if not text.startswith(FILE):
        return _WrittenPolicy(_json_of(text, ""))
    file = text.removeprefix(FILE)
    try:
        with open(file, encoding="utf-8") as opened:  # noqa: PTH123 (pathlib takes a cold start 2 ms)
            text = opened.read()
    except OSError as error:
        raise SettingsUnavailable(f"{VARIABLE}: {file} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(VARIABLE, f"is wrong at {file}: it is not UTF-8") from error
    if not file.endswith(".toml"):
        return _WrittenPolicy(_json_of(text, f" at {file}"), file)
    import tomllib  # noqa: PLC0415 (for such a file alone)

    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(VARIABLE, f"is wrong at {file}: it is not valid TOML: {error}") from None
    access = given.get(TABLE)
    if given.keys() != {TABLE} or not isinstance(access, dict):
        raise SettingsError(VARIABLE, f"is wrong at {file}: it has one table, [{TABLE}], with all in it")
    return _WrittenPolicy(access, file, text)


def _json_of(text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=once)
    except ValueError as error:
        # Without the error itself, which holds the text: there may be a secret in it.
        raise SettingsError(VARIABLE, why_not_json(error) + where) from None
    if not isinstance(found, dict):
        raise SettingsError(VARIABLE, f"is not {ACCESS[VARIABLE].accepts}")
    return found


def _list_of(source: _WrittenPolicy, name: str) -> list[Any]:
    found = source.given.get(name, [])
    most = {"issuers": MOST_ISSUERS, "rules": MOST_RULES}[name]
    if not isinstance(found, list) or len(found) > most:
        raise source.fault(PolicyFault((name,), f"is not an array of at most {most}"))
    return found


def _grant(number: int, digest: str, given: Any) -> Grant:
    if not _DIGEST.fullmatch(digest):
        what = f"has a name (number {number}) that is not a SHA-256: 64 hexadecimal digits in lower case"
        raise SettingsError(VARIABLE, what)
    fields = {"name", *(kind.value for kind in PermissionKind)}
    if not isinstance(given, dict) or not given.keys() <= fields:
        what = f"has a grant (number {number}) that is not an object of {', '.join(sorted(fields))}"
        raise SettingsError(VARIABLE, what)
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise SettingsError(VARIABLE, f"has a grant (number {number}) without a name")
    lists = [given.get(kind.value, []) for kind in PermissionKind]
    if not all(map(are_patterns, lists)):
        raise SettingsError(
            VARIABLE, f"has a grant (number {number}) with a field that is not an array of patterns"
        )
    return Grant(name, *map(tuple, lists))
