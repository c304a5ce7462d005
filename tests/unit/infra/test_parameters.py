"""Parameters of the template: combinations that deploy, and those that its Rules refuse."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from tests.support.cloudformation import ROOT, template

from keylane_build.stack import rule_functions
from keylane_build.stack.parameters import read_parameters

FOUND = template()
OWN_SUBNETS = {"SubnetIds": "subnet-1,subnet-2,subnet-3", "SecurityGroupIds": "sg-functions"}
OWN_KAFKA = {"KafkaBootstrap": "b-1.example:9096", "KafkaSaslMechanism": "SCRAM-SHA-512"}
OWN_REDIS = {"RedisNodes": "clustercfg.example:6379"}
BACKEND = {"BackendGroupId": "sg-backend"}
EMR = {"Job": "EMR_SERVERLESS", "JobPackage": "s3://b/f", "JobPackageBucketArn": "arn"}
FARGATE = {"Job": "FARGATE", "JobImage": "ecr/keylane-job:1"}


JOB_ELSEWHERE = {"JobMetrics": "true"}
NODES = 90
"""ElastiCache's quota of nodes in a cluster: doc_source of its guide, "Quotas for ElastiCache"."""


def refusals(given: dict[str, Any]) -> list[str]:
    """The sentences of the assertions that fail. The job is elsewhere where none is named."""
    return rule_functions.refusals(FOUND, read_parameters(FOUND, JOB_ELSEWHERE | given))


@pytest.mark.parametrize(
    "given",
    [
        {},
        FARGATE,
        FARGATE | {"JobCores": 16, "JobMemoryGiB": 120},
        OWN_KAFKA | OWN_REDIS | OWN_SUBNETS,
        OWN_KAFKA | OWN_REDIS,
        OWN_KAFKA | OWN_REDIS | OWN_SUBNETS | BACKEND | FARGATE | {"JobKafkaSecretArn": "arn"},
        OWN_KAFKA | OWN_SUBNETS | BACKEND,
        OWN_SUBNETS | BACKEND,
        {"KafkaMode": "SERVERLESS"} | FARGATE,
        EMR | {"JobCores": 1, "JobMemoryGiB": 8},
        {"Authorization": "LAMBDA", "Access": "secretsmanager:keylane-access"},
        {"ProvisionedConcurrency": 5, "Release": "1"},
        {"DeploymentType": "Canary10Percent5Minutes", "Release": "1"},
        {"DomainName": "api.example.org", "CertificateArn": "arn", "HostedZoneId": "Z1", "WebAclArn": "arn"},
        {"VpcEndpointIds": "vpce-1,vpce-2", "WebAclArn": "arn"},
        {"Authorization": "API_KEY", "TierA": "trial:5:10:1000"},
    ],
    ids=str,
)
def test_combination_that_works_is_accepted(given: dict[str, Any]):
    assert refusals(given) == []


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (OWN_SUBNETS | {"SecurityGroupIds": ""} | BACKEND, "SecurityGroupIds"),
        ({"SecurityGroupIds": "sg-functions"}, "SubnetIds"),
        (OWN_SUBNETS, "BackendGroupId"),
        (OWN_KAFKA | OWN_SUBNETS, "BackendGroupId"),
        (OWN_KAFKA | OWN_REDIS | OWN_SUBNETS | FARGATE | {"JobKafkaSecretArn": "arn"}, "BackendGroupId"),
        (OWN_KAFKA, "KafkaBootstrap"),
        (OWN_REDIS, "RedisNodes"),
        (OWN_KAFKA | OWN_SUBNETS | BACKEND | FARGATE, "JobKafkaSecretArn"),
        (FARGATE | {"JobCores": 1}, "2 to 8"),
        (FARGATE | {"JobCores": 16}, "32, 48"),
        (FARGATE | {"JobCores": 2, "JobMemoryGiB": 24}, "4 to 16"),
        (FARGATE | {"JobMemoryGiB": 4}, "8 to 30"),
        (FARGATE | {"JobCores": 8, "JobMemoryGiB": 12}, "16, 24"),
        ({"Job": "FARGATE"}, "JobImage"),
        ({"Job": "EMR_SERVERLESS"}, "JobPackage"),
        ({"Authorization": "LAMBDA"}, "Access"),
        ({"Authorization": "COGNITO"}, "UserPoolArn"),
        ({"UserPoolScopes": "keylane/read"}, "COGNITO"),
        ({"ProvisionedConcurrency": 5}, "Release"),
        ({"DeploymentType": "Linear10PercentEvery1Minute"}, "Release"),
        ({"DomainName": "api.example.org"}, "CertificateArn"),
        ({"DomainName": "api.example.org", "CertificateArn": "a", "VpcEndpointIds": "vpce-1"}, "private"),
        ({"HostedZoneId": "Z1"}, "DomainName"),
        ({"TierC": "trial:5:10:1000"}, "API_KEY"),
    ],
    ids=str,
)
def test_combination_that_could_not_work_is_refused_with_what_is_missing(given: dict[str, Any], word: str):
    [sentence] = refusals(given)
    assert word in sentence


@pytest.mark.parametrize("engine", ["FARGATE", "EMR_SERVERLESS"])
@pytest.mark.parametrize(
    ("cores", "least", "most", "step"),
    [(1, 2, 8, 1), (2, 4, 16, 1), (4, 8, 30, 1), (8, 16, 60, 4), (16, 32, 120, 8)],
)
def test_every_size_that_the_rules_accept_is_one_of_the_engine(
    engine: str, cores: int, least: int, most: int, step: int
):
    """Both have the same table.

    https://docs.aws.amazon.com/AmazonECS/latest/developerguide/fargate-tasks-services.html
    https://docs.aws.amazon.com/emr/latest/EMR-Serverless-UserGuide/app-behavior.html
    """
    given = {"FARGATE": FARGATE, "EMR_SERVERLESS": EMR}[engine] | {"JobCores": cores}
    sizes = FOUND["Parameters"]["JobMemoryGiB"]["AllowedValues"]
    accepted = [size for size in sizes if not refusals(given | {"JobMemoryGiB": size})]
    assert accepted == [size for size in sizes if size in range(least, most + 1, step)]


@pytest.mark.parametrize(
    "given",
    [{}, {"Authorization": "API_KEY"}, OWN_REDIS | OWN_SUBNETS | BACKEND, {"KafkaMode": "SERVERLESS"}],
    ids=str,
)
def test_new_kafka_without_a_job_is_refused(given: dict[str, Any]):
    """`sam deploy` alone would build brokers, nodes and endpoints for a state that stays empty."""
    [sentence] = refusals({"JobMetrics": "false"} | given)
    assert "New Kafka requires a Job" in sentence
    assert refusals({"JobMetrics": "false"} | given | OWN_KAFKA | OWN_SUBNETS | BACKEND) == []
    job = {"JobRedisSecretArn": "arn", **FARGATE}
    assert refusals({"JobMetrics": "false"} | given | job) == []
    assert refusals({"JobMetrics": "true"} | given) == []


@pytest.mark.parametrize("replicas", range(1, 6))
def test_more_nodes_than_the_quota_of_a_cluster_are_refused_until_it_is_raised(replicas: int):
    """CloudFormation cannot multiply: each number of replicas has a list of the shards that fit."""
    most = NODES // (replicas + 1)
    given = {"CacheReplicas": replicas}
    assert [shards for shards in range(1, NODES + 1) if not refusals(given | {"CacheShards": shards})] == [
        *range(1, most + 1)
    ]
    above = given | {"CacheShards": most + 1}
    [sentence] = refusals(above)
    assert f"at most {most} CacheShards" in sentence
    assert refusals(above | {"CacheMaxNodes": 500}) == []
    assert refusals(above | OWN_REDIS | OWN_SUBNETS | BACKEND) == []


def test_stacks_of_both_environments_of_samconfig_fit_into_one_account():
    config = tomllib.loads((ROOT / "samconfig.toml").read_text(encoding="utf-8"))
    names = {}
    for environment in ("default", "prod"):
        given = config[environment]["deploy"]["parameters"]["parameter_overrides"]
        overrides = dict(each.split("=", 1) for each in given)
        found = read_parameters(FOUND, overrides)
        names[environment] = (config[environment]["global"]["parameters"]["stack_name"], found["CacheName"])
        assert refusals(overrides | FARGATE) == []
    for one, other in zip(names["default"], names["prod"], strict=True):
        assert one != other
