"""New Kafka, cache and network: what they are made of, and what of it the main template reaches."""

from __future__ import annotations

import re

import pytest
import yaml
from tests.support.cloudformation import ROOT, of_type, template

from keylane_build.stack.loading import load_template
from keylane_build.stack.resolving import ResolvedStack
from keylane_local.servers import redis_node

MAIN = template()
CACHE = template("infra/cache.yaml")
NESTED = of_type(MAIN, "AWS::CloudFormation::Stack")
ONE_VALUE = {
    "infra/cache.yaml": {
        "EngineVersion": "ElastiCache updates it itself, and a newer one needs a try of the tests first",
        "ParameterFamily": "that of EngineVersion",
    },
    "infra/network.yaml": {"VpcCidr": "nothing outside reaches the network"},
    "infra/pipeline.yaml": dict.fromkeys(
        ("Executors", "MaxCores", "MaxMemoryGiB", "ReleaseLabel"), "of EMR Serverless, which is experimental"
    ),
}
"""Template -> its parameters that template.yaml leaves at their default, and why."""
SET_IN_EACH = {"cluster-enabled", "cluster-require-full-coverage", "cluster-allow-reads-when-down"}
BY_DEFAULT = {"maxmemory-policy": "noeviction"}
"""What Redis has where a configuration says nothing; ElastiCache has defaults of its own."""
OF_ELASTICACHE = {"reserved-memory-percent"}
ZONES = {"ZoneCount": "3", "Zones": "us-east-1a,us-east-1b,us-east-1d"}


OF_BROKERS = ("BrokersPerZone", "BrokerType", "KafkaVersion")
"""Parameters whose change may give the brokers other addresses."""


def resolved(path: str, **given: str) -> ResolvedStack:
    """A template by itself, as CloudFormation would create it."""
    found = ResolvedStack(path, "s", template(path), given, lambda name: load_template(ROOT / name))
    assert found.resources
    assert found.problems == []
    return found


@pytest.mark.parametrize("name", NESTED)
def test_the_main_template_reaches_every_parameter_of_a_nested_one(name):
    properties = NESTED[name]["Properties"]
    path = properties["TemplateURL"]
    left = template(path)["Parameters"].keys() - properties["Parameters"].keys()
    assert left == ONE_VALUE.get(path, {}).keys()


@pytest.mark.parametrize("name", NESTED)
def test_a_number_that_is_passed_on_has_one_default(name):
    properties = NESTED[name]["Properties"]
    inner = template(properties["TemplateURL"])["Parameters"]
    for parameter, value in properties["Parameters"].items():
        outer = MAIN["Parameters"].get(value.get("Ref"))
        if outer and outer["Type"] == "Number" and "Default" in inner[parameter]:
            assert outer["Default"] == inner[parameter]["Default"], parameter


# ------------------------------------------------------------------------------------------------------ Redis
def local_settings() -> dict[str, str]:
    """The settings of the local stack's nodes."""
    lines = [line.split(maxsplit=1) for line in redis_node._CONFIG.splitlines()]
    return {line[0]: line[1] for line in lines if len(line) == 2 and line[0] != "#"}


def composed_settings() -> list[dict[str, str]]:
    """The settings of each node of compose.yaml."""
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    commands = [each["command"] for name, each in services.items() if name.startswith("valkey-")]
    return [dict(re.findall(r"--(\S+) (\S+)", command)) for command in commands]


def test_the_local_stack_compose_and_aws_set_the_same_for_what_each_can_set():
    """A read that a cluster answers here must not stop on AWS."""
    aws = CACHE["Resources"]["Settings"]["Properties"]["Properties"]
    for settings in (local_settings(), *composed_settings()):
        assert settings.keys() >= SET_IN_EACH
        assert aws == aws | {name: value for name, value in settings.items() if name in aws}
        assert aws.keys() - settings.keys() == BY_DEFAULT.keys() | OF_ELASTICACHE
    assert aws.items() >= BY_DEFAULT.items()
    assert aws["cluster-allow-reads-when-down"] == "yes"


def test_a_new_cache_begins_with_a_snapshot_and_keeps_its_own_for_days():
    given = {"SubnetIds": "subnet-1,subnet-2", "SecurityGroupId": "sg-1", "Name": "keylane-2"}
    made = resolved("infra/cache.yaml", **given, SnapshotName="keylane-2026-11-25", SnapshotDays="7")
    cluster = made.resources["Cluster"]["Properties"]
    assert (cluster["SnapshotName"], cluster["SnapshotRetentionLimit"]) == ("keylane-2026-11-25", "7")
    assert "SnapshotName" not in resolved("infra/cache.yaml", **given).resources["Cluster"]["Properties"]


def test_users_of_a_cache_with_another_name_have_other_ids_and_the_same_passwords():
    """So a cache that is replaced by a restored one leaves the secrets as they are."""
    users = of_type(CACHE, "AWS::ElastiCache::User")
    assert all("${Name}" in str(each["Properties"]["UserId"]) for each in users.values())
    secrets = of_type(CACHE, "AWS::SecretsManager::Secret").values()
    assert all("Name" not in each["Properties"] for each in secrets)


# ------------------------------------------------------------------------------------------------------ Kafka
def test_new_kafka_keeps_its_metadata_itself():
    """MSK: KRaft is chosen by the version's name, and only when a cluster is made."""
    assert MAIN["Parameters"]["KafkaVersion"]["Default"].endswith(".kraft")


def test_another_version_of_kafka_does_not_replace_the_configuration_whose_name_is_taken():
    kafka = template("infra/kafka.yaml")["Resources"]
    assert kafka["Cluster"]["Properties"]["KafkaVersion"] == {"Ref": "KafkaVersion"}
    assert "KafkaVersion" not in str(kafka["Configuration"])


# ---------------------------------------------------------------------------------------------------- network
def subnets_of(network: ResolvedStack) -> list[str]:
    """The zones of a network's subnets."""
    return [
        each["Properties"]["AvailabilityZone"]
        for each in network.resources.values()
        if each["Type"] == "AWS::EC2::Subnet"
    ]


def test_a_network_is_in_the_zones_that_are_named():
    assert subnets_of(resolved("infra/network.yaml", **ZONES)) == ZONES["Zones"].split(",")


def test_a_network_of_two_zones_has_two_subnets_and_endpoints_in_both():
    """As many as N. California has; and a trial pays for two thirds of the endpoints."""
    network = resolved("infra/network.yaml", ZoneCount="2")
    assert len(subnets_of(network)) == 2
    assert len(network.outputs["SubnetIds"].split(",")) == 2
    endpoints = [
        each["Properties"]["SubnetIds"]
        for each in network.resources.values()
        if each["Type"] == "AWS::EC2::VPCEndpoint" and "SubnetIds" in each["Properties"]
    ]
    assert endpoints
    assert {len(each) for each in endpoints} == {2}


@pytest.mark.parametrize(("count", "brokers", "copies"), [("2", "4", "2"), ("3", "6", "3")])
def test_kafka_has_brokers_and_copies_in_each_zone(count, brokers, copies):
    subnets = ",".join(f"subnet-{number}" for number in range(int(count)))
    given = {"SubnetIds": subnets, "SecurityGroupId": "sg-1", "Mode": "PROVISIONED", "BrokersPerZone": "2"}
    kafka = resolved("infra/kafka.yaml", **given, ZoneCount=count).resources
    assert kafka["Cluster"]["Properties"]["NumberOfBrokerNodes"] == brokers
    settings = kafka["Configuration"]["Properties"]["ServerProperties"]
    assert f"default.replication.factor={copies}\n" in settings


def test_the_brokers_addresses_are_looked_up_again_where_brokers_change():
    """CloudFormation calls the function at the creation, and where its properties change."""
    looked_up = template("infra/kafka.yaml")["Resources"]["Addresses"]["Properties"]
    assert looked_up["Brokers"] == {"Fn::Join": [" ", [{"Ref": each} for each in OF_BROKERS]]}
    assert set(OF_BROKERS) <= template("infra/kafka.yaml")["Parameters"].keys()
