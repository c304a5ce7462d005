"""The nested stacks: which connections they allow, and how a failed job is restarted."""

from __future__ import annotations

import json
import re

from tests.support.cloudformation import of_type, template

NETWORK = template("infra/network.yaml")
PIPELINE = template("infra/pipeline.yaml")
CLIENTS = {"FunctionsGroup", "JobGroup"}
NESTED = ("network", "kafka", "cache", "pipeline", "observability")


def admitted() -> dict[str, set[tuple[str, int, int]]]:
    """For each security group who may connect to which ports."""
    found: dict[str, set[tuple[str, int, int]]] = {
        name: set() for name in of_type(NETWORK, "AWS::EC2::SecurityGroup")
    }
    for each in of_type(NETWORK, "AWS::EC2::SecurityGroupIngress").values():
        rule = each["Properties"]
        source = rule["SourceSecurityGroupId"]["Ref"]
        found[rule["GroupId"]["Ref"]].add((source, rule["FromPort"], rule["ToPort"]))
    return found


def test_kafka_state_and_endpoints_accept_functions_and_job_only():
    found = admitted()
    for group, ports in (("KafkaGroup", {9096, 9098}), ("CacheGroup", {6379}), ("EndpointGroup", {443})):
        assert found[group] == {(client, port, port) for client in CLIENTS for port in ports}


def test_functions_accept_no_connections_and_the_job_only_its_own():
    assert admitted()["FunctionsGroup"] == set()
    assert {source for source, _, _ in admitted()["JobGroup"]} == {"JobGroup"}


def test_no_subnet_has_a_route_to_the_internet():
    kinds = {each["Type"] for each in NETWORK["Resources"].values()}
    assert not kinds & {"AWS::EC2::InternetGateway", "AWS::EC2::NatGateway", "AWS::EC2::Route"}


def test_a_failed_job_is_restarted_with_growing_pauses_and_never_beside_a_running_one():
    definition = PIPELINE["Resources"]["Starter"]["Properties"]["Definition"]
    states = definition["States"]
    order, at = [], definition["StartAt"]
    while at:
        order.append(at)
        at = states[at].get("Next") or (states[at].get("Choices") or [{}])[0].get("Next")
    assert order == ["Failed", "BackOff", "Living", "IsNeeded", "Start", "Done"]
    assert states["IsNeeded"]["Default"] == "Done"
    assert "RUNNING" in states["Living"]["Arguments"]["States"]
    assert states["Start"]["Arguments"]["Mode"] == "STREAMING"


def test_the_starters_definition_gets_all_variables_that_it_uses():
    properties = PIPELINE["Resources"]["Starter"]["Properties"]
    named = set(re.findall(r"\$\{(\w+)\}", json.dumps(properties["Definition"])))
    assert named == properties["DefinitionSubstitutions"].keys()


def test_the_starter_runs_when_a_run_fails_and_regularly():
    rules = [each["Properties"] for each in of_type(PIPELINE, "AWS::Events::Rule").values()]
    assert [
        rule for rule in rules if rule.get("EventPattern", {}).get("detail", {}).get("state") == ["FAILED"]
    ]
    assert [rule for rule in rules if rule.get("ScheduleExpression")]
    for rule in rules:
        assert rule["State"] == {"Fn::If": ["IsRunning", "ENABLED", "DISABLED"]}


def test_both_engines_give_the_job_the_same_variables():
    text = json.dumps(PIPELINE["Resources"]["Starter"])
    of_emr = set(re.findall(r"driverEnv\.(KEYLANE_\w+)=", text))
    [container] = PIPELINE["Resources"]["Task"]["Properties"]["ContainerDefinitions"]
    assert {each["Name"] for each in container["Environment"]} == of_emr


def test_stars_are_allowed_only_for_actions_without_resources():
    found = {
        (path, name)
        for path in ["template.yaml", *(f"infra/{each}.yaml" for each in NESTED)]
        for name, resource in template(path)["Resources"].items()
        if "AllowStar" in resource.get("Metadata", {}).get("Keylane", {})
    }
    assert found == {
        ("template.yaml", "VpcPolicy"),
        ("template.yaml", "TracingPolicy"),
        ("infra/kafka.yaml", "ScramKey"),
        ("infra/kafka.yaml", "ScramSecretPolicy"),
        ("infra/observability.yaml", "TopicKey"),
        ("infra/pipeline.yaml", "StarterLogsPolicy"),
    }
