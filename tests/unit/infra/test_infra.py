"""The nested stacks: which connections they allow, and how a failed job is restarted."""

from __future__ import annotations

import json
import re

import pytest
from tests.support.cloudformation import ROOT, of_type, template

from keylane_build import job_package
from keylane_local.tools import OLDER_SPARK
from keylane_spark.engine.connector_jars import CONNECTOR, IAM

NETWORK = template("infra/network.yaml")
PIPELINE = template("infra/pipeline.yaml")
CLIENTS = {"FunctionsGroup", "JobGroup"}
OF_FUNCTIONS = ("KafkaBootstrap", "KafkaSecurityProtocol", "KafkaSaslMechanism", "RedisNodes", "RedisTls")
"""Parameters of the job that functions have as variables."""
NESTED = ("network", "kafka", "cache", "pipeline", "observability", "deployments", "edge", "key", "server")


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


STATES = PIPELINE["Resources"]["Starter"]["Properties"]["Definition"]["States"]
NEW_ACCOUNT_VCPUS = 16
"""EMR Serverless: max concurrent vCPUs per account."""


def states_after(first: str) -> list[str]:
    """Names of the states from one on, by Next or by the first choice."""
    order, at = [], first
    while at:
        order.append(at)
        at = STATES[at].get("Next") or (STATES[at].get("Choices") or [{}])[0].get("Next")
    return order


def test_a_failed_job_is_restarted_with_growing_pauses_and_never_beside_a_running_one():
    order = states_after("Settings")
    assert order == [
        "Settings",
        "IsWanted",
        "Failed",
        "BackOff",
        "Living",
        "Cancel",
        "IsNeeded",
        "Start",
        "Done",
    ]
    assert STATES["IsNeeded"]["Default"] == "Done"
    assert "RUNNING" in STATES["Living"]["Arguments"]["States"]
    assert STATES["Start"]["Arguments"]["Mode"] == "STREAMING"


def test_a_run_with_other_settings_or_of_a_job_that_should_not_run_is_cancelled():
    """Its name has a hash of the parameters, in which the package's folder is, too."""
    [wanted] = STATES["IsWanted"]["Choices"]
    assert wanted["Condition"] == "{% '${Running}' = 'true' %}"
    assert wanted["Assign"] == {"wanted": "{% 'keylane-' & $hash($parameters, 'SHA-256') %}"}
    assert (STATES["IsWanted"]["Assign"], STATES["IsWanted"]["Default"]) == ({"wanted": "none"}, "Living")
    assert STATES["Living"]["Assign"] == {
        "others": "{% [$states.result.JobRuns[$not(Name = $wanted)].Id] %}",
        "living": "{% $count($states.result.JobRuns[Name = $wanted]) %}",
    }
    assert STATES["Cancel"]["Items"] == "{% $others %}"
    resource = STATES["Cancel"]["ItemProcessor"]["States"]["CancelRun"]["Resource"]
    assert resource["Fn::Sub"].endswith(":emrserverless:cancelJobRun")
    assert "emr-serverless:CancelJobRun" in json.dumps(PIPELINE["Resources"]["StarterRole"])
    [needed] = STATES["IsNeeded"]["Choices"]
    assert needed["Condition"] == "{% $wanted != 'none' and $living = 0 %}"
    started = STATES["Start"]["Arguments"]
    assert started["Name"] == "{% $wanted %}"
    assert started["JobDriver"]["SparkSubmit"]["SparkSubmitParameters"] == "{% $parameters %}"
    assert "${Package}" in STATES["Settings"]["Assign"]["parameters"]


def test_heap_and_overhead_of_a_worker_on_emr_are_its_memory_and_fit_the_application():
    """EMR adds 10 percent to the heap, unless it is told how much."""
    options = STATES["Settings"]["Assign"]["parameters"].split()
    for part in ("driver", "executor"):
        assert f"spark.{part}.memory=${{Heap}}" in options
        assert f"spark.{part}.memoryOverhead=${{Rest}}" in options
    for memory, found in PIPELINE["Mappings"]["Heap"].items():
        heap, rest = (int(found[name].removesuffix("g")) for name in ("Size", "Rest"))
        assert heap + rest == int(memory)
        assert rest >= heap / 10
    described = PIPELINE["Parameters"]
    workers = described["Executors"]["Default"] + 1
    assert workers * described["Cores"]["Default"] <= NEW_ACCOUNT_VCPUS
    assert workers * max(described["Cores"]["AllowedValues"]) <= described["MaxCores"]["Default"]
    assert workers * max(described["MemoryGiB"]["AllowedValues"]) <= described["MaxMemoryGiB"]["Default"]


def test_the_job_on_emr_has_the_python_and_the_jars_of_its_package():
    options = STATES["Settings"]["Assign"]["parameters"].split()
    pythons = {each.partition("=")[2] for each in options if "PYSPARK_" in each}
    names = {each.partition("=")[0].rpartition("spark.")[2] for each in options if "PYSPARK_" in each}
    assert pythons == {f"python{job_package.PYTHON}"}
    driver = "emr-serverless.driverEnv."
    assert names == {
        driver + "PYSPARK_DRIVER_PYTHON",
        driver + "PYSPARK_PYTHON",
        "executorEnv.PYSPARK_PYTHON",
    }
    listed = options[options.index("--jars") + 1].split(",")
    folders, jars = zip(*(each.rsplit("/", 1) for each in listed), strict=True)
    assert set(folders) == {"${Package}/jars"}
    # Of each, the list has the file of both versions of Spark; EMR's is the older one.
    known = [each.split()[1] for each in (ROOT / "infra/jars.sha256").read_text("utf-8").splitlines()]
    wanted = [min(each for each in known if each.startswith(name)) for name in (*CONNECTOR, IAM)]
    assert list(jars) == wanted
    assert f"-{OLDER_SPARK}.jar" in jars[0]


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
    of_emr = {each for each in re.findall(r"driverEnv\.(\w+)=", text) if not each.startswith("PY")}
    [container] = PIPELINE["Resources"]["Task"]["Properties"]["ContainerDefinitions"]
    variables = {each["Name"] for each in container["Environment"]}
    of_ecs = {"SPARK_DRIVER_MEMORY", "AWS_REGION", "KEYLANE_FENCED_WAIT_S"}
    assert variables - of_ecs == of_emr
    assert {"Name": "AWS_REGION", "Value": {"Ref": "AWS::Region"}} in container["Environment"]
    assert {"KEYLANE_JOB_METRICS", "KEYLANE_METRICS_NAMESPACE", "KEYLANE_KAFKA_SECURITY_PROTOCOL"} < of_emr


def variable_of(parameter: str) -> str:
    return "KEYLANE" + re.sub("([A-Z])", r"_\1", parameter).upper()


def test_the_job_reaches_kafka_and_redis_by_the_addresses_and_the_protocol_of_the_functions():
    main = template()["Resources"]
    job = main["Pipeline"]["Properties"]["Parameters"]
    function = main["ProduceFunction"]["Properties"]["Environment"]["Variables"]
    for parameter in OF_FUNCTIONS:
        assert job[parameter] == function[variable_of(parameter)], parameter


@pytest.mark.parametrize("parameter", [*OF_FUNCTIONS, "RedisUsername", "CreateTopics"])
def test_both_engines_give_a_variable_the_value_of_its_parameter(parameter):
    variable = variable_of(parameter)
    [container] = PIPELINE["Resources"]["Task"]["Properties"]["ContainerDefinitions"]
    assert {"Name": variable, "Value": {"Ref": parameter}} in container["Environment"]
    starter = PIPELINE["Resources"]["Starter"]["Properties"]
    [used] = re.findall(rf"driverEnv\.{variable}=\$\{{(\w+)\}}", json.dumps(starter["Definition"]))
    assert starter["DefinitionSubstitutions"][used] == {"Ref": parameter}


def test_the_job_on_fargate_has_the_heap_of_its_memory_and_runs_only_where_it_should():
    [container] = PIPELINE["Resources"]["Task"]["Properties"]["ContainerDefinitions"]
    heap = {"Fn::FindInMap": ["Heap", {"Ref": "MemoryGiB"}, "Size"]}
    assert {"Name": "SPARK_DRIVER_MEMORY", "Value": heap} in container["Environment"]
    count = PIPELINE["Resources"]["Service"]["Properties"]["DesiredCount"]
    assert count == {"Fn::If": ["IsRunning", 1, 0]}


def test_a_job_that_creates_topics_may_create_them_in_a_kafka_with_iam():
    policies = PIPELINE["Resources"]["JobRole"]["Properties"]["Policies"]
    [kafka] = [each["Fn::If"][1] for each in policies if each["Fn::If"][0] == "IsIam"]
    conditional = [each["Fn::If"] for each in kafka["PolicyDocument"]["Statement"] if "Fn::If" in each]
    [(condition, statement, _)] = conditional
    assert (condition, statement["Action"]) == ("CreatesTopics", "kafka-cluster:CreateTopic")


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
        ("infra/server.yaml", "RegistryLoginPolicy"),
        ("infra/kafka.yaml", "AddressLookupPolicy"),
        ("infra/kafka.yaml", "ScramKey"),
        ("infra/key.yaml", "Key"),
        ("infra/kafka.yaml", "ScramSecretPolicy"),
        ("infra/observability.yaml", "TopicKey"),
        ("infra/pipeline.yaml", "StarterLogsPolicy"),
    }
