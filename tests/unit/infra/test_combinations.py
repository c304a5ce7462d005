"""Stacks on paper: each check finds what it is there for. `make lint-infra` runs them on all combinations."""

from __future__ import annotations

import re

import pytest
from tests.support.cloudformation import ROOT, template

from keylane_build.stack import checks, matrix
from keylane_build.stack.accepted import Finding, compare, read_accepted
from keylane_build.stack.combinations import generate_pairs, read_combinations, read_nested, read_samples
from keylane_build.stack.parameters import Refused, read_parameters
from keylane_build.stack.resolving import ResolvedStack, every_stack

TOPIC = {"Type": "AWS::SNS::Topic", "Properties": {}}
IS_ON = {"Conditions": {"IsOn": {"Fn::Equals": [{"Ref": "On"}, "yes"]}}}
ON = {"Parameters": {"On": {"Type": "String", "Default": "no"}}}
CHILD = {
    **ON,
    **IS_ON,
    "Resources": {"Topic": TOPIC | {"Condition": "IsOn"}},
    "Outputs": {"Topic": {"Condition": "IsOn", "Value": {"Ref": "Topic"}}},
}


def stack(resources, **sections):
    """A stack of these resources; its nested stacks are made of CHILD."""
    return ResolvedStack("main.yaml", "s", {"Resources": resources, **sections}, {}, lambda _: CHILD)


def problems(resources, **sections):
    return [problem for each in every_stack(stack(resources, **sections)) for problem in each.problems]


def referring(value, **sections):
    return problems({"Topic": TOPIC, "Other": {"Type": "A", "Properties": {"P": value}}}, **sections)


def test_a_condition_that_is_never_true_is_reported():
    found = matrix.Matrix()
    found.add("one", stack({"Topic": TOPIC}, **ON, **IS_ON))
    [sentence] = found.missing_branches()
    assert "IsOn is true in no combination" in sentence


@pytest.mark.parametrize(("page", "least"), [("deploy", 2), ("regions", 1)])
def test_the_commands_of_the_pages_on_deploying_are_combinations(page, least):
    text = (ROOT / "docs" / "operate" / f"{page}.md").read_text(encoding="utf-8")
    commands = len(re.findall(r"^\$ sam deploy", text, re.MULTILINE))
    found = [name for name in read_combinations(ROOT) if name.startswith(f"{page}-page-")]
    assert commands == len(found) >= least


def test_the_commands_of_the_page_on_the_front_are_combinations():
    page = (ROOT / "docs/operate/fargate.md").read_text(encoding="utf-8")
    commands = len(re.findall(r"^\$ aws cloudformation deploy", page, re.MULTILINE))
    found = [path for name, (path, _) in read_nested(ROOT).items() if name.startswith("server-page-")]
    assert found == ["infra/server.yaml"] * commands
    assert commands > 1


def test_the_deployment_page_says_how_long_a_stacks_name_may_be():
    page = (ROOT / "docs" / "operate" / "deploy.md").read_text(encoding="utf-8")
    assert f"at most {len(matrix.STACK_NAME)} characters" in page


def test_generated_combinations_have_every_two_values_of_two_parameters():
    pairs = list(generate_pairs(template(), read_samples(ROOT)))
    for authorization in ("NONE", "IAM", "API_KEY", "COGNITO", "LAMBDA"):
        for job in ("none", "FARGATE", "EMR_SERVERLESS"):
            assert any((each["Authorization"], each["Job"]) == (authorization, job) for each in pairs)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ({"Ref": "Missing"}, "there is no resource or parameter Missing"),
        ({"Fn::GetAtt": ["Missing", "Arn"]}, "there is no resource or parameter Missing"),
        ({"Fn::Sub": "a-${Missing.Arn}"}, "there is no resource or parameter Missing"),
        ({"Fn::If": ["Missing", 1, 2]}, "there is no condition Missing"),
        ({"Fn::Select": ["3", ["a", "b"]]}, "no item 3"),
        ({"Fn::Join": [",", "a"]}, "takes a list"),
        ({"Fn::Split": [",", ["a"]]}, "takes a string"),
        ({"Fn::FindInMap": ["M", "a", "b"]}, "the mapping M has no"),
        ({"Fn::Length": ["a"]}, "not a function that these checks know"),
    ],
)
def test_a_function_that_cannot_be_resolved_is_reported(value, word):
    [sentence] = referring(value)
    assert word in sentence
    assert sentence.startswith("Other.P: ")


def test_a_reference_to_what_is_not_created_here_is_reported():
    resources = {
        "Topic": TOPIC | {"Condition": "IsOn"},
        "Other": TOPIC | {"Properties": {"TopicName": {"Fn::GetAtt": ["Topic", "TopicName"]}}},
    }
    [sentence] = problems(resources, **ON, **IS_ON)
    assert "Topic is not created: its condition IsOn is false" in sentence
    guarded = {"Fn::If": ["IsOn", {"Ref": "Topic"}, {"Ref": "AWS::NoValue"}]}
    resources["Other"] = TOPIC | {"Properties": {"TopicName": guarded}}
    assert problems(resources, **ON, **IS_ON) == []


@pytest.mark.parametrize(
    ("parameters", "word"),
    [({"Name": "UPPER"}, "does not match"), ({}, "the parameter Name has no value"), ({"Nmae": "a"}, "Nmae")],
)
def test_parameters_that_a_nested_stack_refuses_are_reported(parameters, word):
    child = CHILD | {
        "Parameters": ON["Parameters"] | {"Name": {"Type": "String", "AllowedPattern": "[a-z]+"}}
    }
    nested = {
        "Type": "AWS::CloudFormation::Stack",
        "Properties": {"TemplateURL": "c", "Parameters": parameters},
    }
    parent = ResolvedStack("main.yaml", "s", {"Resources": {"Nested": nested}}, {}, lambda _: child)
    assert word in " ".join(problem for each in every_stack(parent) for problem in each.problems)


def test_an_output_that_a_nested_stack_does_not_have_here_is_reported():
    nested = {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": "c"}}
    reading = TOPIC | {"Properties": {"TopicName": {"Fn::GetAtt": ["Nested", "Outputs.Topic"]}}}
    [sentence] = problems({"Nested": nested, "Other": reading})
    assert "the nested stack Nested has no output Topic here" in sentence


def test_parameters_are_refused_like_cloudformation_does():
    described = {"Parameters": {"Size": {"Type": "Number", "Default": 1, "MinValue": 1, "MaxValue": 5}}}
    assert read_parameters(described, {"Size": "5"}) == {"Size": "5"}
    for size in ("0", "6", "many"):
        with pytest.raises(Refused, match=f"Size is {size}"):
            read_parameters(described, {"Size": size})


def function(**properties):
    return {"Type": "AWS::Lambda::Function", "Properties": {"FunctionName": "s-f", **properties}}


def statement(resource):
    return {"Statement": [{"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": resource}]}


def of(kind, **properties):
    return {"Thing": {"Type": kind, "Properties": properties}}


QUEUE = {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": 30}}
SOURCE = {
    "Type": "AWS::Lambda::EventSourceMapping",
    "Properties": {"FunctionName": "s-f", "EventSourceArn": "arn:aws:sqs:r:1:s-Queue-1A2B"},
}
LIVE = {
    "Type": "AWS::Lambda::Alias",
    "Properties": {"ProvisionedConcurrencyConfig": {"ProvisionedConcurrentExecutions": "9"}},
}
INTEGRATION = {"x-amazon-apigateway-integration": {"uri": "arn:aws:lambda:r:1:function:s-f/invocations"}}
STAGE_FIELDS = ("ResourcePath", "HttpMethod", "MetricsEnabled", "ThrottlingRateLimit", "ThrottlingBurstLimit")
BROKEN = {
    "an empty list": (of("A", SubnetIds=[]), "SubnetIds"),
    "a list of an empty string": (of("A", SubnetIds=[""]), "empty string"),
    "a policy for no resource": (of("AWS::IAM::ManagedPolicy", PolicyDocument=statement([])), "Resource"),
    "too much memory": ({"F": function(MemorySize="20000")}, "10240 MB at most"),
    "more provisioned than reserved": (
        {"F": function(ReservedConcurrentExecutions="5"), "FAliaslive": LIVE},
        "9 provisioned environments, but 5 reserved",
    ),
    "a queue that is visible before its function ends": (
        {"F": function(Timeout=60), "Queue": QUEUE, "Source": SOURCE},
        "Lambda refuses one below",
    ),
    "a function that runs longer than API Gateway waits": (
        {
            "F": function(Timeout=60),
            "Api": {
                "Type": "AWS::ApiGateway::RestApi",
                "Properties": {
                    "Body": {
                        "paths": {
                            "/a": {
                                "get": INTEGRATION,
                                "options": {"x-amazon-apigateway-integration": {"type": "mock"}},
                            }
                        }
                    }
                },
            },
        },
        "API Gateway waits 29 s",
    ),
    "too many paths": (
        of("AWS::ApiGateway::RestApi", Body={"paths": {f"/{number}": {} for number in range(300)}}),
        "API Gateway takes 300",
    ),
    "a stage with more settings than one update takes": (
        of("AWS::ApiGateway::Stage", MethodSettings=[dict.fromkeys(STAGE_FIELDS, 1)] * 27),
        "81 settings of methods; an update of a stage takes 80",
    ),
    "too many policies of a role": (
        of("AWS::IAM::Role", ManagedPolicyArns=["a"] * 11),
        "11 managed policies",
    ),
    "inline policies that are too long": (
        of("AWS::IAM::Role", Policies=[{"PolicyName": "a", "PolicyDocument": statement(["a" * 200] * 60)}]),
        "characters",
    ),
    "a managed policy that is too long": (
        of("AWS::IAM::ManagedPolicy", PolicyDocument=statement(["a" * 200] * 40)),
        "characters",
    ),
    "brokers that do not fit the subnets": (
        of("AWS::MSK::Cluster", NumberOfBrokerNodes="3", BrokerNodeGroupInfo={"ClientSubnets": ["a", "b"]}),
        "no multiple of 2 subnets",
    ),
    "a queue's name of 81 characters": (of("AWS::SQS::Queue", QueueName="q" * 81), "80 are allowed"),
    "a target group's name of 33 characters": (
        of("AWS::ElasticLoadBalancingV2::TargetGroup", Name="t" * 33),
        "32 are allowed",
    ),
}


BALANCING = "AWS::ElasticLoadBalancingV2::"


def task(*command, **container):
    described = {"Name": "server", "Command": list(command), **container}
    return {"Type": "AWS::ECS::TaskDefinition", "Properties": {"ContainerDefinitions": [described]}}


def target_group(**properties):
    return {"Type": BALANCING + "TargetGroup", "Properties": properties}


def delay(seconds):
    return {"TargetGroupAttributes": [{"Key": "deregistration_delay.timeout_seconds", "Value": str(seconds)}]}


LISTENER = {
    "Type": BALANCING + "Listener",
    "Properties": {"LoadBalancerArn": "arn:aws:e:r:1:loadbalancer/app/s-Public-1A2B/1", "Protocol": "HTTP"},
}
PUBLIC = {
    "Type": BALANCING + "LoadBalancer",
    "Properties": {"Scheme": "internet-facing", "Subnets": ["subnet-1", "subnet-2"]},
}


def service(**properties):
    breaker = {"DeploymentCircuitBreaker": {"Enable": True, "Rollback": True}}
    balanced = [{"ContainerName": "server", "ContainerPort": 80}]
    described = {"LoadBalancers": balanced, "DeploymentConfiguration": breaker, **properties}
    return {"Type": "AWS::ECS::Service", "Properties": described}


OPEN = task(PortMappings=[{"ContainerPort": 80}])
BROKEN |= {
    "a load balancer in one zone": (of(BALANCING + "LoadBalancer", Subnets=["subnet-1"]), "two zones"),
    "HTTPS without a certificate": (of(BALANCING + "Listener", Protocol="HTTPS"), "needs a certificate"),
    "tokens in the clear": ({"Public": PUBLIC, "Listener": LISTENER}, "in the clear"),
    "health checks that overlap": (
        {"Group": target_group(HealthCheckTimeoutSeconds=10, HealthCheckIntervalSeconds=10)},
        "does not end within its interval",
    ),
    "a target that drains for two hours": ({"Group": target_group(**delay(7200))}, "not from 0 to 3600"),
    "a task that Fargate kills earlier": ({"Task": task(StopTimeout=121)}, "Fargate takes 120"),
    "a server that is killed while it drains": (
        {"Task": task("--drain-s", "30", StopTimeout=30)},
        "killed after 30 s",
    ),
    "a target that is removed while it is used": (
        {"Task": task("--drain-s", "30", StopTimeout=60), "Group": target_group(**delay(5))},
        "removed after 5 s",
    ),
    "a service at a port that is not open": (
        {"Task": task(PortMappings=[{"ContainerPort": 8080}]), "Service": service()},
        "has the port 80 open",
    ),
    "a health check that ECS refuses": (
        {"Task": task(HealthCheck={"Command": ["CMD", "true"], "StartPeriod": 600})},
        "StartPeriod of a health check is 600, not from 0 to 300",
    ),
    "a service that nobody asks whether it works": (
        {"Task": OPEN, "Service": service(LoadBalancers=None)},
        "neither a load balancer nor a HealthCheck",
    ),
    "a deployment that stops what works first": (
        {
            "Task": OPEN,
            "Service": service(
                DeploymentConfiguration={
                    "MinimumHealthyPercent": 0,
                    "DeploymentCircuitBreaker": {"Enable": True, "Rollback": True},
                }
            ),
        },
        "before another one works",
    ),
    "a deployment that never gives up": (
        {"Task": OPEN, "Service": service(DeploymentConfiguration={})},
        "without a circuit breaker",
    ),
    "a scaling whose least is above its largest": (
        of("AWS::ApplicationAutoScaling::ScalableTarget", MinCapacity="5", MaxCapacity="2"),
        "above the largest",
    ),
}


def test_the_stage_of_the_template_is_made_by_one_update():
    settings = template()["Resources"]["Api"]["Properties"]["MethodSettings"]
    assert list(checks.check(of("AWS::ApiGateway::Stage", MethodSettings=settings))) == []


@pytest.mark.parametrize("name", BROKEN)
def test_check_finds(name):
    resources, word = BROKEN[name]
    [sentence] = checks.check(resources)
    assert word in sentence


def test_a_name_that_the_longest_stack_name_makes_too_long_is_found():
    queue = {
        "Type": "AWS::SQS::Queue",
        "Properties": {"QueueName": {"Fn::Sub": "${AWS::StackName}-" + "q" * 41}},
    }
    found = ResolvedStack(
        "main.yaml", matrix.STACK_NAME, {"Resources": {"Queue": queue}}, {}, lambda _: CHILD
    )
    [sentence] = checks.check(found.resources)
    assert "82 characters; 80 are allowed" in sentence


def test_a_finding_without_a_reason_and_a_reason_without_a_finding_are_reported():
    known, unknown, gone = (Finding("CKV_1", "template.yaml", name, "text") for name in ("A", "B", "C"))
    found = list(compare({known, unknown}, {known.key: "because", gone.key: "because"}))
    assert len(found) == 2
    assert "template.yaml: B: text (CKV_1): fix it, or write a reason" in found[0]
    assert "C does not violate CKV_1 any more" in found[1]


def test_every_accepted_finding_has_a_reason():
    assert all(len(reason.split()) > 5 for reason in read_accepted(ROOT).values())


def test_a_reason_is_required(tmp_path):
    (tmp_path / "tools" / "lint").mkdir(parents=True)
    text = '[[accepted]]\nrule = "A"\nreason = " "\nwhere = {a = ["b"]}\n'
    (tmp_path / "tools" / "lint" / "accepted.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="A is accepted without a reason"):
        read_accepted(tmp_path)
