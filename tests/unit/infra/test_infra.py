"""The nested stacks: which connections they allow, and how a failed job is restarted."""

from __future__ import annotations

import json
import re

from tests.support.cloudformation import of_type, template

NETWORK = template("infra/network.yaml")
PIPELINE = template("infra/pipeline.yaml")
CLIENTS = {"FunctionsGroup", "JobGroup"}
NESTED = ("network", "kafka", "cache", "pipeline", "observability", "deployments", "edge", "key", "front")


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


def states_after(first: str) -> list[str]:
    """Names of the states from one on, by Next or by the first choice."""
    states = PIPELINE["Resources"]["Starter"]["Properties"]["Definition"]["States"]
    order, at = [], first
    while at:
        order.append(at)
        at = states[at].get("Next") or (states[at].get("Choices") or [{}])[0].get("Next")
    return order


def test_a_failed_job_is_restarted_with_growing_pauses_and_never_beside_a_running_one():
    definition = PIPELINE["Resources"]["Starter"]["Properties"]["Definition"]
    states = definition["States"]
    order = states_after(definition["StartAt"])
    assert order == ["IsWanted", "Failed", "BackOff", "Living", "IsNeeded", "Start", "Done"]
    assert states["IsNeeded"]["Default"] == "Done"
    assert "RUNNING" in states["Living"]["Arguments"]["States"]
    assert states["Start"]["Arguments"]["Mode"] == "STREAMING"


def test_runs_of_a_job_that_should_not_run_are_cancelled():
    states = PIPELINE["Resources"]["Starter"]["Properties"]["Definition"]["States"]
    [wanted] = states["IsWanted"]["Choices"]
    assert wanted["Condition"] == "{% '${Running}' = 'true' %}"
    assert states_after(states["IsWanted"]["Default"]) == ["ToCancel", "Cancel", "Done"]
    assert states["ToCancel"]["Arguments"]["States"] == states["Living"]["Arguments"]["States"]
    resource = states["Cancel"]["ItemProcessor"]["States"]["CancelRun"]["Resource"]
    assert resource.endswith(":emrserverless:cancelJobRun")
    assert "emr-serverless:CancelJobRun" in json.dumps(PIPELINE["Resources"]["StarterRole"])


def test_the_starters_definition_gets_all_variables_that_it_uses():
    properties = PIPELINE["Resources"]["Starter"]["Properties"]
    named = set(re.findall(r"\$\{(\w+)\}", json.dumps(properties["Definition"])))
    assert named == properties["DefinitionSubstitutions"].keys()


def test_the_starter_runs_when_a_run_fails_and_regularly():
    failed, regularly = (PIPELINE["Resources"][name]["Properties"] for name in ("WhenFailed", "Regularly"))
    assert failed["EventPattern"]["detail"]["state"] == ["FAILED"]
    assert failed["State"] == {"Fn::If": ["IsRunning", "ENABLED", "DISABLED"]}
    # It also cancels what should not run.
    assert regularly["ScheduleExpression"]
    assert regularly["State"] == "ENABLED"


def test_both_engines_give_the_job_the_same_variables():
    text = json.dumps(PIPELINE["Resources"]["Starter"])
    of_emr = set(re.findall(r"driverEnv\.(\w+)=", text)) - {"PYTHONPATH"}
    [container] = PIPELINE["Resources"]["Task"]["Properties"]["ContainerDefinitions"]
    variables = {each["Name"] for each in container["Environment"]}
    assert variables - {"SPARK_DRIVER_MEMORY"} == of_emr
    assert {"KEYLANE_JOB_METRICS", "KEYLANE_METRICS_NAMESPACE", "KEYLANE_KAFKA_SECURITY_PROTOCOL"} < of_emr


def test_each_size_of_the_job_has_a_heap_that_leaves_room_for_python():
    sizes = PIPELINE["Parameters"]["MemoryGiB"]["AllowedValues"]
    heaps = PIPELINE["Mappings"]["Heap"]
    assert [str(size) for size in sizes] == list(heaps)
    for size in sizes:
        heap = int(heaps[str(size)]["Size"].removesuffix("g"))
        assert size * 0.45 <= heap <= size * 0.76, size
    assert template()["Parameters"]["JobMemoryGiB"]["AllowedValues"] == sizes


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
        ("infra/front.yaml", "RegistryLoginPolicy"),
        ("infra/kafka.yaml", "AddressLookupPolicy"),
        ("infra/kafka.yaml", "ScramKey"),
        ("infra/key.yaml", "Key"),
        ("infra/kafka.yaml", "ScramSecretPolicy"),
        ("infra/observability.yaml", "TopicKey"),
        ("infra/pipeline.yaml", "StarterLogsPolicy"),
    }
