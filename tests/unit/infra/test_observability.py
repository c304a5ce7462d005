"""Dashboard and alarms use metrics that the code emits, with the dimensions with which it emits them."""

from __future__ import annotations

import json
import re

from tests.support.cloudformation import of_type, template

from keylane.errors import Fenced
from keylane.metrics.catalogue import JOB, METRICS

FOUND = template("infra/observability.yaml")
ALARMS = of_type(FOUND, "AWS::CloudWatch::Alarm")
NAMESPACE = '"${Namespace}"'
"""That of the stack: another stack's job must not hide that this one is silent."""
GAUGES = {"Lag", "Age", "IncompletePartitions"}
"""Of both topics and views."""


def dimensions_of(name: str) -> set[tuple[str, ...]]:
    """Return the sets of dimensions with which the code emits a metric."""
    found = {tuple(METRICS[name].labels)} if name in METRICS and METRICS[name].is_billed else set()
    return found | {metrics[name].labels for metrics in JOB.values() if name in metrics}


def queried() -> set[tuple[str, tuple[str, ...]]]:
    """Names and dimensions in the alarms' queries, and in the dashboard's searches."""
    found = set()
    for alarm in ALARMS.values():
        for each in alarm["Properties"].get("Metrics", ()):
            if '"AWS/' in str(each["Expression"]):
                continue
            name, schema = re.fullmatch(
                r"SELECT [A-Z]+\((\w+)\) FROM SCHEMA\(([^)]+)\)(?: GROUP BY .+)?",
                each["Expression"]["Fn::Sub"],
            ).groups()
            namespace, *dimensions = schema.replace(" ", "").split(",")
            assert namespace == NAMESPACE
            found.add((name, tuple(dimensions)))
    for widget in dashboard()["widgets"]:
        for each in widget["properties"]["metrics"]:
            if isinstance(each[0], dict):
                place, name = re.match(
                    r"SEARCH\('\{([\w,\"${}]+)\} MetricName=\"(\w+)\"'", each[0]["expression"]
                ).groups()
                namespace, *dimensions = place.split(",")
                assert namespace == NAMESPACE
                found.add((name, tuple(dimensions)))
    return found


def dashboard() -> dict:
    [board] = of_type(FOUND, "AWS::CloudWatch::Dashboard").values()
    return json.loads(board["Properties"]["DashboardBody"]["Fn::Sub"])


def test_every_metric_of_the_dashboard_is_emitted_by_the_code():
    for name, dimensions in queried():
        assert dimensions in dimensions_of(name), name


def test_every_gauge_of_the_job_is_on_the_dashboard():
    assert {name for name, _ in queried()} >= GAUGES


def test_the_alarm_on_replaced_writers_matches_the_jobs_log_line():
    [filtered] = of_type(FOUND, "AWS::Logs::MetricFilter").values()
    words = re.findall(r'"([^"]+)"', filtered["Properties"]["FilterPattern"])
    line = f"keylane: stops: {Fenced('flights.0', 1, 2).by('host:1 since noon')}"
    assert words
    assert all(word in line for word in words)
    [transformation] = filtered["Properties"]["MetricTransformations"]
    alarm = ALARMS["WriterFenced"]["Properties"]
    assert alarm["MetricName"] == transformation["MetricName"]
    assert alarm["Namespace"] == transformation["MetricNamespace"]


def test_job_and_functions_write_to_the_namespace_of_the_stack():
    main = template()
    namespace = {"Fn::Sub": "Keylane/${AWS::StackName}"}
    functions = main["Globals"]["Function"]["Environment"]["Variables"]
    assert functions["KEYLANE_METRICS_NAMESPACE"] == namespace
    assert main["Resources"]["Observed"]["Properties"]["Parameters"]["Namespace"] == namespace
    assert main["Resources"]["Pipeline"]["Properties"]["Parameters"]["MetricsNamespace"] == namespace
    [container] = template("infra/pipeline.yaml")["Resources"]["Task"]["Properties"]["ContainerDefinitions"]
    given = {each["Name"]: each["Value"] for each in container["Environment"]}
    assert given["KEYLANE_METRICS_NAMESPACE"] == {"Ref": "MetricsNamespace"}
    assert given["KEYLANE_JOB_METRICS"] == "emf"


def test_widgets_do_not_overlap():
    places = [(each["x"], each["y"], each["width"], each["height"]) for each in dashboard()["widgets"]]
    cells = [(x + i, y + j) for x, y, w, h in places for i in range(w) for j in range(h)]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_all_functions_log_json_at_a_level_that_keeps_the_metrics():
    """Metrics are lines without a level of their own: Lambda takes them as INFO."""
    logging = template("template.yaml")["Globals"]["Function"]["LoggingConfig"]
    assert logging == {"LogFormat": "JSON", "ApplicationLogLevel": "INFO", "SystemLogLevel": "INFO"}


def test_the_access_log_joins_a_request_with_its_trace_and_its_function():
    [stage] = of_type(template("template.yaml"), "AWS::Serverless::Api").values()
    written = json.loads(stage["Properties"]["AccessLogSetting"]["Fn::If"][1]["Format"])
    assert written["request"] == "$context.requestId"
    assert written["extendedRequest"] == "$context.extendedRequestId"
    assert written["lambdaRequest"] == "$context.integration.requestId"
    assert written["trace"] == "$context.xrayTraceId"
