"""Alarms say what to do, exist where what they watch exists, and notify somebody."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.cloudformation import ROOT, of_type, template

from keylane_build.stack.resolving import ResolvedStack, every_stack

if TYPE_CHECKING:
    from collections.abc import Iterator

FOUND = template("infra/observability.yaml")
MAIN = template()
ALARMS = of_type(FOUND, "AWS::CloudWatch::Alarm")
OF_SERVER = of_type(template("infra/server.yaml"), "AWS::CloudWatch::Alarm")
EVERY_ALARM = [*((name, False) for name in ALARMS), *((name, True) for name in OF_SERVER)]
PAGE_OF_SERVER = (ROOT / "docs" / "operate" / "fargate.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "operate" / "troubleshooting.md").read_text(encoding="utf-8")
QUERY_LIMIT = 2048
"""Characters of a metric's expression: the API's reference of MetricDataQuery."""
PUBLISHED = {
    "AWS/ApiGateway": {"5XXError"},
    "AWS/ApplicationELB": {
        "HTTPCode_ELB_5XX_Count",
        "HTTPCode_Target_5XX_Count",
        "HealthyHostCount",
        "RequestCount",
        "TargetResponseTime",
        "UnHealthyHostCount",
    },
    "AWS/ElastiCache": {"DatabaseMemoryUsagePercentage", "EngineCPUUtilization", "ReplicationLag"},
    "AWS/Kafka": {"KafkaDataLogsDiskUsed", "UnderReplicatedPartitions"},
    "AWS/Lambda": {"Duration", "Errors", "Throttles"},
    "AWS/SQS": {"ApproximateAgeOfOldestMessage", "ApproximateNumberOfMessagesVisible"},
}
"""Namespace -> metrics that AWS publishes in it, by the services' guides, as far as alarms use them."""
TOPIC = {"Fn::If": ["IsNewTopic", {"Ref": "Topic"}, {"Ref": "AlarmTopicArn"}]}
GIVEN_TOPIC = {"Fn::If": ["HasAlarmTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}


@pytest.mark.parametrize(("name", "of_server"), EVERY_ALARM, ids=[name for name, _ in EVERY_ALARM])
def test_an_alarm_says_what_to_do_and_where_and_notifies_when_it_rings_and_when_it_is_over(name, of_server):
    properties = (OF_SERVER if of_server else ALARMS)[name]["Properties"]
    description = properties["AlarmDescription"]
    found, action, link = re.fullmatch(
        r"(.+?)\. (.+): docs/operate/troubleshooting\.md#(\w+)", description
    ).groups()
    assert found
    assert action[0].isupper()
    assert link == name.lower()
    assert len(description) <= 1024
    section = PAGE.partition(f"\n### {name}\n")[2].partition("\n###")[0]
    assert "**Do:**" in section
    assert properties["AlarmActions"] == properties["OKActions"] == (GIVEN_TOPIC if of_server else [TOPIC])
    assert not of_server or f"`{name}`" in PAGE_OF_SERVER


def text_of(expression: Any) -> str:
    """A query, whose parameters may be named in it."""
    return expression["Fn::Sub"] if isinstance(expression, dict) else expression


def watched(node: Any) -> Iterator[tuple[str, str]]:
    """Namespace and name of each metric of AWS in a part of a template, also of those in queries."""
    if isinstance(node, dict):
        if str(node.get("Namespace", "")).startswith("AWS/"):
            yield node["Namespace"], node["MetricName"]
        for each in node.values():
            yield from watched(each)
    elif isinstance(node, list):
        for each in node:
            yield from watched(each)
    elif isinstance(node, str):
        for name, namespace in re.findall(r'SELECT \w+\((\w+)\) FROM (?:SCHEMA\()?"(AWS/\w+)"', node):
            yield namespace, name


def test_alarms_on_services_of_aws_watch_metrics_that_these_publish():
    """An alarm on a metric with another name never rings."""
    files = ("observability", "deployments", "server")
    found = {each for name in files for each in watched(template(f"infra/{name}.yaml")["Resources"])}
    assert found == {(namespace, name) for namespace, names in PUBLISHED.items() for name in names}


@pytest.mark.parametrize("alarm", ["CacheFills", "CacheBusy", "ReplicasBehind"])
def test_full_memory_cpu_and_lag_are_seen_on_each_node_by_itself(alarm):
    """Whatever the number of shards and replicas, and whichever node is the primary."""
    [metric] = ALARMS[alarm]["Properties"]["Metrics"]
    assert metric["Expression"].endswith('FROM "AWS/ElastiCache" GROUP BY CacheClusterId ORDER BY MAX() DESC')


def test_every_threshold_can_be_set_by_whoever_deploys():
    thresholds = {
        each["Properties"]["Threshold"]["Ref"]
        for each in ALARMS.values()
        if isinstance(each["Properties"]["Threshold"], dict)
    }
    passed = MAIN["Resources"]["Observed"]["Properties"]["Parameters"]
    assert thresholds
    for name in thresholds:
        assert passed[name] == {"Ref": name}
        assert MAIN["Parameters"][name]["Default"] == FOUND["Parameters"][name]["Default"]


@pytest.mark.parametrize(
    ("alarm", "condition", "parameter", "exists"),
    [
        ("CacheFills", "HasCache", "CacheName", "IsNewCache"),
        ("CacheBusy", "HasCache", "CacheName", "IsNewCache"),
        ("ReplicasBehind", "HasCache", "CacheName", "IsNewCache"),
        ("PartitionsUnderReplicated", "HasBrokers", "KafkaCluster", "IsNewKafka"),
        ("BrokerDiskFills", "HasBrokers", "KafkaCluster", "IsNewKafka"),
        ("AuthorizerFails", "HasAuthorizer", "AuthorizerFunction", "IsAuthorized"),
    ],
)
def test_an_alarm_exists_where_the_stack_made_what_it_watches(alarm, condition, parameter, exists):
    assert ALARMS[alarm]["Condition"] == condition
    assert FOUND["Conditions"][condition] == {"Fn::Not": [{"Fn::Equals": [{"Ref": parameter}, ""]}]}
    made, _, otherwise = MAIN["Resources"]["Observed"]["Properties"]["Parameters"][parameter]["Fn::If"]
    assert (made, otherwise) == (exists, "")


def test_the_age_of_answers_is_watched_where_the_job_has_no_metrics_here():
    assert ALARMS["AnswersTooOld"]["Condition"] == "HasNoJob"
    assert FOUND["Conditions"]["HasNoJob"] == {"Fn::Not": [{"Condition": "HasJob"}]}
    assert {ALARMS[name]["Condition"] for name in ("StateTooOld", "JobBehind")} == {"HasJob"}
    given = MAIN["Resources"]["Observed"]["Properties"]["Parameters"]["Job"]
    assert given == {"Fn::If": ["HasJobMetrics", "true", "false"]}
    reported = {"Fn::Equals": [{"Ref": "JobMetrics"}, "true"]}
    assert MAIN["Conditions"]["HasJobMetrics"] == {"Fn::Or": [{"Condition": "HasJob"}, reported]}


def test_throttles_of_every_function_that_clients_or_the_queue_need_are_watched():
    watched = {
        each["Properties"]["Dimensions"][0]["Value"]["Ref"]
        for each in ALARMS.values()
        if each["Properties"].get("MetricName") == "Throttles"
    }
    assert watched == {"QueryFunction", "ProduceFunction", "DrainFunction"}


def test_the_disks_of_serverless_brokers_are_nobodys():
    name = template("infra/kafka.yaml")["Outputs"]["ClusterName"]["Value"]
    cluster = template("infra/kafka.yaml")["Resources"]["Cluster"]["Properties"]["ClusterName"]
    assert name == {"Fn::If": ["IsProvisioned", cluster, ""]}


MINUTES = 60
BEATS = dict.fromkeys(range(MINUTES), 60.0)
EVERY_SIXTEEN = dict.fromkeys(range(2, MINUTES, 16), 1.0)
"""Each of two jobs waits for KEYLANE_FENCED_WAIT_S, starts for a minute, and replaces the other."""
OBSERVED = {"Observability": "true", "Job": "FARGATE", "JobImage": "image"}
RUNBOOKS: dict[str, tuple[dict[str, str], dict[str, dict[int, float]], set[str]]] = {
    "the first step of the guide, and a deliberate stop": ({"JobRunning": "false"}, {}, set()),
    "a job that runs": ({}, {"Batches": BEATS}, set()),
    "a release": ({}, {"Batches": BEATS, "Fenced": {5: 1.0}}, set()),
    "a release, and its rollback an hour later": ({}, {"Batches": BEATS, "Fenced": {5: 1, 50: 1}}, set()),
    "a job that ended": ({}, {}, {"JobSilent"}),
    "two jobs that take turns": ({}, {"Batches": BEATS, "Fenced": EVERY_SIXTEEN}, {"WriterFenced"}),
    "a node of the cache that is full": (
        {},
        {"Batches": BEATS, "DatabaseMemoryUsagePercentage": dict.fromkeys(range(10), 90.0)},
        {"CacheFills"},
    ),
}


def rings(alarm: dict[str, Any], metrics: dict[str, dict[int, float]]) -> bool:
    """Whether CloudWatch rings it within an hour, for the metrics that are there, by minute."""
    query = alarm["Metrics"][0]["Expression"] if "Metrics" in alarm else f"({alarm['MetricName']})"
    found = metrics.get(re.search(r"\((\w+)\)", query)[1], {})
    threshold, is_above = float(alarm["Threshold"]), alarm["ComparisonOperator"] == "GreaterThanThreshold"
    is_bad = [
        alarm["TreatMissingData"] == "breaching"
        if minute not in found
        else (found[minute] > threshold if is_above else found[minute] < threshold)
        for minute in range(MINUTES)
    ]
    window = alarm["EvaluationPeriods"]
    ends = range(window, MINUTES + 1)
    return any(sum(is_bad[end - window : end]) >= alarm["DatapointsToAlarm"] for end in ends)


@pytest.mark.parametrize("runbook", RUNBOOKS)
def test_a_runbook_rings_the_alarms_that_it_should(runbook):
    parameters, metrics, wanted = RUNBOOKS[runbook]
    root = ResolvedStack("template.yaml", "keylane", MAIN, OBSERVED | parameters, template)
    [observed] = [each for each in every_stack(root) if each.path == "infra/observability.yaml"]
    alarms = {
        name: each["Properties"]
        for name, each in observed.resources.items()
        if each["Type"] == "AWS::CloudWatch::Alarm"
    }
    assert {name for name, each in alarms.items() if rings(each, metrics)} == wanted


def test_queries_have_no_more_than_the_grammar_of_metrics_insights():
    """Of conditions it has equal and not equal, and no way to join them but AND."""
    for path in sorted((ROOT / "infra").glob("*.yaml")):
        for name, alarm in of_type(template(f"infra/{path.name}"), "AWS::CloudWatch::Alarm").items():
            for each in alarm["Properties"].get("Metrics", ()):
                query = " ".join(text_of(each.get("Expression", "")).split())
                where = re.search(r" WHERE (.+?)(?: GROUP BY .+)?$", query)
                conditions = where[1].split(" AND ") if where else []
                assert all(re.fullmatch(r"""("?)[\w ]+\1 !?= '[^']+'""", one) for one in conditions), name
                assert len(query) <= QUERY_LIMIT
