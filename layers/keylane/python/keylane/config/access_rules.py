"""What an issuer and a rule of the access policy consist of, and what is wrong with one."""

import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from keylane.access.policy import (
    KEYS_MAX_AGE_S,
    LEEWAY_S,
    AccessRule,
    ClaimName,
    Issuer,
    KeyTemplate,
    PolicyFault,
    PolicyPath,
    Template,
)
from keylane.access.scopes import Value
from keylane.errors import ask_meant
from keylane.model.patterns import are_patterns

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Signatures with a pair of keys. None with a secret: whoever can verify one can make it."""
MOST_LEEWAY_S, MOST_KEYS_AGE_S = 300, 30 * 86_400
JWKS_CHARACTERS = 256 * 1024
_HEADER = re.compile(r"[A-Za-z0-9._-]{1,100}")
_RULE_NAME = re.compile(r"[\x20-\x7e]{1,60}")
_CLAIM = re.compile(r"\$\{([^${}]{1,200})\}")
_ISSUER_PARTS = {
    *("issuer", "audience", "algorithms", "jwks_uri", "jwks", "leeway_s", "keys_max_age_s"),
}
_RULE_PARTS = {
    *("name", "issuer", "when", "read", "write", "views", "key", "where", "fields", "stamp"),
}


def issuer_of(path: PolicyPath, given: Any) -> Issuer:
    """Return an issuer. Raises PolicyFault."""
    _check_parts(path, given, _ISSUER_PARTS)
    algorithms = _texts(path, given, "algorithms")
    for each in algorithms:
        if each not in ALGORITHMS:
            raise PolicyFault(
                (*path, "algorithms"), f"has {each[:40]!r}: they are of {', '.join(ALGORITHMS)}"
            )
    if ("jwks_uri" in given) == ("jwks" in given):
        raise PolicyFault(path, "has either jwks_uri or jwks, the keys themselves")
    uri, jwks = given.get("jwks_uri"), given.get("jwks")
    if uri is not None and not is_safe_url(uri):
        raise PolicyFault(
            (*path, "jwks_uri"), "is not an https URL (http only to this machine) without a login"
        )
    audience = given.get("audience")
    if isinstance(audience, str):
        given = {**given, "audience": [audience]}
    return Issuer(
        _text(path, given, "issuer"),
        _texts(path, given, "audience"),
        algorithms,
        uri,
        None if jwks is None else _jwks_text((*path, "jwks"), jwks),
        _seconds(path, given, "leeway_s", LEEWAY_S, MOST_LEEWAY_S),
        _seconds(path, given, "keys_max_age_s", KEYS_MAX_AGE_S, MOST_KEYS_AGE_S),
    )


def rule_of(number: int, given: Any, issuers: Sequence[str]) -> AccessRule:
    """Return a rule. `issuers`: the names of those that are known. Raises PolicyFault."""
    path: PolicyPath = ("rules", number)
    _check_parts(path, given, _RULE_PARTS)
    issuer = _text(path, given, "issuer")
    if issuer not in issuers:
        raise PolicyFault((*path, "issuer"), f"is none of the policy's issuers{ask_meant(issuer, issuers)}")
    name = given.get("name", f"rules[{number}]")
    if not isinstance(name, str) or not _RULE_NAME.fullmatch(name):
        raise PolicyFault((*path, "name"), "is not 1 to 60 printable ASCII characters")
    stamp = given.get("stamp")
    if stamp is not None and not (isinstance(stamp, str) and _HEADER.fullmatch(stamp)):
        raise PolicyFault(
            (*path, "stamp"), "is not a header's name of letters, digits, dot, dash, underscore"
        )
    rule = AccessRule(
        name,
        issuer,
        _when(path, given),
        _patterns(path, given, "read"),
        _patterns(path, given, "write"),
        _patterns(path, given, "views"),
        _key((*path, "key"), given["key"]) if "key" in given else None,
        _where((*path, "where"), given.get("where", {})),
        _texts(path, given, "fields") if "fields" in given else None,
        stamp,
    )
    _check_together(path, rule)
    return rule


def _check_together(path: PolicyPath, rule: AccessRule) -> None:
    """Raise PolicyFault for parts of a rule that are wrong together."""
    if not (rule.read or rule.write or rule.views):
        raise PolicyFault(path, "permits nothing: it has none of read, write and views")
    if rule.write and rule.where and rule.key is None:
        raise PolicyFault(
            (*path, "write"), "with where needs a key: a caller could replace rows that they can't see"
        )
    if rule.stamp and not rule.write:
        raise PolicyFault((*path, "stamp"), "is for writes: the rule has no write")
    if rule.views and (rule.where or rule.fields is not None):
        raise PolicyFault((*path, "views"), "have keys alone: where and fields belong into a rule of topics")
    for field in rule.fields or ():
        if not all(field.split(".")):
            raise PolicyFault((*path, "fields"), f"has {field[:40]!r}: a path of names, as in lines.amount")


def _when(path: PolicyPath, given: dict[str, Any]) -> tuple[tuple[str, Value], ...]:
    when = given.get("when", {})
    path = (*path, "when")
    if not isinstance(when, dict):
        raise PolicyFault(path, "is not a table of claims")
    for name, value in when.items():
        if not _is_value(value):
            raise PolicyFault((*path, name), "is not a string, a number or a boolean: one value, not empty")
        if isinstance(value, str) and "${" in value:
            raise PolicyFault((*path, name), "is compared as it is: ${...} has no meaning here")
    return tuple(when.items())


def _key(path: PolicyPath, given: Any) -> KeyTemplate:
    if not isinstance(given, str) or not given:
        raise PolicyFault(path, 'is not a text like "${sub}" or "${sub}/*"')
    is_prefix = given.endswith("*")
    text = given.removesuffix("*")
    if "*" in text or not text:
        raise PolicyFault(path, "has a * elsewhere than behind a text")
    template = _template(path, text)
    if is_prefix and isinstance(template.parts[-1], ClaimName):
        raise PolicyFault(
            path,
            "has a * right behind a claim: 'ann' would have the keys of 'anna'; end it with /* or the like",
        )
    return KeyTemplate(template, is_prefix)


def _where(path: PolicyPath, given: Any) -> tuple[tuple[str, tuple[Value | Template, ...]], ...]:
    if not isinstance(given, dict):
        raise PolicyFault(path, "is not a table of fields")
    found: list[tuple[str, tuple[Value | Template, ...]]] = []
    for name, value in _flat(given):
        values = value if isinstance(value, list) else [value]
        if not values or not all(map(_is_value, values)):
            raise PolicyFault(
                (*path, name), "is not a value or an array of values: strings, numbers, booleans"
            )
        parts = [_template((*path, name), each) if _has_claim(each) else each for each in values]
        found.append((name, tuple(parts)))
    return tuple(found)


def _flat(given: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return fields by names as in a.b: of a dotted key TOML makes tables in tables."""
    found: list[tuple[str, Any]] = []
    for name, value in given.items():
        inner = _flat(value) if isinstance(value, dict) else None
        found += [(f"{name}.{each}", of) for each, of in inner] if inner is not None else [(name, value)]
    return found


def _template(path: PolicyPath, text: str) -> Template:
    parts: list[str | ClaimName] = []
    at = 0
    for found in _CLAIM.finditer(text):
        if text[at : found.start()]:
            parts.append(text[at : found.start()])
        elif parts:
            raise PolicyFault(path, "has two claims without a text between them")
        parts.append(ClaimName(found[1]))
        at = found.end()
    if text[at:]:
        parts.append(text[at:])
    for before, part in zip([None, *parts], parts, strict=False):
        if isinstance(part, ClaimName):
            continue
        if "${" in part:
            raise PolicyFault(path, "has a ${ that is not ${CLAIM}")
        if before is not None and part[0].isalnum():
            raise PolicyFault(
                path, "has a letter or digit right behind a claim: separate them, as with / or -"
            )
    return Template(tuple(parts))


def _has_claim(value: Value) -> bool:
    return isinstance(value, str) and "${" in value


def _is_value(value: Any) -> bool:
    return value != "" and isinstance(value, str | bool | int | float)


def _check_parts(path: PolicyPath, given: Any, known: set[str]) -> None:
    if not isinstance(given, dict):
        raise PolicyFault(path, "is not an object")
    for name in given:
        if name not in known:
            raise PolicyFault((*path, name), f"is unknown{ask_meant(name, known)}")


def _text(path: PolicyPath, given: dict[str, Any], name: str) -> str:
    found = given.get(name)
    if not isinstance(found, str) or not found:
        raise PolicyFault((*path, name) if name in given else path, f"needs the string {name}")
    return found


def _texts(path: PolicyPath, given: dict[str, Any], name: str) -> tuple[str, ...]:
    found = given.get(name)
    if not isinstance(found, list) or not found or not all(isinstance(each, str) and each for each in found):
        raise PolicyFault((*path, name) if name in given else path, f"needs {name}: an array of strings")
    return tuple(found)


def _patterns(path: PolicyPath, given: dict[str, Any], name: str) -> tuple[str, ...]:
    found = given.get(name, [])
    if not are_patterns(found):
        raise PolicyFault((*path, name), "is not an array of patterns")
    if any("${" in each for each in found):
        raise PolicyFault((*path, name), "names topics or views: claims have no place there")
    return tuple(found)


def _seconds(path: PolicyPath, given: dict[str, Any], name: str, default: int, most: int) -> int:
    found = given.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= most:
        raise PolicyFault((*path, name), f"is not an integer from 0 to {most}, in seconds")
    return found


def is_safe_url(given: Any) -> bool:
    """Return whether a URL has https, or http to this machine, and neither a login nor a fragment."""
    if not isinstance(given, str) or not re.fullmatch(r"[!-~]{1,2000}", given):
        return False
    try:
        parts = urlsplit(given)
        host, has_port = parts.hostname or "", parts.port != 0
    except ValueError:
        return False
    if not host or not has_port or "@" in parts.netloc or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    import ipaddress  # noqa: PLC0415 (for http alone)

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _jwks_text(path: PolicyPath, given: Any) -> str:
    text = given if isinstance(given, str) else json.dumps(given)
    if len(text) > JWKS_CHARACTERS:
        raise PolicyFault(path, f"has more than {JWKS_CHARACTERS:,} characters")
    from keylane.adapters.issuers.jwk import read_jwks  # noqa: PLC0415 (cryptography, where keys are given)

    try:
        read_jwks(text.encode(), is_strict=True)
    except ValueError as error:
        raise PolicyFault(path, f"can't be used: {error}") from None
    return text
