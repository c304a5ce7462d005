"""What bounds requests: throttles of each method, and concurrency, with defaults for every account."""

from __future__ import annotations

import pytest
from tests.support.cloudformation import template

from keylane.model.routes import EXPLORE, PRODUCE, QUERY, ROUTES

FOUND = template()
STAGE, *METHODS = FOUND["Resources"]["Api"]["Properties"]["MethodSettings"]
PARAMETERS = FOUND["Parameters"]


def settings_of(path: str, method: str) -> dict:
    """The settings of one method of the stage: its own, else those of all methods."""
    name = "/" + path.replace("/", "~1")
    [found] = [each for each in METHODS if (each["ResourcePath"], each["HttpMethod"]) == (name, method)] or [
        STAGE
    ]
    return found


def own(name: str, what: str) -> dict:
    """A parameter for this kind of requests, else that of the stage."""
    parameter = f"{name}Throttle{what}"
    assert PARAMETERS[parameter]["Default"] == 0
    return {"Fn::If": [f"Has{name}{what}", {"Ref": parameter}, {"Ref": f"Throttle{what}"}]}


@pytest.mark.parametrize(("function", "name"), [(QUERY, "Read"), (EXPLORE, "Read"), (PRODUCE, "Write")])
def test_reads_and_writes_have_throttles_of_their_own(function, name):
    for route in ROUTES:
        if route.function == function:
            for method in route.methods:
                found = settings_of(route.path, method)
                assert found["ThrottlingRateLimit"] == own(name, "Rate")
                assert found["ThrottlingBurstLimit"] == own(name, "Burst")


def test_methods_with_settings_of_their_own_keep_the_settings_of_the_stage():
    """API Gateway lets a method's settings inherit none of the stage's."""
    kept = STAGE.keys() - {"ThrottlingRateLimit", "ThrottlingBurstLimit", "ResourcePath", "HttpMethod"}
    for each in METHODS:
        assert {name: each.get(name) for name in kept} == {name: STAGE[name] for name in kept}


@pytest.mark.parametrize("name", ["QueryReservedConcurrency", "ProduceReservedConcurrency"])
def test_nothing_is_reserved_by_default_for_a_new_account_can_reserve_nothing(name):
    assert PARAMETERS[name]["Default"] == 0
    function = FOUND["Resources"][f"{name.removesuffix('ReservedConcurrency')}Function"]["Properties"]
    condition, reserved, otherwise = function["ReservedConcurrentExecutions"]["Fn::If"]
    assert (reserved, otherwise) == ({"Ref": name}, {"Ref": "AWS::NoValue"})
    assert FOUND["Conditions"][condition] == {"Fn::Not": [{"Fn::Equals": [{"Ref": name}, "0"]}]}


def test_a_wait_ends_before_api_gateway_gives_up():
    assert PARAMETERS["WaitMaxMs"]["MaxValue"] < FOUND["Globals"]["Function"]["Timeout"] * 1000 <= 29_000
