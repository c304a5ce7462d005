"""Requests with tokens: each route with each of them, and tokens in other forms."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.contract.hosts.case import Case
from tests.contract.hosts.corpus.agents import CALLS, a_call
from tests.contract.hosts.corpus.base import base
from tests.contract.hosts.corpus.writes import JSON

from keylane.model.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.hosts.case import Headers, Names

TOKENS = {
    "all": {"read": ["*"], "write": ["*"], "views": ["*"]},
    "reader": {"read": ["hosts-flights", "hosts-joined"]},
    "writer": {"write": ["hosts-*"]},
    "viewer": {"views": ["hosts-p*"]},
    "nothing": {},
}


def token_of(name: str) -> str:
    return f"a-token-of-these-tests-for-{name}"


def access() -> str:
    """KEYLANE_ACCESS with the tokens."""
    grants = {
        hashlib.sha256(token_of(name).encode()).hexdigest(): {"name": name, **grant}
        for name, grant in TOKENS.items()
    }
    return json.dumps(grants)


ALL = token_of("all")
FORMS: tuple[Headers, ...] = (
    (("Authorization", f"bearer {ALL}"),),
    (("authorization", f"BEARER   {ALL}  "),),
    (("Authorization", ALL),),
    (("Authorization", f"Basic {ALL}"),),
    (("Authorization", "Bearer an-unknown-token-of-these-tests"),),
    (("Authorization", "Bearer short"),),
    (("Authorization", "Bearer "),),
    (("Authorization", ""),),
    (("Authorization", f"Bearer {ALL} x"),),
    (("Authorization", "Bearer " + "x" * 5_000),),
    (("Authorization", "Bearer t\u00f6ken-with-a-letter-of-latin-1"),),
    (("Authorization", f"Bearer {token_of('nothing')}"), ("Authorization", f"Bearer {ALL}")),
    (("x-api-key", ALL),),
    (("X-API-Key", "unknown-key-of-these-tests"),),
    (("x-api-key", ALL), ("Authorization", f"Bearer {token_of('nothing')}")),
)
TARGETS = (
    *("/join/k", "/join/k?topics=hosts-flights,hosts-joined", "/join/k?topics=hosts-flights,hosts-hidden"),
    *("/join/k?topics=hosts-flights&topics=hosts-hidden", "/join/k?topics=hosts-hidden&topics=hosts-flights"),
    *("/metadata/partitions?topic=hosts-flights", "/metadata/partitions?topic=hosts-hidden", "/nothing"),
    *("/metadata/partitions?topic=hosts-flights&topic=hosts-hidden", "/metadata/partitions", "/health"),
    *("/topics//keys/k", "/topics/hosts-flights/keys/", "/topics/%68osts-flights/keys/k"),
    *("/topics/hosts-%66lights", "/views/%68osts-puts"),
)
"""Names that a request may hide from the authorizer, or that are not there."""


def token_cases(names: Names) -> Iterator[Case]:
    """Each route with each token; tokens in other forms; paths and methods without a route."""
    for route in ROUTES:
        yield from _with_each_token(base(route.name, names))
    for tool, arguments in CALLS:
        if tool in {"list_topics", "describe_topic"}:
            yield from _with_each_token(Case("POST", "/mcp", JSON, a_call(tool, arguments)))
    for target in TARGETS:
        yield from _with_each_token(Case("GET", target))
    path = "/topics/hosts-flights/keys/N14228"
    for headers in FORMS:
        yield Case("GET", path, headers)
        yield Case("HEAD", path, headers)
    for method in ("PATCH", "OPTIONS", "POST", "DELETE"):
        yield Case(method, path, (_bearer("reader"),))
        yield Case(method, path)
    yield from _replayed(names)


def _with_each_token(case: Case) -> Iterator[Case]:
    yield case
    for name in TOKENS:
        yield replace(case, headers=(*case.headers, _bearer(name)))


def _replayed(names: Names) -> Iterator[Case]:
    """The same idempotency key of two callers, who know nothing of each other."""
    topic = names.out("json")
    body = json.dumps({"records": [{"topic": topic, "key": "k", "data": "1"}]}).encode()
    for name in ("all", "writer"):
        yield Case("POST", "/push", (*JSON, _bearer(name), ("Idempotency-Key", f"{names.tag}-{name}")), body)
        headers = (_bearer(name), ("Idempotency-Key", f"{names.tag}-put"))
        for _ in range(2):
            yield Case("PUT", f"/topics/{topic}/keys/k", headers, b"1")


def _bearer(name: str) -> tuple[str, str]:
    return ("Authorization", f"Bearer {token_of(name)}")
