"""The table of routes: which function answers what, and that every route has a handler."""

from __future__ import annotations

import pytest
from tests.support.builders import load_handler

from keylane.model.routes import FUNCTIONS, ROUTES, function_for, route_for


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_route_of_the_table_has_a_handler_in_its_function(function: str, monkeypatch):
    monkeypatch.delenv("KEYLANE_REDIS_NODES", raising=False)
    handlers = load_handler(function).app.operations
    assert set(handlers) == {route.name for route in ROUTES if route.function == function}


def test_names_are_unique_and_so_are_the_methods_of_a_path():
    assert len({route.name for route in ROUTES}) == len(ROUTES)
    taken = [(route.path, method) for route in ROUTES for method in route.methods]
    assert len(set(taken)) == len(taken)


@pytest.mark.parametrize(
    ("method", "path", "function"),
    [
        ("GET", "/topics/t/keys/k", "query"),
        ("PUT", "/topics/t/keys/k", "produce"),
        ("PUT", "/topics//keys/", "produce"),
        ("PATCH", "/topics/t/keys/k", "query"),
        ("GET", "/push", "produce"),
        ("DELETE", "/clusters", "explore"),
        ("PUT", "/topics/t/partitions/0", "explore"),
        ("POST", "/topics/t/partitions/0", "produce"),
        ("GET", "/topics/t", "explore"),
        ("GET", "/v3/clusters/c/topics/t", "explore"),
        ("GET", "/nowhere", "query"),
    ],
)
def test_a_request_goes_to_the_function_of_its_route_or_to_one_that_says_what_is_wrong(
    method: str, path: str, function: str
):
    assert function_for(method, path) == function


@pytest.mark.parametrize("path", ["/topics/t/keys/a/b", "/topics/t/", "/views/v/", "//topics/t", "/healthy"])
def test_what_is_no_route_is_matched_by_none(path: str):
    assert route_for("GET", path) is None


def test_parts_stay_percent_encoded():
    match = route_for("GET", "/topics/t/keys/a%2Fb")
    assert match is not None
    assert match.parts == ("t", "a%2Fb")


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/topics/t/keys/k", ("t",)),
        ("/views/v/keys", ("v",)),
        ("/v3/clusters/c/topics/t", ("t",)),
        ("/v3/clusters/c/topics/t/partitions/0/offset", ("t",)),
        ("/v3/clusters/c/topics", None),
        ("/brokers", None),
        ("/health", ()),
    ],
)
def test_a_path_names_its_topic_or_view_wherever_it_is(path: str, names: tuple[str, ...] | None):
    match = route_for("GET", path)
    assert match is not None
    assert match.names({}) == names
