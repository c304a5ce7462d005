"""What stacks cost at rest, against the templates."""

from __future__ import annotations

import re

import pytest
from tests.support.cloudformation import ROOT, template

from keylane.metrics.catalogue import JOB
from keylane_build.sizing import prices
from keylane_build.sizing.at_rest import AT_REST, FREE, charges, deployed, is_counted
from keylane_build.sizing.bills import add_up
from keylane_build.stack.parameters import Refused
from keylane_build.stack.resolving import ResolvedStack
from keylane_build.templates import all_templates

NEW = {"Job": "FARGATE", "JobImage": "image", "Observability": "true", "AlarmEmail": "a@example.org"}
SERVERLESS = {"KafkaMode": "SERVERLESS"}
EMR = NEW | {"Job": "EMR_SERVERLESS", "JobPackage": "s3://a/b", "JobPackageBucketArn": "arn:aws:s3:::a"}
TYPES = {each["Type"] for path in all_templates(ROOT) for each in template(path)["Resources"].values()}


def bill(**parameters):
    return add_up(charges(deployed(NEW | parameters)))


def bill_of(kind, properties):
    """The bill of one resource."""
    written = {"Resources": {"One": {"Type": kind, "Properties": properties}}}
    return add_up(charges(ResolvedStack("one.yaml", "one", written, {}, template)))


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_every_type_of_the_templates_is_counted_or_free(kind):
    assert is_counted(kind) in {True, False}


def test_a_type_that_nobody_has_priced_is_an_error():
    with pytest.raises(ValueError, match=r"AWS::RDS::DBInstance: .* does not say what it costs"):
        bill_of("AWS::RDS::DBInstance", {})


def test_what_is_called_free_is_in_a_template():
    unused = [
        pattern for pattern in FREE if not any(map(re.compile(pattern.replace("*", ".*")).fullmatch, TYPES))
    ]
    assert unused == []
    assert not [kind for kind in AT_REST if any(re.fullmatch(each.replace("*", ".*"), kind) for each in FREE)]


@pytest.mark.parametrize(
    ("parameters", "part", "more"),
    [
        ({"CacheShards": "4"}, "cache nodes", 2),
        ({"CacheReplicas": "2"}, "cache nodes", 3),
        ({"KafkaBrokersPerZone": "2"}, "brokers", 3),
        ({"KafkaVolumeGiB": "300"}, "brokers' disks, GB", 300),
        ({"JobCores": "8", "JobMemoryGiB": "32"}, "Fargate, cores", 4),
        ({"JobRunning": "false"}, "Fargate, cores", -4),
        ({"CacheServer": "true"}, "secrets", 1),
        ({"ProvisionedConcurrency": "3", "Release": "1"}, "provisioned concurrency, GB", 3),
        ({"DeploymentType": "Canary10Percent5Minutes", "Release": "1"}, "alarms' metrics", 7),
        ({"Observability": "false"}, "dashboards", -1),
    ],
    ids=str,
)
def test_the_bill_follows_the_parameters(parameters, part, more):
    before, after = bill(), bill(**parameters)
    counts = [each[part].count if part in each else 0 for each in (before, after)]
    assert counts[1] - counts[0] == pytest.approx(more)


def test_defaults_of_the_template_are_what_is_billed():
    defaults = {name: each.get("Default") for name, each in template()["Parameters"].items()}
    found = bill()
    nodes = defaults["CacheShards"] * (1 + defaults["CacheReplicas"])
    _, price = prices.CACHE_NODES[defaults["CacheNodeType"]]
    assert found["cache nodes"].dollars == pytest.approx(nodes * price * 730)
    assert (
        found["brokers' disks, GB"].count == 3 * defaults["KafkaBrokersPerZone"] * defaults["KafkaVolumeGiB"]
    )
    assert found["Fargate, cores"].count == defaults["JobCores"]


def test_larger_nodes_cost_more():
    assert bill(CacheNodeType="cache.r7g.xlarge")["cache nodes"].dollars > bill()["cache nodes"].dollars
    assert bill(KafkaBrokerType="kafka.t3.small")["brokers"].dollars < bill()["brokers"].dollars


def test_a_size_without_a_price_is_an_error():
    with pytest.raises(ValueError, match=r"no price of cache\.x2iedn\.large is known"):
        bill(CacheNodeType="cache.x2iedn.large")


def test_parameters_that_a_nested_template_refuses_are_an_error():
    with pytest.raises(Refused, match="VolumeGiB"):
        bill(KafkaVolumeGiB="20000")


def test_serverless_kafka_has_no_brokers():
    found = bill(**SERVERLESS)
    assert "brokers" not in found
    assert found["MSK Serverless"].count == 1


def test_emr_s_driver_and_executors_are_billed_while_the_job_runs():
    cores = add_up(charges(deployed(EMR)))["EMR Serverless, cores"].count
    assert cores == (1 + 3) * 4
    assert "EMR Serverless, cores" not in add_up(charges(deployed(EMR | {"JobRunning": "false"})))


def test_endpoints_are_billed_in_each_zone_and_gateways_are_free():
    endpoint = {"VpcEndpointType": "Interface", "SubnetIds": ["a", "b"]}
    assert bill_of("AWS::EC2::VPCEndpoint", endpoint)["interface endpoints, by zone"].count == 2
    assert bill_of("AWS::EC2::VPCEndpoint", {"VpcEndpointType": "Gateway"}) == {}
    assert bill()["interface endpoints, by zone"].count == sum(
        len(each["Properties"]["SubnetIds"])
        for each in deployed(NEW).load("infra/network.yaml")["Resources"].values()
        if each.get("Properties", {}).get("VpcEndpointType") == "Interface"
    )


def test_the_job_s_metrics_are_those_of_the_catalogue():
    running, stopped = bill()["metrics"].count, bill(JobRunning="false")["metrics"].count
    assert running - stopped == len(JOB["topic"])


@pytest.mark.parametrize(("level", "count"), [("DEFAULT", 0), ("PER_BROKER", 2 * prices.BROKER_METRICS)])
def test_metrics_of_brokers_are_billed_above_the_default_level(level, count):
    group = {"InstanceType": "kafka.m7g.large", "StorageInfo": {"EBSStorageInfo": {"VolumeSize": 1}}}
    cluster = {"NumberOfBrokerNodes": 2, "BrokerNodeGroupInfo": group, "EnhancedMonitoring": level}
    found = bill_of("AWS::MSK::Cluster", cluster)
    assert (found["metrics"].count if "metrics" in found else 0) == count


def test_an_alarm_is_billed_by_its_metrics():
    found = bill_of("AWS::CloudWatch::Alarm", {"Metrics": [{"Id": "a"}, {"Id": "b"}]})
    assert found["alarms' metrics"].count == 2
    assert bill_of("AWS::CloudWatch::Alarm", {"MetricName": "a"})["alarms' metrics"].count == 1


def test_the_server_s_least_tasks_are_billed_by_their_architecture():
    given = {
        "Image": "123456789012.dkr.ecr.eu-central-1.amazonaws.com/a:1",
        "VpcId": "vpc-1",
        "SubnetIds": "subnet-1,subnet-2",
        "SecurityGroupId": "sg-1",
        "ClientCidr": "10.0.0.0/8",
        "KafkaBootstrap": "a:1",
        "RedisNodes": "a:1",
    }
    path = "infra/server.yaml"
    two = add_up(charges(deployed(given, path)))
    three = add_up(charges(deployed(given | {"MinTasks": "3", "Cores": "2", "Architecture": "arm64"}, path)))
    assert two["Fargate, cores"].count == 2
    assert three["Fargate, arm64, cores"].count == 6
    assert two["load balancers"].count == 1


def test_the_price_of_a_kind_is_looked_up_in_one_table():
    assert not prices.BY_THE_HOUR.keys() & prices.BY_THE_MONTH.keys()
    assert FREE.keys().isdisjoint(AT_REST)
