"""Reads within a scope on a real cluster: what a plain search over the permitted records finds."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from keylane.access.scopes import KeyRule, PermittedRows, Scope, ScopeRule
from keylane.api.http.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.support.served import Served

FIELDS = (("amount", "number"), ("status", "text"), ("tenant", "text"))
LONG = "z" * 70


@pytest.mark.parametrize(
    ("rules", "is_permitted"),
    [
        ([PermittedRows("own", where=(("tenant", ("acme",)),))], lambda _, found: found["tenant"] == "acme"),
        ([PermittedRows("own", KeyRule("k1", is_prefix=True))], lambda key, _: key.startswith("k1")),
        (
            [
                PermittedRows("own", KeyRule("k1", is_prefix=True), (("tenant", (LONG, "acme")),)),
                PermittedRows("two", KeyRule("k2")),
            ],
            lambda key, found: key == "k2" or (key.startswith("k1") and found["tenant"] in {LONG, "acme"}),
        ),
    ],
)
def test_pages_finds_and_counts_are_those_of_the_permitted_records(
    query_function: ModuleType, serve: Callable[..., Served], rules: list[PermittedRows], is_permitted: Any
):
    served, rng = serve(index=3, fields=FIELDS), random.Random(1)
    scope = Scope("ann", tuple(ScopeRule(rows, read=("*",)) for rows in rules))
    state: dict[str, dict[str, Any]] = {}
    for _ in range(300):
        key = f"k{rng.randrange(150)}"
        tenant = rng.choice(["acme", "zoo", LONG, LONG + "y"])
        document = {"tenant": tenant, "status": rng.choice(["open", "paid"]), "amount": rng.randrange(9)}
        state.pop(key, None)
        if rng.random() < 0.1:
            served.put(key.encode(), None)
        else:
            served.put(key.encode(), json.dumps(document).encode())
            state[key] = document

    def ask(path: str, **query: str) -> dict[str, Any]:
        named = {name: [value] for name, value in query.items()}
        request = Request("GET", f"/topics/{served.topic}{path}", named, {}, scope=scope)
        response = query_function.application.respond(request)
        assert response.status_code == 200, response.body
        found: dict[str, Any] = json.loads(response.body)
        return found

    def keys(path: str, **query: str) -> list[str]:
        names: list[str] = []
        while True:
            page = ask(path, **query)
            names += [record["key"] for record in page["records"]]
            if "next" not in page:
                return names
            query["cursor"] = page["next"]

    own = {key: found for key, found in state.items() if is_permitted(key, found)}
    assert (
        keys("/keys") == keys("/keys", limit="3") == keys("/keys", keys_only="true", limit="7") == sorted(own)
    )
    assert ask("/count")["count"] == len(own)
    is_open = {key for key, found in own.items() if found["status"] == "open"}
    assert set(keys("/find", status="open", limit="2")) == is_open
    assert ask("/find", status="open", count="true")["count"] == len(is_open)
    by_amount = sorted(own, key=lambda key: (own[key]["amount"], key))
    assert keys("/find", order="amount", limit="5") == by_amount
