"""The corpus is complete: whoever adds a route, a parameter or a media type adds requests for it, too."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import pytest
from tests.contract.hosts import gateway
from tests.contract.hosts.case import Names
from tests.contract.hosts.corpus.parameters import DOCUMENT, declared
from tests.contract.hosts.corpus.paths import METHODS
from tests.contract.hosts.worlds import BY_NAME, WORLDS

from keylane.model.routes import ROUTES

if TYPE_CHECKING:
    from tests.contract.hosts.case import Case

LEAST_VALUES = 3
"""Of a parameter: a good one, one at a bound, and a wrong one."""
PARAMETERS = [each for each in declared() if (each.method, each.place) != ("HEAD", "query")]
"""A query is read alike by GET and HEAD, so those of GET are enough."""


def names(tag: str) -> Names:
    return Names(tag, "a-cluster", lambda *_: 7)


@pytest.fixture(scope="module")
def well() -> list[Case]:
    return [case for case in BY_NAME["well"].requests(names("zz00000000")) if not case.raw]


@pytest.fixture(scope="module")
def by_route(well: list[Case]) -> dict[str, list[Case]]:
    """Requests by the name of their route."""
    found: dict[str, list[Case]] = defaultdict(list)
    for case in well:
        found[gateway.operation_of(case.method, case.path)].append(case)
    return found


def test_every_route_has_requests_by_each_of_its_methods(by_route: dict[str, list[Case]]):
    for route in ROUTES:
        assert {case.method for case in by_route[route.name]} == set(route.methods), route


def test_every_path_has_requests_by_methods_that_it_does_not_take(well: list[Case]):
    for pattern, route in gateway.PATTERNS:
        given = {case.method for case in well if pattern.fullmatch(case.path)}
        assert given >= set(METHODS), route


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda each: f"{each.operation} {each.name}")
def test_every_parameter_has_requests(by_route: dict[str, list[Case]], parameter):
    cases = [case for case in by_route[_route_of(parameter.operation)] if case.method == parameter.method]
    if parameter.place == "path":
        values = {case.path for case in cases}
    elif parameter.place == "query":
        pairs = [parse_qsl(case.target.partition("?")[2], keep_blank_values=True) for case in cases]
        values = {value for each in pairs for name, value in each if name == parameter.name}
    else:
        pairs = [case.headers for case in cases]
        values = {value for each in pairs for name, value in each if name.lower() == parameter.name.lower()}
    assert len(values) >= (1 if parameter.method == "HEAD" else LEAST_VALUES)


def _route_of(operation: str) -> str:
    return operation.removeprefix("head_")


def test_every_media_type_of_a_body_has_requests(by_route: dict[str, list[Case]]):
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    for operations in document["paths"].values():
        for operation in operations.values():
            for media_type in operation.get("requestBody", {}).get("content", {}):
                given = {
                    value
                    for case in by_route[_route_of(operation["operationId"])]
                    for name, value in case.headers
                    if name.lower() == "content-type"
                }
                assert media_type in given or media_type == "*/*", (operation["operationId"], media_type)


def test_there_are_thousands_of_requests():
    assert sum(len(world.requests(names("zz00000000"))) for world in WORLDS) > 10_000


@pytest.mark.parametrize("world", WORLDS, ids=lambda each: each.name)
def test_titles_are_the_same_in_every_run_and_no_two_requests_share_one(world):
    one, other = ([case.title for case in world.requests(names(tag))] for tag in ("zz1a2b3c4d", "zz98765432"))
    assert one == other
    assert len(set(one)) == len(one)


def test_worlds_have_different_names():
    assert len(BY_NAME) == len(WORLDS)
