"""The table of routes: which function answers what, and that every route has an operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from keylane.model.routes import FUNCTIONS, ROUTES, find
from keylane_build.openapi import OPERATIONS

if TYPE_CHECKING:
    from keylane.api.http.router import Operations


@pytest.mark.parametrize("operations", OPERATIONS, ids=lambda each: each.function)
def test_every_route_of_the_table_has_an_operation_in_its_function(operations: Operations):
    assert set(operations) == {route.name for route in ROUTES if route.function == operations.function}


def test_every_function_with_routes_has_operations():
    assert {each.function for each in OPERATIONS} == set(FUNCTIONS) == {route.function for route in ROUTES}


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
    assert find(method, path).function == function


@pytest.mark.parametrize("path", ["/topics/t/keys/a/b", "/topics/t/", "/views/v/", "//topics/t", "/healthy"])
def test_what_is_no_route_is_matched_by_none(path: str):
    assert find("GET", path).route is None


def test_parts_stay_percent_encoded():
    assert find("GET", "/topics/t/keys/a%2Fb").parts == ("t", "a%2Fb")


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
    target = find("GET", path)
    assert target.route is not None
    assert target.names({}) == names
