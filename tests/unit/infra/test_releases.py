"""Releases: requests reach the alias of a release, and a gradual deployment is watched and rolled back."""

from __future__ import annotations

import json

import pytest
from tests.support.cloudformation import of_type, template

FOUND = template()
FUNCTIONS = of_type(FOUND, "AWS::Serverless::Function")
RESOURCES = FOUND["Resources"]
GLOBALS = FOUND["Globals"]["Function"]
ALARMS = template("infra/deployments.yaml")
SHORT_NAMES = {name.removesuffix("Function").lower() for name in FUNCTIONS}


def released(name: str, latest: dict) -> dict:
    """The alias where there is a release, else the function itself."""
    return {"Fn::If": ["IsReleased", {"Ref": f"{name}Aliaslive"}, latest]}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_published_under_an_alias_with_each_release(name):
    assert GLOBALS["AutoPublishAlias"] == "live"
    # Without it a changed parameter would not make a version, and the alias would keep the old settings.
    assert FUNCTIONS[name]["Properties"]["AutoPublishCodeSha256"] == {"Ref": "Release"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_whoever_invokes_a_function_invokes_the_alias_of_its_release(name):
    if name == "DrainFunction":
        [mapping] = of_type(FOUND, "AWS::Lambda::EventSourceMapping").values()
        assert mapping["Properties"]["FunctionName"] == released(name, {"Ref": name})
        assert not any("Events" in each["Properties"] for each in FUNCTIONS.values())
        return
    permission = RESOURCES[f"{name.removesuffix('Function')}Permission"]["Properties"]
    assert permission["FunctionName"] == released(name, {"Fn::GetAtt": [name, "Arn"]})


def test_the_api_invokes_functions_by_the_alias_of_their_release_only():
    body = json.dumps(RESOURCES["Api"]["Properties"]["DefinitionBody"])
    live = json.dumps({"Live": {"Fn::If": ["IsReleased", ":live", ""]}})
    assert body.count("/invocations") == body.count("${Live}/invocations") == body.count(live)


def test_the_api_is_deployed_after_the_functions_that_serve_its_routes():
    paths = RESOURCES["Api"]["Properties"]["DefinitionBody"]["paths"]
    routed = {name for name in FUNCTIONS if f"${{{name}}}" in json.dumps(paths)}
    assert set(RESOURCES["Api"]["DependsOn"]) == {f"{name}Aliaslive" for name in routed}


def test_codedeploy_is_used_for_gradual_types_only():
    gradual = {name: each["Gradual"] for name, each in FOUND["Mappings"]["Deployments"].items()}
    assert list(gradual) == FOUND["Parameters"]["DeploymentType"]["AllowedValues"]
    assert [name for name, value in gradual.items() if value == "false"] == ["AllAtOnce"]
    enabled = GLOBALS["DeploymentPreference"]["Enabled"]
    assert enabled == {"Fn::FindInMap": ["Deployments", {"Ref": "DeploymentType"}, "Gradual"]}


def test_a_deployment_is_rolled_back_when_a_function_or_the_api_fails():
    condition, watched, _ = GLOBALS["DeploymentPreference"]["Alarms"]["Fn::If"]
    assert condition == "IsGradual"
    outputs = {each["Fn::GetAtt"][1].removeprefix("Outputs.") for each in watched}
    assert outputs == ALARMS["Outputs"].keys() == of_type(ALARMS, "AWS::CloudWatch::Alarm").keys()


def test_the_alarm_on_functions_counts_the_errors_of_each_alias():
    metrics = [each["MetricStat"]["Metric"] for each in functions_fail()["Metrics"] if "MetricStat" in each]
    assert {each["MetricName"] for each in metrics} == {"Errors"}
    dimensions = [{one["Name"]: one["Value"]["Fn::Sub"] for one in each["Dimensions"]} for each in metrics]
    assert {each["FunctionName"] for each in dimensions} == {f"${{Functions}}-{name}" for name in SHORT_NAMES}
    assert all(each["Resource"] == each["FunctionName"] + ":live" for each in dimensions)


def functions_fail() -> dict:
    """The properties of the alarm on functions."""
    return ALARMS["Resources"]["FunctionsFail"]["Properties"]


def test_the_alarms_do_not_wait_for_the_functions_that_wait_for_them():
    given = RESOURCES["DeploymentAlarms"]["Properties"]["Parameters"].values()
    assert all(each["Ref"] in {"AWS::StackName", "StageName"} for each in given)
    names = {each["Properties"]["FunctionName"]["Fn::Sub"] for each in FUNCTIONS.values()}
    assert names == {f"${{AWS::StackName}}-{name}" for name in SHORT_NAMES}
