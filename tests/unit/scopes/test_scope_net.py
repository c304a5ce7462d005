"""The net: a route that takes no scopes refuses a caller who has one, before anything is parsed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import an_application

from keylane.access.scopes import PermittedRows, Scope, ScopeRule
from keylane.api.http.request import Request
from keylane.app import explore, produce, query
from keylane.config.api import ApiSettings
from keylane.model import routes
from keylane.model.routes import Names

if TYPE_CHECKING:
    from keylane.model.routes import Route

OPERATIONS = {**query.OPERATIONS, **produce.OPERATIONS, **explore.OPERATIONS}
FUNCTIONS = {routes.QUERY: query, routes.PRODUCE: produce, routes.EXPLORE: explore}
TAKE_SCOPES = {
    "get_key",
    "get_keys",
    "get_key_count",
    "find_records",
    "get_history",
    "read_keys",
    "join_topics",
    "get_windows",
    "get_view_keys",
    "get_key_changes",
    "get_changes",
    "get_snapshot",
    "put_key",
    "delete_key",
    "post_records",
    "mcp",
}
"""Changed by hand: whoever adds a route here has thought about what a scope does to it."""
NOTHING = Scope("eve", (ScopeRule(PermittedRows("other"), read=("x",), write=("x",), views=("x",)),))
EVERYTHING = Scope("eve", (ScopeRule(PermittedRows("all"), read=("*",), write=("*",), views=("*",)),))


class Untouchable:
    """Parts of an application that nothing may look at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")


def respond(route: Route, method: str, scope: Scope, query: dict[str, list[str]] | None = None) -> Any:
    path = route.path.replace("{", "").replace("}", "")
    # Compressed in a way that nobody knows, an impossible Accept: what is parsed first fails.
    headers = {"content-encoding": "odd", "accept": "audio/ogg"}
    request = Request(method, path, query or {"bad": ["1"]}, headers, b"\xff", id="request-1", scope=scope)
    application = an_application(FUNCTIONS[route.function].OPERATIONS, Untouchable(), ApiSettings())
    return application.respond(request)


def every_route() -> list[Any]:
    return [
        pytest.param(route, method, id=f"{method} {route.name}")
        for route in routes.ROUTES
        for method in route.methods
    ]


def test_the_routes_that_take_scopes_are_those_of_the_list():
    assert {name for name, each in OPERATIONS.items() if each.takes_scope} == TAKE_SCOPES
    assert OPERATIONS.keys() == routes.BY_NAME.keys()


@pytest.mark.parametrize(("route", "method"), every_route())
def test_every_route_takes_scopes_or_refuses_them(route: Route, method: str):
    if route.name in TAKE_SCOPES:
        return
    response = respond(route, method, EVERYTHING)
    assert response.status_code == 403
    assert response.problem == "outside-scope"
    if method != "HEAD":
        assert "none can permit this route" in json.loads(response.body)["detail"]


@pytest.mark.parametrize(("route", "method"), every_route())
def test_every_route_refuses_what_no_rule_names(route: Route, method: str):
    names = {"topics": ["a,x"], "topic": ["a"]}
    if route.permission.names is Names.BODY:
        return  # each part of its body is a request of another route
    response = respond(route, method, NOTHING, names)
    assert (response.status_code, response.problem) == (403, "outside-scope")


@pytest.mark.parametrize("name", ["join_topics"])
def test_of_a_repeated_parameter_each_topic_has_to_be_permitted(name: str):
    response = respond(routes.BY_NAME[name], "GET", NOTHING, {"topics": ["hidden,x", "x"]})
    assert (response.status_code, response.problem) == (403, "outside-scope")


def test_a_name_that_is_percent_encoded_is_the_same_name():
    only = Scope("eve", (ScopeRule(PermittedRows("one"), read=("orders",)),))
    hidden = respond(
        routes.Route(
            "get_keys", "/topics/%6Frderz/keys", ("GET",), "query", routes.BY_NAME["get_keys"].permission
        ),
        "GET",
        only,
    )
    assert (hidden.status_code, hidden.problem) == (403, "outside-scope")
    shown = respond(
        routes.Route(
            "get_keys", "/topics/%6Frders/keys", ("GET",), "query", routes.BY_NAME["get_keys"].permission
        ),
        "GET",
        only,
    )
    assert shown.problem == "bad-request"


@pytest.mark.parametrize("name", ["get_key", "get_keys", "find_records", "get_history", "read_keys"])
@pytest.mark.parametrize(
    "rows", [PermittedRows("r", where=(("tenant", ("a",)),)), PermittedRows("r", fields=("a",))]
)
def test_change_events_are_refused_where_a_rule_shows_less(name: str, rows: PermittedRows):
    scope = Scope("eve", (ScopeRule(rows, read=("*",)),))
    route = routes.BY_NAME[name]
    response = respond(route, route.methods[0], scope, {"event": ["true"]})
    assert (response.status_code, response.problem) == (403, "outside-scope")
