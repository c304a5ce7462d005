"""Pairs of results of tools, as of `pairs`: of a caller with a scope, and of anyone over the permitted rows.

And of tools and routes, asked by the same caller: the records of a result are those of the route's answer.
"""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tests.scopes.pairs import Difference, a_read
from tests.scopes.worlds import World, a_world, limits_fields, permitted
from tests.support.agents import Agent
from tests.support.builders import an_application, query_parts_over
from tests.support.indexed_state import IndexedState

from keylane.app import query
from keylane.config.api import ApiSettings
from keylane.state.redis_keys import topics_key

if TYPE_CHECKING:
    from keylane.access.scopes import Scope
    from keylane.api.http.request import Request
    from keylane.api.http.router import Application

CALLS_OF_A_WORLD = 12
MOST_PAGES = 200
LIMIT = 100
_FRESHNESS = {"watermark", "watermarks"}
_PARAMETERS = ("prefix", "order", "count", "fields")


def tool_of(request: Request) -> tuple[str, dict[str, Any]] | None:
    """Return the tool that asks for what a request does, with its arguments; None where none does."""
    _, kind, topic, what, *rest = [*request.path.split("/"), ""]
    asked = {name: values[-1] for name, values in request.query.items()}
    if request.method != "GET" or kind != "topics" or request.headers:
        return None
    if what == "find":
        own = {name: asked.pop(name) for name in _PARAMETERS if name in asked}
        asked.pop("limit", None)
        own["count"] = own.get("count") == "true"
        return "find", {"topic": topic, "where": asked, **own}
    if what == "keys" and rest == [""] and asked.keys() <= {"prefix", "limit", "fields"}:
        return "find", {"topic": topic, **{name: asked[name] for name in asked if name != "limit"}}
    if what != "keys" or len(rest) < 2 or ("as_of" in asked and ":" in asked["as_of"]):
        return None
    given = {
        "topic": topic,
        "key": unquote(rest[0]),
        **{name: asked[name] for name in ("fields", "as_of") if name in asked},
    }
    if rest[1] == "history":
        return "history", given
    return "get", given


class _ToolPair:
    def __init__(self, world: World) -> None:
        full, own = IndexedState(), IndexedState()
        for name, (layout, records) in world.topics.items():
            full.add(layout, records)
            own.add(layout, permitted(world, name))
        for state in (full, own):
            state.sorted_sets[topics_key()] = {name.encode(): 0.0 for name in world.topics}
        self.world = world
        self.full, self.own = (_application(state) for state in (full, own))

    def compare(self, request: Request) -> int:
        """Compare what a tool returns for what a request asks; return how many pairs there were."""
        asked = tool_of(request)
        if asked is None:
            return 0
        tool, arguments = asked
        found = _results(self.full, self.world.scope, tool, arguments)
        expected = _results(self.own, None, tool, arguments)
        if found != expected and not self._is_refused_condition(tool, found):
            raise Difference(
                f"{tool} {arguments}\n{str(found)[:2000]}\n{str(expected)[:2000]}\n{self.world.scope}"
            )
        self._compare_with_route(tool, request, found)
        return 1

    def compare_descriptions(self) -> int:
        """Compare the descriptions of all topics, and what is listed."""
        for name in self.world.topics:
            one, two = (
                Agent(application, scope).ask("describe_topic", topic=name)
                for application, scope in ((self.full, self.world.scope), (self.own, None))
            )
            if one.get("sample") != two.get("sample"):
                raise Difference(f"{name}: {one.get('sample')}\n{two.get('sample')}\n{self.world.scope}")
        listed = Agent(self.full, self.world.scope).ask("list_topics")["topics"]
        if [each["topic"] for each in listed] != sorted(self.world.topics):
            raise Difference(f"listed: {listed}")
        return 1 + len(self.world.topics)

    def _is_refused_condition(self, tool: str, found: Any) -> bool:
        """Whether it is a condition on a field that a rule does not show."""
        return tool == "find" and found[0] == "outside-scope" and limits_fields(self.world)

    def _compare_with_route(self, tool: str, request: Request, found: Any) -> None:
        """A first page that has all records has those of the tool."""
        if tool == "get" or isinstance(found[0], str) or "count" in found[0]:
            return
        asked, path = {**request.query, "limit": ["1000"]}, request.path
        if path.endswith("/find") and asked.keys() <= {"limit", "fields", "prefix"}:
            path = path.removesuffix("find") + "keys"  # a find without a condition is refused by the route
        response = self.full.respond(request._replace(path=path, query=asked, scope=self.world.scope))
        document = json.loads(response.body)
        if "next" in document:
            return
        keys, own = (
            sorted(json.dumps(_without(row)) for row in rows) for rows in (document["records"], found[1])
        )
        if keys != own:
            raise Difference(f"{tool} and {request.path} {request.query}\n{own}\n{keys}")


def _application(state: IndexedState) -> Application[Any]:
    return an_application(query.OPERATIONS, query_parts_over(state), ApiSettings())


def _results(
    application: Application[Any], scope: Scope | None, tool: str, arguments: dict[str, Any]
) -> tuple[Any, list[Any]]:
    """Return the first result without its records, and the records of all pages; of an error its problem."""
    agent, asked = Agent(application, scope), dict(arguments)
    if tool in {"find", "history"}:
        asked["limit"] = LIMIT
    first, is_error = agent.call(tool, **asked)
    if is_error:
        return first["problem"], []
    records, page = list(first.get("records", ())), first
    for _ in range(MOST_PAGES):
        if "next" not in page:
            break
        page = agent.ask(tool, **asked, cursor=page["next"])
        records += page.get("records", ())
        first["count"] = first.get("count", 0) + page.get("count", 0)
    head = {name: value for name, value in first.items() if name not in {"records", "next", "scanned"}}
    return _without(head), _in_order([_without(row) for row in records], arguments)


def _in_order(rows: list[Any], arguments: dict[str, Any]) -> list[Any]:
    return rows if arguments.get("order") else sorted(rows, key=json.dumps)


def _without(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _FRESHNESS}


def compare_tools(seed: int, count: int) -> int:
    """Compare so many pairs of results, at least; return how many. Raises Difference, with the seed."""
    done = number = 0
    while done < count:
        random = Random(f"tools {seed}/{number}")
        number += 1
        pair = _ToolPair(a_world(random, number))
        try:
            done += pair.compare_descriptions()
            for _ in range(CALLS_OF_A_WORLD):
                done += pair.compare(a_read(random, pair.world))
        except Difference as error:
            raise Difference(f"seed {seed}, world {number - 1}: {error}") from None
    return done
