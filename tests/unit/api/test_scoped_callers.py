"""Both hosts refuse a caller with a scope on each route that does not know scopes, before it is parsed."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.proxy_events import HttpRequest, build_proxy_event

from keylane.access.scope_codec import CONTEXT_NAME, encode_scope
from keylane.access.scopes import PermittedRows, Scope, ScopeRule
from keylane.api.http.gateway import answer
from keylane.api.http.router import Application
from keylane.app import explore, produce, query
from keylane.config.api import ApiSettings
from keylane.metrics.meter import NO_METER
from keylane.model.routes import ROUTES
from keylane.ports import Clock
from keylane_server.received import Access, ReceivedRequest

if TYPE_CHECKING:
    from keylane.api.http.router import Operations
    from keylane.model.routes import Route

OPERATIONS: dict[str, Operations] = {
    each.function: each for each in (query.OPERATIONS, produce.OPERATIONS, explore.OPERATIONS)
}
EVERYTHING = Scope("me|ann", (ScopeRule(PermittedRows("all"), ("*",), ("*",), ("*",)),))
UNAWARE = [each for each in ROUTES if not OPERATIONS[each.function][each.name].takes_scope]


def application_of(route: Route) -> Application[Any]:
    def open_parts() -> Any:
        raise AssertionError("nothing is asked for")

    return Application(OPERATIONS[route.function], open_parts, ApiSettings, meter=NO_METER, clock=Clock())


def path_of(route: Route) -> str:
    return re.sub(r"{\w+}", "0", route.path)


@pytest.mark.parametrize("route", UNAWARE, ids=lambda route: route.name)
def test_a_function_refuses_them(route):
    for method in route.methods:
        event = build_proxy_event(HttpRequest(method, path_of(route), (), b"", "10.0.0.7"), "id-1")
        event["requestContext"]["authorizer"] = {CONTEXT_NAME: encode_scope(EVERYTHING)}
        assert answer(application_of(route), event, None)["statusCode"] == 403
        event["requestContext"]["authorizer"] = {CONTEXT_NAME: encode_scope(EVERYTHING)[:-1]}
        assert answer(application_of(route), event, None)["statusCode"] == 500


@pytest.mark.parametrize("route", UNAWARE, ids=lambda route: route.name)
def test_the_server_refuses_them(route):
    for method in route.methods:
        raw = path_of(route).encode()
        scope = {"method": method, "raw_path": raw, "query_string": b"", "headers": [(b"host", b"a")]}
        received = ReceivedRequest(scope, "request-1")
        received.access = Access("me|ann", EVERYTHING)
        target = received.find_target(received.path)
        assert target.route == route
        assert application_of(route).respond(received.with_body(b""), target).status_code == 403


def test_the_refusal_says_why_and_an_unscoped_caller_is_none():
    [route] = [each for each in UNAWARE if each.name == "get_brokers"]
    event = build_proxy_event(HttpRequest("GET", "/brokers", (), b"", "10.0.0.7"), "id-1")
    event["requestContext"]["authorizer"] = {CONTEXT_NAME: encode_scope(EVERYTHING)}
    refused = json.loads(answer(application_of(route), event, None)["body"])
    assert refused["type"] == "urn:keylane:problem:outside-scope"
    assert "rules of the access policy" in refused["detail"]
    del event["requestContext"]["authorizer"]
    assert answer(application_of(route), event, None)["statusCode"] == 500  # it asks for its parts
