"""Requests of callers to whom rules apply: inside and outside of what a token permits, and bad tokens.

Key, tokens and claims are the same in every run.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.contract.hosts.case import SHOWN_CHARACTERS, TAG, Case
from tests.contract.hosts.corpus.agents import CALLS, a_call
from tests.contract.hosts.corpus.base import base
from tests.contract.hosts.corpus.tokens import access as access_of_tokens
from tests.contract.hosts.corpus.writes import JSON
from tests.support.issuers import SigningKey, jwks

from keylane.model.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.contract.hosts.case import Headers, Names

ISSUER, AUDIENCE = "https://id.example.org/", "hosts"
LATE_S = 4_102_444_800
V2 = (("Content-Type", "application/vnd.kafka.json.v2+json"),)
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": LATE_S, "tail": "N14228", "ns": [13, 15, 17]}
CALLERS = {
    "ann": {},
    "bob": {"sub": "bob", "tail": "N24211", "ns": [16]},
    "no-claims": {"tail": None, "ns": None},
    "pattern": {"sub": "*", "tail": "*"},
}
"""Claims of callers that differ from those of the first, None for one that is not there."""
BAD = {
    "expired": {"exp": 1_000_000_000},
    "not-yet": {"nbf": LATE_S - 1},
    "other-audience": {"aud": "elsewhere"},
    "other-issuer": {"iss": "https://id.example.net/"},
    "no-subject": {"sub": ""},
}
RULES = (
    {"name": "own", "read": ["hosts-bookings", "hosts-trips"], "key": "${sub}|*"},
    {"name": "tail", "read": ["hosts-flights", "hosts-joined"], "key": "${tail}", "fields": ["dest", "note"]},
    {"name": "numbers", "read": ["hosts-feed"], "where": {"n": "${ns}"}},
    {"name": "windows", "views": ["hosts-p*", "hosts-totals"], "key": "${tail}"},
    {"name": "orders", "write": ["hosts-*-json"], "key": "${sub}/*", "stamp": "x-ordered-by"},
)
READS = (
    *(f"/topics/hosts-flights/keys/{key}" for key in ("N14228", "N24211", "v-object", "nothing", "gone")),
    *(f"/topics/hosts-flights/keys/{key}?envelope=true" for key in ("N14228", "N24211", "nothing")),
    *(f"/topics/hosts-flights/keys/{key}?fields=dest" for key in ("N14228", "N24211")),
    *(f"/topics/hosts-flights/keys/{key}?as_of=2023-11-14" for key in ("N14228", "N24211")),
    *(f"/join/{key}?topics=hosts-flights,hosts-joined" for key in ("N14228", "N24211", "nothing")),
    *("/join/N14228?topics=hosts-flights,hosts-hidden", "/join/N14228?topics=hosts-flights"),
    *("/topics/hosts-bookings/keys", "/topics/hosts-bookings/keys?prefix=ann%7C&limit=4"),
    *("/topics/hosts-bookings/keys?prefix=bob%7C", "/topics/hosts-bookings/keys?from=ann%7C05&to=bob%7C05"),
    *("/topics/hosts-bookings/count", "/topics/hosts-feed/count", "/topics/hosts-flights/count"),
    *(f"/topics/hosts-bookings/keys/{key}" for key in ("ann%7C05", "bob%7C05", "ann%7C99", "ann")),
    *(f"/topics/hosts-bookings/keys/{key}/history" for key in ("ann%7C05", "bob%7C05", "bob%7C99")),
    *(f"/topics/hosts-bookings/keys/{key}?as_of=2023-11-14T22:15:00Z" for key in ("ann%7C05", "bob%7C05")),
    *(f"/topics/hosts-feed/keys/f{number:02d}" for number in range(8)),
    *("/topics/hosts-feed/keys", "/topics/hosts-feed/keys?limit=1", "/topics/hosts-feed/keys/f00/history"),
    *("/topics/hosts-feed/find?n=..", "/topics/hosts-feed/find?n=14..17", "/topics/hosts-feed/find?n=13"),
    *("/topics/hosts-feed/find?n=14", "/topics/hosts-feed/find?m=1&order=-n&limit=2"),
    *("/topics/hosts-feed/find?m=1&prefix=f03", "/topics/hosts-feed/find?m=2", "/topics/hosts-feed"),
    *("/views/hosts-puts/keys/N14228", "/views/hosts-puts/keys/N24211", "/views/hosts-puts/keys/nothing"),
    *("/views/hosts-totals/keys/N14228", "/views/hosts-hops/keys/N14228", "/views/hosts-puts", "/views"),
    *("/topics/hosts-hidden/keys/N14228", "/topics/hosts-nowhere/keys/k", "/topics", "/nothing"),
    *("/metadata/partitions?topic=hosts-flights", "/topics/hosts-flights/partitions/0/messages?offset=0"),
)
TOOLS = [(tool, given) for tool, given in CALLS if tool != "put"]
PAGED = ("/topics/hosts-bookings/keys?limit=4", "/topics/hosts-feed/find?m=1&order=-n&limit=1")
"""Of which the next page is asked for, too: by the caller, and by another one."""
CONDITIONAL: tuple[Headers, ...] = (
    (("If-None-Match", "*"),),
    (("If-Match", "*"),),
    (("If-Modified-Since", "Tue, 14 Nov 2033 22:13:20 GMT"),),
    (("Accept", "application/octet-stream"),),
    (("Prefer", "wait=1"),),
    (("Keylane-Min-Position", "0:1"),),
)


def _key() -> SigningKey:
    key = SigningKey("EdDSA", "hosts")
    key.private = Ed25519PrivateKey.from_private_bytes(b"hosts".ljust(32, b"\0"))
    return key


KEY = _key()


def access() -> str:
    """KEYLANE_ACCESS with the issuer and its rules, beside the tokens with grants."""
    issuer = {"issuer": ISSUER, "audience": AUDIENCE, "algorithms": ["EdDSA"], "jwks": jwks(KEY)}
    rules = [{"issuer": ISSUER, **rule} for rule in RULES]
    return json.dumps({**json.loads(access_of_tokens()), "issuers": [issuer], "rules": rules})


def _token(more: Mapping[str, object]) -> str:
    return KEY.token({name: each for name, each in (CLAIMS | more).items() if each is not None})


def _unsigned() -> str:
    """A token of the algorithm `none`: it has no signature."""
    return KEY.token(CLAIMS, alg="none").rpartition(".")[0] + "."


def _of_symmetric_key() -> str:
    return KEY.token(CLAIMS, alg="HS256")


def _changed() -> str:
    """A token whose claims are not those that were signed."""
    head, _, signature = _token({}).split(".")
    body = base64.urlsafe_b64encode(json.dumps({**CLAIMS, "sub": "bob"}).encode()).decode().rstrip("=")
    return f"{head}.{body}.{signature}"


TOKENS = {
    **{name: _token(more) for name, more in (CALLERS | BAD).items()},
    "alg-none": _unsigned(),
    "alg-hmac": _of_symmetric_key(),
    "changed": _changed(),
    "long": _token({"more": "x" * 17_000}),
    "two-parts": _token({}).rpartition(".")[0],
}


def jwt_cases(names: Names) -> Iterator[Case]:
    """Each route with the first caller; what the rules are about with each; bad tokens; writes."""
    for route in ROUTES:
        yield _as("ann", base(route.name, names), names)
    for name in CALLERS:
        yield from (_as(name, Case("GET", target), names) for target in READS)
        yield from (_as(name, Case("HEAD", target), names) for target in READS[:5])
        body = json.dumps({"keys": ["N14228", "N24211", "nothing"]}).encode()
        yield _as(name, Case("POST", "/topics/hosts-flights/keys:read", JSON, body), names)
        for key in ("N14228", "N24211", "nothing"):
            for headers in CONDITIONAL:
                yield _as(name, Case("GET", f"/topics/hosts-flights/keys/{key}", headers), names)
        for tool, arguments in TOOLS:
            yield _as(name, Case("POST", "/mcp", JSON, a_call(tool, arguments)), names)
    yield from _next_pages(names)
    for name in TOKENS.keys() - CALLERS.keys():
        yield _as(name, Case("GET", "/topics/hosts-bookings/keys/ann%7C05"), names)
        yield _as(name, Case("PUT", f"/topics/{names.out('json')}/keys/ann%2F1", JSON, b"1"), names)
    yield from _writes(names)


def _next_pages(names: Names) -> Iterator[Case]:
    for target in PAGED:
        first = _as("ann", Case("GET", target), names, "page")
        yield first
        for name in ("ann", "bob"):
            yield _as(name, Case("GET", target, cursor_of=first.label), names, "page after")


def _writes(names: Names) -> Iterator[Case]:
    for kind in ("json", "hidden"):
        path = f"/topics/{names.out(kind)}"
        for key in ("ann%2F1", "ann%2F", "ann", "bob%2F1", "ann%2Fb%2F2"):
            yield _as("ann", Case("PUT", f"{path}/keys/{key}", JSON, b'{"n": 1}'), names)
            yield _as("ann", Case("DELETE", f"{path}/keys/{key}"), names)
        for keys in (["ann/1"], ["bob/1"], ["ann/1", "bob/1"], [None]):
            records = [{"key": key, "value": {"n": 2}} for key in keys]
            body = json.dumps({"records": records}).encode()
            yield _as("ann", Case("POST", path, V2, body, floats=keys == [None]), names)
    topic = names.out("json")
    body = json.dumps({"records": [{"topic": topic, "key": "ann/1", "data": "1"}]}).encode()
    yield _as("ann", Case("POST", "/push", JSON, body), names)
    for name, key in (("ann", "ann%2F7"), ("ann", "ann%2F7"), ("bob", "bob%2F7")):
        headers = (*JSON, ("Idempotency-Key", f"{names.tag}-jwt"), ("x-ordered-by", "somebody"))
        yield _as(name, Case("PUT", f"/topics/{topic}/keys/{key}", headers, b"3"), names)


def _as(name: str, case: Case, names: Names, what: str = "") -> Case:
    """The request with a caller's token, named by the caller."""
    token = ("Authorization", f"Bearer {TOKENS[name]}")
    text = " ".join(filter(None, (case.describe(names.tag), what, f"as {name}")))
    label = text.replace(names.tag, TAG)[: 4 * SHOWN_CHARACTERS]
    return Case(
        case.method,
        case.target,
        (*case.headers, token),
        case.body,
        cursor_of=case.cursor_of,
        events=case.events,
        floats=case.floats,
        label=label,
    )
