"""Grafana's dashboard and Prometheus' rules: what the template makes of them, on metrics that exist."""

from __future__ import annotations

import json

import promql_parser
import pytest
import yaml
from tests.support.cloudformation import ROOT, of_type, template

from keylane.metrics.catalogue import HISTOGRAM, JOB, METRICS
from keylane_build import monitoring, promql

ALARMS = of_type(template("infra/observability.yaml"), "AWS::CloudWatch::Alarm")
RULES = {each["alert"]: each for each in yaml.safe_load(monitoring.rules())["groups"][0]["rules"]}
PANELS = json.loads(monitoring.dashboard())["panels"]
EXPRESSIONS = [each["expr"] for each in RULES.values()] + [
    target["expr"].replace(promql.RATE, "5m") for panel in PANELS for target in panel["targets"]
]


def samples() -> dict[str, set[str]]:
    """The samples that job and functions have, with their labels."""
    found = {"keylane_server_refusals_total": {"code"}}
    for metric in (*METRICS.values(), *(each for table in JOB.values() for each in table.values())):
        if metric.kind == HISTOGRAM:
            found |= {f"{metric.samples}_{suffix}": set(metric.labels) for suffix in ("count", "sum")}
            found[f"{metric.samples}_bucket"] = {*metric.labels, "le"}
        else:
            found[metric.samples] = set(metric.labels)
    return found


def faults(expression: str) -> list[str]:
    """What an expression names and nobody has. Raises ValueError for one that is not PromQL."""
    known, selected, grouped = samples(), [], set()

    def visit(node: object) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            selected.append((node.name, {each.name for each in node.matchers.matchers}))
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier:
            grouped.update(node.modifier.labels)

    promql_parser.walk(promql_parser.parse(expression), visit)
    labels = grouped.union(*(matched for _, matched in selected))
    unknown = [name for name, _ in selected if name not in known]
    return unknown or [
        f"{name}: {label}" for name, _ in selected for label in sorted(labels) if label not in known[name]
    ]


def test_the_stored_files_are_up_to_date():
    for path, text in monitoring.files():
        assert (ROOT / path).read_text(encoding="utf-8") == text, "make generate"


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_is_promql_on_metrics_and_labels_that_exist(expression):
    assert faults(expression) == []


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("sum by (topic) (keylane_topic_delay)", ["keylane_topic_delay"]),
        ("sum by (view) (keylane_topic_lag)", ["keylane_topic_lag: view"]),
        ('keylane_topic_lag{partition="1"} > 1', ["keylane_topic_lag: partition"]),
        ("rate(keylane_topic_records[5m])", ["keylane_topic_records"]),
    ],
)
def test_the_check_finds_what_it_is_for(expression, found):
    assert faults(expression) == found


def test_every_alarm_has_a_rule_or_a_reason_why_not():
    assert RULES.keys() | monitoring.NOT_IN_PROMETHEUS.keys() == ALARMS.keys()
    assert not RULES.keys() & monitoring.NOT_IN_PROMETHEUS.keys()


@pytest.mark.parametrize("name", RULES)
def test_a_rule_says_what_to_do_and_waits_as_long_as_its_alarm(name):
    properties, rule = ALARMS[name]["Properties"], RULES[name]
    assert rule["for"] == f"{properties['EvaluationPeriods'] * properties.get('Period', 60) // 60}m"
    assert rule["annotations"]["runbook"] == f"keylane help troubleshooting#{name.lower()}"
    assert "Most" not in rule["annotations"]["summary"]


def test_thresholds_are_those_of_the_template():
    assert RULES["JobBehind"]["expr"] == "max by (topic) (keylane_topic_lag) > 100000"
    assert RULES["ReadsSlow"]["expr"].endswith(" > 500")
    assert RULES["ServerErrors"]["expr"].endswith(" > 0.01")


def test_each_widget_has_a_panel_in_its_place():
    [board] = of_type(template("infra/observability.yaml"), "AWS::CloudWatch::Dashboard").values()
    widgets = json.loads(board["Properties"]["DashboardBody"]["Fn::Sub"])["widgets"]
    places = [tuple(panel["gridPos"][each] for each in "xywh") for panel in PANELS]
    assert places[: len(widgets)] == [
        (each["x"], each["y"], each["width"], each["height"]) for each in widgets
    ]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
