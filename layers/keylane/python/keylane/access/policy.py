"""The policy of access: tokens with grants, issuers of JWTs, and the rules that make claims into a scope.

Several rules add up. A rule applies to a token of its issuer if all claims of `when` are so, and if every
claim that it names is there with a value that fits: else the whole rule permits nothing. Nothing in a claim
is ever a pattern: a value is compared as it is, character by character, in its case.

The types are tuples: a dataclass with slots takes a millisecond to make, at each cold start.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeGuard
from urllib.parse import quote

from keylane.access.grants import Grant
from keylane.access.scopes import KeyRule, PermittedRows, Scope, ScopeRule, Value

SCOPE_CLAIMS = ("scope", "scp")
"""Claims that may be a list of words with spaces between them (RFC 8693, 4.2)."""
LEEWAY_S = 30
"""How far the clocks of an issuer and of this machine may be apart."""
KEYS_MAX_AGE_S = 86_400
_MISSING = object()


PolicyPath: TypeAlias = tuple[str | int, ...]


class PolicyFault(Exception):
    """A part of the policy is wrong. `path`: where, as in ("rules", 2, "key"); `fault`: a verb and more."""

    def __init__(self, path: PolicyPath, fault: str) -> None:
        super().__init__(path, fault)
        self.path = path
        self.fault = fault


class Issuer(NamedTuple):
    """Who signs tokens: `name` is their `iss`. `jwks`: keys as JSON text, where there is no `jwks_uri`.

    `keys_max_age_s`: how long the keys are used while `jwks_uri` does not answer.
    """

    name: str
    audience: tuple[str, ...]
    algorithms: tuple[str, ...]
    jwks_uri: str | None = None
    jwks: str | None = None
    leeway_s: int = LEEWAY_S
    keys_max_age_s: int = KEYS_MAX_AGE_S


class ClaimName(NamedTuple):
    """A claim's name in a template."""

    name: str


class Template(NamedTuple):
    """A text with claims in it, as in `orders/${sub}`: parts that are text, and names of claims."""

    parts: tuple[str | ClaimName, ...]

    def expand(self, claims: Mapping[str, Any]) -> str | None:
        """Return the text with the claims in their places; None where one of them does not fit.

        A claim is a string that is not empty. It must not have the character that stands behind it in the
        template: with `${tenant}/${sub}` two callers would otherwise share a text.
        """
        texts: list[str] = []
        for number, part in enumerate(self.parts):
            if isinstance(part, str):
                texts.append(part)
                continue
            value, behind = _claim(claims, part.name), self.parts[number + 1 : number + 2]
            if not isinstance(value, str) or not value or not is_unicode(value):
                return None
            if behind and str(behind[0])[0] in value:
                return None
            texts.append(value)
        return "".join(texts)

    def values(self, claims: Mapping[str, Any]) -> Iterator[Value]:
        """Yield the values of a condition: of a claim alone in its own type, of a list each one."""
        if len(self.parts) == 1 and isinstance(self.parts[0], ClaimName):
            given = _claim(claims, self.parts[0].name)
            for each in given if isinstance(given, list) else [given]:
                if _is_usable(each):
                    yield each
        elif (text := self.expand(claims)) is not None:
            yield text


class KeyTemplate(NamedTuple):
    """The keys of a caller: one key, or all that begin so."""

    text: Template
    is_prefix: bool = False


class AccessRule(NamedTuple):
    """What a token of an issuer permits. `where`: fields, each with values of which one must be so."""

    name: str
    issuer: str
    when: tuple[tuple[str, Value], ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    key: KeyTemplate | None = None
    where: tuple[tuple[str, tuple[Value | Template, ...]], ...] = ()
    fields: tuple[str, ...] | None = None
    stamp: str | None = None


class Policy(NamedTuple):
    """Who may do what. `grants`: by the SHA-256 of their tokens."""

    grants: Mapping[str, Grant] = MappingProxyType({})
    issuers: tuple[Issuer, ...] = ()
    rules: tuple[AccessRule, ...] = ()

    def issuer_of(self, name: object) -> Issuer | None:
        """Return the issuer with this `iss`, compared character by character; None for any other one."""
        return next((each for each in self.issuers if each.name == name), None)


def scope_of(policy: Policy, claims: Mapping[str, Any]) -> Scope:
    """Return what the claims of a verified token permit: nothing where no rule applies."""
    applied = (_apply(rule, claims) for rule in policy.rules)
    return Scope(caller_name(claims), tuple(each for each in applied if each is not None))


def caller_name(claims: Mapping[str, Any]) -> str:
    """Return the name of a caller, `ISSUER|SUB`: no two pairs of these share one.

    In `sub` all but letters, digits and `_.-~@:` is percent-encoded, so a name has no line breaks either.
    """
    return f"{claims['iss']}|{quote(claims['sub'], safe='@:')}"


def why_not(rule: AccessRule, claims: Mapping[str, Any]) -> str:
    """Return why a rule does not apply to the claims of a verified token, empty if it does."""
    if rule.issuer != claims["iss"]:
        return "it is of another issuer"
    for name, wanted in rule.when:
        if not _has(claims, name, wanted):
            return f"the claim {name} is not as `when` says"
    if rule.key is not None and rule.key.text.expand(claims) is None:
        return "`key` names a claim that is missing, is no string, or has the character that follows it"
    for name, _ in rule.where:
        if not dict(_conditions(rule, claims)).get(name):
            return f"`where` of {name} names a claim that is missing, empty, or of a type that no field has"
    return ""


def _apply(rule: AccessRule, claims: Mapping[str, Any]) -> ScopeRule | None:
    if rule.issuer != claims["iss"] or not all(_has(claims, *each) for each in rule.when):
        return None
    key = None
    if rule.key is not None:
        text = rule.key.text.expand(claims)
        if text is None:
            return None
        key = KeyRule(text, rule.key.is_prefix)
    where = tuple(_conditions(rule, claims))
    if not all(values for _, values in where):
        return None
    rows = PermittedRows(rule.name, key, where, rule.fields)
    return ScopeRule(rows, rule.read, rule.write, rule.views, rule.stamp)


def _conditions(rule: AccessRule, claims: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Value, ...]]]:
    for name, given in rule.where:
        found: list[Value] = []
        for each in given:
            found.extend(each.values(claims) if isinstance(each, Template) else [each])
        yield name, tuple(found)


def _has(claims: Mapping[str, Any], name: str, wanted: Value) -> bool:
    """Return whether a claim is the value, or contains it."""
    given = _claim(claims, name)
    if name in SCOPE_CLAIMS and isinstance(given, str):
        return wanted in given.split(" ")
    return any(_is_same(each, wanted) for each in (given if isinstance(given, list) else [given]))


def _is_same(given: object, wanted: Value) -> bool:
    """Compare in one type: for Python, true is 1."""
    return type(given) is type(wanted) and given == wanted


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """Return a claim; with dots, that of an object in it, where no claim has the whole name."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            return _MISSING
        found = found[part]
    return found


def _is_usable(value: object) -> TypeGuard[Value]:
    """Whether a field or a key can have this value: no object, no null, and no text that is empty."""
    if not isinstance(value, str):
        return isinstance(value, bool | int | float)
    return bool(value) and is_unicode(value)


def is_unicode(text: str) -> bool:
    """Return whether a text can be encoded: JSON may have halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
