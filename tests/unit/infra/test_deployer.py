"""The roles for deploying: whom they trust, and that they may make what the templates contain."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.cloudformation import ROOT, of_type, template

from keylane_build.stack.parameters import read_parameters
from keylane_build.stack.resolving import ResolvedStack
from keylane_build.stack.rule_functions import refusals

DEPLOYER = template("infra/deployer.yaml")
ROLES = of_type(DEPLOYER, "AWS::IAM::Role")
TEMPLATES = ["template.yaml", *sorted(f"infra/{each.name}" for each in (ROOT / "infra").glob("*.yaml"))]
ALONE = {"infra/deployer.yaml"}
"""An administrator deploys it."""
OTHER_SERVICES = {
    "ApiGatewayV2": "apigateway",
    "ElasticLoadBalancingV2": "elasticloadbalancing",
    "ApplicationAutoScaling": "application-autoscaling",
    "EMRServerless": "emr-serverless",
    "MSK": "kafka",
    "StepFunctions": "states",
}
MADE_BY = {
    "AWS::ApiGateway": ("POST", "PUT", "PATCH", "DELETE"),
    "AWS::ApiGatewayV2": ("POST", "DELETE"),
    "AWS::ApplicationAutoScaling::ScalableTarget": ("RegisterScalableTarget", "DeregisterScalableTarget"),
    "AWS::ApplicationAutoScaling::ScalingPolicy": ("PutScalingPolicy", "DeleteScalingPolicy"),
    "AWS::CloudWatch::Alarm": ("PutMetricAlarm", "DeleteAlarms"),
    "AWS::CloudWatch::Dashboard": ("PutDashboard", "DeleteDashboards"),
    "AWS::EC2::FlowLog": ("CreateFlowLogs", "DeleteFlowLogs"),
    "AWS::EC2::SecurityGroupEgress": ("AuthorizeSecurityGroupEgress", "RevokeSecurityGroupEgress"),
    "AWS::EC2::SecurityGroupIngress": ("AuthorizeSecurityGroupIngress", "RevokeSecurityGroupIngress"),
    "AWS::EC2::SubnetRouteTableAssociation": ("AssociateRouteTable", "DisassociateRouteTable"),
    "AWS::EC2::VPC": ("CreateVpc", "DeleteVpc"),
    "AWS::EC2::VPCEndpoint": ("CreateVpcEndpoint", "DeleteVpcEndpoints"),
    "AWS::ECS::TaskDefinition": ("RegisterTaskDefinition", "DeregisterTaskDefinition"),
    "AWS::ElastiCache::ParameterGroup": ("CreateCacheParameterGroup", "DeleteCacheParameterGroup"),
    "AWS::ElastiCache::SubnetGroup": ("CreateCacheSubnetGroup", "DeleteCacheSubnetGroup"),
    "AWS::ElasticLoadBalancingV2::ListenerRule": ("CreateRule", "DeleteRule"),
    "AWS::Events::Rule": ("PutRule", "PutTargets", "RemoveTargets", "DeleteRule"),
    "AWS::IAM::ManagedPolicy": ("CreatePolicy", "CreatePolicyVersion", "AttachRolePolicy", "DeletePolicy"),
    "AWS::IAM::RolePolicy": ("PutRolePolicy", "DeleteRolePolicy"),
    "AWS::Lambda::Permission": ("AddPermission", "RemovePermission"),
    "AWS::Logs::MetricFilter": ("PutMetricFilter", "DeleteMetricFilter"),
    "AWS::MSK::BatchScramSecret": ("BatchAssociateScramSecret", "BatchDisassociateScramSecret"),
    "AWS::MSK::ServerlessCluster": ("CreateClusterV2", "DeleteCluster"),
    "AWS::Route53::RecordSet": ("ChangeResourceRecordSets",),
    "AWS::S3::BucketPolicy": ("PutBucketPolicy", "DeleteBucketPolicy"),
    "AWS::SNS::Subscription": ("Subscribe", "Unsubscribe"),
    "AWS::SQS::QueuePolicy": ("SetQueueAttributes",),
    "AWS::SecretsManager::ResourcePolicy": ("PutResourcePolicy", "DeleteResourcePolicy"),
    "AWS::SecretsManager::RotationSchedule": ("RotateSecret", "CancelRotateSecret"),
    "AWS::Serverless::Api": ("POST", "PUT", "PATCH", "DELETE"),
    "AWS::Serverless::Function": ("CreateFunction", "PublishVersion", "CreateAlias", "DeleteFunction"),
    "AWS::Serverless::LayerVersion": ("PublishLayerVersion", "DeleteLayerVersion"),
    "AWS::WAFv2::WebACLAssociation": ("AssociateWebACL", "DisassociateWebACL"),
    "AWS::CloudFormation::CustomResource": ("InvokeFunction",),
}
"""Types, or services -> the actions that make and delete one, where they are not CreateX and DeleteX."""
SERVICES_OF = {
    "AWS::Serverless::Api": "apigateway",
    "AWS::Serverless::Function": "lambda",
    "AWS::Serverless::LayerVersion": "lambda",
    "AWS::CloudFormation::CustomResource": "lambda",
}


def statements(*, of_stack: bool) -> Iterator[dict[str, Any]]:
    """The statements of CloudFormation's role, or of the workflow's."""
    for each in DEPLOYER["Resources"].values():
        properties = each.get("Properties", {})
        names = json.dumps([properties.get("Roles"), properties.get("RoleName")])
        if each["Type"] == "AWS::IAM::ManagedPolicy" and ("StackRole" in names) == of_stack:
            yield from properties["PolicyDocument"]["Statement"]
        if each["Type"] == "AWS::IAM::RolePolicy" and ("StackRole" in names) == of_stack:
            yield from properties["PolicyDocument"]["Statement"]
    if not of_stack:
        for policy in ROLES["DeployerRole"]["Properties"]["Policies"]:
            yield from policy["PolicyDocument"]["Statement"]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def actions(*, of_stack: bool) -> set[str]:
    return {each for one in statements(of_stack=of_stack) for each in listed(one["Action"])}


def types() -> list[str]:
    """Every type of resource in the templates of the stack."""
    found = {
        each["Type"]
        for path in TEMPLATES
        if path not in ALONE
        for each in template(path)["Resources"].values()
    }
    return sorted(found)


def actions_for(kind: str) -> set[str]:
    """The actions that make and delete a resource of a type."""
    _, service, name = kind.split("::")
    prefix = SERVICES_OF.get(kind) or OTHER_SERVICES.get(service, service.lower())
    made = MADE_BY.get(kind) or MADE_BY.get(f"AWS::{service}")
    if kind == "AWS::KMS::Key":
        made = ("CreateKey", "ScheduleKeyDeletion")
    return {f"{prefix}:{each}" for each in made or (f"Create{name}", f"Delete{name}")}


@pytest.mark.parametrize("kind", types())
def test_cloudformation_may_make_and_delete_a_resource_of_each_type(kind):
    assert actions_for(kind) <= actions(of_stack=True)


IDS = {"OwnerId": "123456", "RepositoryId": "456789"}


def trusted(**parameters: str) -> dict[str, Any]:
    """The conditions under which the deployed role trusts a workflow."""
    given = {"Repository": "octocat/my-repo", **parameters}
    stack = ResolvedStack("infra/deployer.yaml", "deployer", DEPLOYER, given, template)
    role = stack.resources["DeployerRole"]["Properties"]["AssumeRolePolicyDocument"]
    [statement] = role["Statement"]
    assert statement["Action"] == "sts:AssumeRoleWithWebIdentity"
    assert statement["Condition"].keys() == {"StringEquals"}, "a pattern would let forks in"
    wanted: dict[str, Any] = statement["Condition"]["StringEquals"]
    return wanted


@pytest.mark.parametrize(
    ("ids", "repository"), [({}, "octocat/my-repo"), (IDS, "octocat@123456/my-repo@456789")]
)
def test_the_workflow_is_one_of_the_repository_and_of_the_subject_alone(ids, repository):
    wanted = trusted(**ids)
    assert wanted["token.actions.githubusercontent.com:sub"] == f"repo:{repository}:ref:refs/heads/main"
    assert wanted["token.actions.githubusercontent.com:aud"] == "sts.amazonaws.com"
    subjects = re.compile(DEPLOYER["Parameters"]["Subject"]["AllowedPattern"])
    assert subjects.fullmatch("environment:production")
    assert not subjects.fullmatch("ref:refs/heads/*")
    assert not subjects.fullmatch("pull_request")


@pytest.mark.parametrize("name", IDS)
def test_one_id_without_the_other_is_refused(name):
    given = read_parameters(DEPLOYER, {"Repository": "octocat/my-repo", name: IDS[name]})
    assert refusals(DEPLOYER, given)


def test_the_workflow_changes_nothing_but_by_cloudformation_and_passes_its_role_alone():
    own = actions(of_stack=False)
    services = {each.partition(":")[0] for each in own if re.search(r":(Create|Delete|Put|Update)", each)}
    assert services == {"cloudformation", "ecr", "iam", "s3"}
    assert {each for each in own if each.startswith("iam:")} == {
        "iam:PassRole",
        "iam:CreateServiceLinkedRole",
    }
    [passed] = [one for one in statements(of_stack=False) if one["Action"] == "iam:PassRole"]
    assert passed["Resource"] == {"Fn::GetAtt": ["StackRole", "Arn"]}
    [trust] = ROLES["StackRole"]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "cloudformation.amazonaws.com"}


OF_OBJECTS = {"s3:DeleteObject", "s3:GetObject", "s3:PutObject"}
NOT_OF_SAM = {"s3:DeleteBucket", "s3:DeleteBucketPolicy", "s3:PutLifecycleConfiguration"}


def test_the_workflow_may_make_sams_bucket_as_cloudformation_makes_the_stacks():
    """SAM deploys a stack of its own with a bucket, as the workflow, without a role for CloudFormation."""
    of_stack, own = (
        {each for each in actions(of_stack=of_stack) if each.startswith("s3:")} - OF_OBJECTS
        for of_stack in (True, False)
    )
    assert of_stack - own == NOT_OF_SAM
    assert own - of_stack == {"s3:GetBucketLocation"}


@pytest.mark.parametrize("of_stack", [True, False])
def test_both_roles_may_tag_the_stacks_that_they_make(of_stack):
    assert {"cloudformation:TagResource", "cloudformation:UntagResource"} <= actions(of_stack=of_stack)


def test_roles_and_policies_that_the_stack_changes_have_its_prefix():
    for one in statements(of_stack=True):
        if any(each.startswith("iam:") for each in listed(one["Action"])):
            for resource in listed(one["Resource"]):
                own = "${StackPrefix}*" in resource["Fn::Sub"]
                assert own or listed(one["Action"]) == ["iam:CreateServiceLinkedRole"]
    assert not {"iam:CreateUser", "iam:CreateAccessKey", "iam:PutUserPolicy"} & actions(of_stack=True)


def test_the_page_names_the_services_in_which_the_stack_s_prefix_binds_nothing():
    """But for SAM's own bucket, and for roles that AWS' services have of their own."""
    free = {
        each.partition(":")[0]
        for one in statements(of_stack=True)
        for each in listed(one["Action"])
        if any("${StackPrefix}" not in str(resource) for resource in listed(one["Resource"]))
        and (listed(one["Resource"]) != ["*"] or not re.search(r":(Describe|Get|List)", each))
    }
    page = (ROOT / "docs" / "operate" / "deploy.md").read_text("utf-8")
    [line] = re.findall(r"^- \*\*Without the prefix:\*\*.*", page, re.MULTILINE)
    assert set(re.findall(r"`([a-z0-9-]+)`", line)) == free - {"s3", "iam"}
    assert "secretsmanager" in free


def test_the_page_says_which_apis_the_workflow_may_call():
    [one] = [each for each in statements(of_stack=False) if each["Action"] == "execute-api:Invoke"]
    stage = one["Resource"]["Fn::Sub"].split("/")[-2]
    page = (ROOT / "docs" / "operate" / "deploy.md").read_text("utf-8")
    assert f"call each API of the region whose stage is `{stage}`" in page
    assert template()["Parameters"]["StageName"]["Default"] == stage


def test_the_stack_of_the_roles_is_not_one_that_they_may_change():
    prefix = DEPLOYER["Parameters"]["StackPrefix"]["Default"]
    page = (ROOT / "docs" / "operate" / "deploy.md").read_text("utf-8")
    names = re.findall(r"--stack-name (\S+) --template-file infra/deployer.yaml", page)
    assert names
    assert not any(name.startswith(prefix) for name in names)


def test_the_workflow_deploys_with_both_roles():
    workflow = (ROOT / ".github" / "workflows" / "smoke.yml").read_text("utf-8")
    deployments = re.findall(r"sam deploy .*", workflow)
    assert deployments
    assert all('--role-arn "$STACK_ROLE"' in each for each in deployments)
    assert "role-to-assume: ${{ inputs.role }}" in workflow
    assert "environment:" not in workflow, "the page says that the role's subject is a branch"
    assert DEPLOYER["Parameters"]["Subject"]["Default"].startswith("ref:refs/heads/")
    assert "STACK: keylane-" in workflow, "the prefix of the roles"
