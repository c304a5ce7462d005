"""The template as SAM expands it: what CloudFormation is given, for some parameters."""

from __future__ import annotations

import pytest
from tests.support.cloudformation import expanded, of_type

pytestmark = pytest.mark.integration

GRADUAL = {"Release": "1763800000", "DeploymentType": "Canary10Percent5Minutes"}
FUNCTIONS = {f"{name}Function" for name in ("Query", "Produce", "Explore", "Drain", "Authorizer")}


def test_a_release_is_a_version_of_every_function_that_its_alias_points_at():
    found = expanded(Release="1763800000")
    assert of_type(found, "AWS::Lambda::Version").keys() == {f"{name}Version1763800000" for name in FUNCTIONS}
    aliases = of_type(found, "AWS::Lambda::Alias")
    assert aliases.keys() == {f"{name}Aliaslive" for name in FUNCTIONS}
    for name, alias in aliases.items():
        version = name.removesuffix("Aliaslive") + "Version1763800000"
        assert alias["Properties"]["FunctionVersion"] == {"Fn::GetAtt": [version, "Version"]}


def test_a_release_makes_a_version_though_nothing_but_a_parameter_of_a_nested_stack_changed():
    """Lambda does not publish what it has published: the release is in the function's description."""
    for name, function in of_type(expanded(Release="1763800000"), "AWS::Lambda::Function").items():
        assert function["Properties"]["Description"].endswith(" 1763800000"), name


def test_deployments_at_once_need_no_codedeploy():
    found = expanded(Release="1763800000")
    assert not [name for name, each in found["Resources"].items() if "CodeDeploy" in each["Type"]]
    assert all("UpdatePolicy" not in each for each in of_type(found, "AWS::Lambda::Alias").values())


def test_gradual_deployments_have_a_group_with_alarms_for_every_function():
    found = expanded(**GRADUAL)
    groups = of_type(found, "AWS::CodeDeploy::DeploymentGroup")
    assert groups.keys() == {f"{name}DeploymentGroup" for name in FUNCTIONS}
    for name, group in groups.items():
        events = group["Properties"]["AutoRollbackConfiguration"]["Events"]
        assert "DEPLOYMENT_STOP_ON_ALARM" in events
        assert len(group["Properties"]["AlarmConfiguration"]["Fn::If"][1]["Alarms"]) == 2
        alias = found["Resources"][name.replace("DeploymentGroup", "Aliaslive")]
        assert alias["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]["DeploymentGroupName"] == {"Ref": name}
    assert groups["AuthorizerFunctionDeploymentGroup"]["Condition"] == "IsAuthorized"
