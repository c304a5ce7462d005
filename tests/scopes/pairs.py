"""Pairs of answers: of a caller with a scope, and of anyone over topics that hold what the scope permits.

They have to be equal but for cursors, how many members were looked at, and which lanes were asked.
"""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tests.scopes.worlds import FIELDS, KEYS, STATUSES, TENANTS, World, a_world, limits_fields, permitted
from tests.support.builders import an_application, query_parts_over
from tests.support.indexed_state import IndexedState

from keylane.api.http.request import Request
from keylane.app import query
from keylane.config.api import ApiSettings

if TYPE_CHECKING:
    from keylane.api.http.response import Response
    from keylane.api.http.router import Application

REQUESTS_OF_A_WORLD = 12
MOST_PAGES = 200
_ASIDE = {"scanned", "watermarks", "watermark"}


class Difference(AssertionError):
    """Two answers that differ, with what leads to them."""


class _Pair:
    def __init__(self, world: World) -> None:
        full, own = IndexedState(), IndexedState()
        for name, (layout, records) in world.topics.items():
            full.add(layout, records)
            own.add(layout, permitted(world, name))
        self.world = world
        settings = ApiSettings()
        self.scoped: Application[Any] = an_application(query.OPERATIONS, query_parts_over(full), settings)
        self.own: Application[Any] = an_application(query.OPERATIONS, query_parts_over(own), settings)

    def compare(self, request: Request) -> int:
        """Compare the answers to a request, and to the pages after it; return how many pairs there were."""
        found = _pages(self.scoped, request._replace(scope=self.world.scope))
        expected = _pages(self.own, request)
        if len(found) > 1 and not _document(found[-1]).get("records", "count"):
            raise Difference(
                f"{request.path} {request.query}: a page says that another follows, with nothing"
            )
        one, two = _comparable(found, request), _comparable(expected, request)
        if one != two and not self._is_refused_condition(request, found[0]):
            asked = f"{request.method} {request.path} {request.query} {request.headers} {request.body!r}"
            raise Difference(f"{asked}\n{str(one)[:2000]}\n{str(two)[:2000]}\n{self.world.scope}")
        return len(found)

    def _is_refused_condition(self, request: Request, found: Response[Any]) -> bool:
        """Whether it is a condition on a field that a rule does not show."""
        return found.status_code == 403 and "/find" in request.path and limits_fields(self.world)


def _pages(application: Application[Any], request: Request) -> list[Response[Any]]:
    """Return the answer to a request, and all pages after it."""
    pages = [application.respond(request)]
    while (cursor := _document(pages[-1]).get("next")) is not None:
        assert len(pages) < MOST_PAGES
        pages.append(application.respond(request._replace(query={**request.query, "cursor": [cursor]})))
    return pages


def _document(response: Response[Any]) -> dict[str, Any]:
    body = response.body
    is_json = "json" in response.headers.get("Content-Type", "")
    found = json.loads(body) if is_json and isinstance(body, str) and body else None
    # A value may be an object, too: pages have their freshness.
    is_ours = isinstance(found, dict) and ("age_ms" in found or "status" in found)
    return found if is_ours else {}


def _comparable(pages: list[Response[Any]], request: Request) -> Any:
    """Return what has to be equal of an answer and the pages after it.

    A find has its rows in the order that was asked for, else in that of the index which has led to them. The
    last page may be empty, where what follows turns out to be no row.
    """
    bodies = [_strip(_document(page)) or page.body for page in pages]
    heads = [
        (page.status_code, {name: each for name, each in page.headers.items() if name != "Keylane-Watermark"})
        for page in pages
    ]
    if len(bodies) > 1 and bodies[-1].get("records") == []:
        del bodies[-1], heads[-1]
        del bodies[-1]["next"]
    if "/find" not in request.path or pages[0].status_code != 200:
        return heads, bodies
    rows = [row for body in bodies for row in body.pop("records", [])]
    if "order" not in request.query:
        rows.sort(key=json.dumps)
    bodies[0].pop("next", None)
    return heads[0], bodies[0] | {"count": sum(body.pop("count", 0) for body in bodies)}, rows


def _strip(document: Any) -> Any:
    if isinstance(document, dict):
        return {
            name: bool(value) if name == "next" else _strip(value)
            for name, value in document.items()
            if name not in _ASIDE
        }
    return [_strip(each) for each in document] if isinstance(document, list) else document


def a_read(random: Random, world: World) -> Request:
    """Return a random request about the topics of a world."""
    topic = random.choice(list(world.topics))
    layout, records = world.topics[topic]
    own = [record.key.decode() for record in records]
    if layout.options.key_fields:
        own = [json.loads(each)["id"] for each in own]
    key = quote(random.choice([*KEYS, *own, *own]), safe="")
    make = random.choice([_of_key, _of_key, _of_keys, _many, _joined, _count, _find, _find, _find, _past])
    return make(random, world, topic, key)


def _request(path: str, query: dict[str, Any] | None = None, **more: Any) -> Request:
    named = {name: [str(value)] for name, value in (query or {}).items() if value is not None}
    return Request(more.pop("method", "GET"), path, named, more.pop("headers", {}), **more, id="request-1")


def _values(random: Random) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    if random.random() < 0.3:
        chosen["fields"] = random.choice(
            ["id", "tenant,status", "nested.region,id", "lines", "amount,secret"]
        )
    return chosen


def _of_key(random: Random, world: World, topic: str, key: str) -> Request:
    headers = {}
    if random.random() < 0.3:
        offsets = [record.offset for record in world.topics[topic][1]] or [0]
        headers["if-none-match"] = random.choice(
            ["*", *(f'"{part}-{random.choice(offsets)}"' for part in range(3))]
        )
    if random.random() < 0.1:
        headers["if-match"] = random.choice(["*", '"0-1"'])
    if random.random() < 0.1:
        headers["prefer"] = "wait=1"
    if random.random() < 0.1:
        headers["keylane-min-position"] = random.choice(["0:5", "1:5000"])
    if random.random() < 0.2 and not limits_fields(world):
        headers["accept"] = "application/octet-stream"
    options = _values(random) | ({"envelope": "true"} if random.random() < 0.4 else {})
    return _request(
        f"/topics/{topic}/keys/{key}", options, headers=headers, method=random.choice(["GET", "GET", "HEAD"])
    )


def _of_keys(random: Random, world: World, topic: str, key: str) -> Request:
    span: dict[str, Any] = {}
    layout = world.topics[topic][0]
    if random.random() < 0.4:
        span["prefix"] = random.choice(["a", "a/", "b/1", "é", ""])
    elif random.random() < 0.4 and not layout.options.key_fields:
        span |= {"from": random.choice(["a", "a/1", None]), "to": random.choice(["b", "c", None])}
    span["limit"] = random.choice([None, 1, 2, 5, 1000])
    if random.random() < 0.3:
        span["keys_only"] = "true"
    return _request(f"/topics/{topic}/keys", span | _values(random))


def _many(random: Random, world: World, topic: str, key: str) -> Request:
    keys = random.sample(KEYS, random.randint(1, len(KEYS)))
    body = json.dumps({"keys": keys}).encode()
    return _request(f"/topics/{topic}/keys:read", _values(random), method="POST", body=body)


def _joined(random: Random, world: World, topic: str, key: str) -> Request:
    options = {"topics": ",".join(world.topics), "atomic": random.choice(["true", "false"])}
    return _request(f"/join/{key}", options | _values(random))


def _count(random: Random, world: World, topic: str, key: str) -> Request:
    return _request(f"/topics/{topic}/count")


def _find(random: Random, world: World, topic: str, key: str) -> Request:
    asked: dict[str, Any] = {}
    conditions = {
        "tenant": [*(json.dumps(each) for each in TENANTS), "z*", "acme*", ".."],
        "status": [*STATUSES, "o*", ".."],
        "amount": ["1", "0..", "..10", "-5..<10"],
        "tags": ["red", "g*", json.dumps("x" * 80), ".."],
        "done": ["true", "false"],
        "nested.region": ["eu", "e*"],
    }
    for name in random.sample(list(conditions), random.choice([0, 1, 1, 2, 3])):
        asked[name] = random.choice(conditions[name])
    if random.random() < 0.5:
        name = random.choice([name for name, _ in FIELDS])
        asked["order"] = random.choice(["", "-"]) + name
    if random.random() < 0.2:
        asked["prefix"] = random.choice(["a", "a/", "b"])
    if random.random() < 0.3:
        asked["count"] = "true"
    asked["limit"] = random.choice([None, 1, 2, 5, 1000])
    return _request(f"/topics/{topic}/find", asked | _values(random))


def _past(random: Random, world: World, topic: str, key: str) -> Request:
    layout, records = world.topics[topic]
    has_where = any(rule.where for rule in world.scope.reads(topic))
    if not layout.options.has_history or has_where:
        return _of_key(random, world, topic, key)
    times = [time for record in records for _, time, _ in record.past] or [0]
    moment = random.choice(times) + random.choice([-1, 0, 1])
    kind = random.choice(["history", "key", "keys"])
    if kind == "history":
        return _request(
            f"/topics/{topic}/keys/{key}/history", {"limit": random.choice([None, 1, 2])} | _values(random)
        )
    if kind == "key":
        at = random.choice([moment, moment, f"0:{random.choice([5, 12_000])}"])
        return _request(f"/topics/{topic}/keys/{key}", {"as_of": at})
    return _request(f"/topics/{topic}/keys", {"as_of": moment, "limit": random.choice([None, 2])})


def compare_pairs(seed: int, count: int) -> int:
    """Compare so many pairs of answers, at least; return how many. Raises Difference, with the seed."""
    done = number = 0
    while done < count:
        random = Random(f"{seed}/{number}")
        number += 1
        pair = _Pair(a_world(random, number))
        for _ in range(REQUESTS_OF_A_WORLD):
            try:
                done += pair.compare(a_read(random, pair.world))
            except Difference as error:
                raise Difference(f"seed {seed}, world {number - 1}: {error}") from None
    return done
