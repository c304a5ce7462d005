"""Grafana's dashboard and Prometheus' alerts, made from those of CloudWatch in infra/observability.yaml.

`python -m keylane_build.monitoring` writes infra/monitoring/.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from keylane.metrics.catalogue import JOB, METRICS, Metric
from keylane_build.promql import MetricQuery, of_alarms, of_widgets, query_of, read_search
from keylane_build.stack.loading import load_template
from keylane_local.tools import project_root

FOLDER = "infra/monitoring"
DASHBOARD, RULES = "grafana-dashboard.json", "prometheus-rules.yaml"
NOT_IN_PROMETHEUS = {
    "WriterFenced": "a line of the job's log, which no metric counts",
    "ReadsThrottled": "Lambda's own",
    "WritesThrottled": "Lambda's own",
    "DrainThrottled": "Lambda's own",
    "DrainFails": "Lambda's own",
    "AuthorizerFails": "Lambda's own",
    "LogNotDrained": "of SQS",
    "CacheFills": "of ElastiCache; elsewhere Redis' exporter has it",
    "CacheBusy": "of ElastiCache; elsewhere Redis' exporter has it",
    "ReplicasBehind": "of ElastiCache; elsewhere Redis' exporter has it",
    "BrokerDiskFills": "of MSK; elsewhere the brokers' exporter has it",
    "PartitionsUnderReplicated": "of MSK; elsewhere the brokers' exporter has it",
}
"""Alarms that have no rule, and why."""
_WINDOW = "5m"
_SILENT = "JobSilent"
_OPERATORS = {"GreaterThanThreshold": ">", "LessThanThreshold": "<"}
_PER_MINUTE = {"JobRestarts"}
"""Alarms whose threshold is a number in a minute; a rate is in a second."""
_VIEWS = (("Age of views, ms", "Age"), ("Lag of views, records", "Lag"), ("Windows of views", "Windows"))
_WIDTH, _HEIGHT = 8, 6
_HEADER = "# Written by `make generate` from infra/observability.yaml: do not edit. docs/operate/metrics.md\n"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> str:
    """Return the JSON of Grafana's dashboard."""
    template = load_template(project_root() / "infra/observability.yaml")
    [board] = _of_type(template, "AWS::CloudWatch::Dashboard").values()
    widgets = json.loads(board["Properties"]["DashboardBody"]["Fn::Sub"])["widgets"]
    panels = [_panel(each, *_lines_of(each["properties"])) for each in widgets]
    below = max(each["y"] + each["height"] for each in widgets)
    for number, (title, name) in enumerate(_VIEWS):
        place = {"x": number * _WIDTH, "y": below, "width": _WIDTH, "height": _HEIGHT}
        panels.append(_panel(place, title, [_of_view(JOB["view"][name])]))
    place = {"x": 0, "y": below + _HEIGHT, "width": _WIDTH, "height": _HEIGHT}
    panels.append(_panel(place, "Streams: open, and cut off because of slow clients", _of_streams()))
    document = {
        "uid": "keylane",
        "title": "Keylane",
        "tags": ["keylane"],
        "schemaVersion": 39,
        "timezone": "",
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": [{"id": number, **panel} for number, panel in enumerate(panels, 1)],
    }
    return json.dumps(document, indent=2) + "\n"


def rules() -> str:
    """Return the YAML of Prometheus' rules."""
    template = load_template(project_root() / "infra/observability.yaml")
    alarms = _of_type(template, "AWS::CloudWatch::Alarm")
    found = [
        _rule(name, alarm, template["Parameters"])
        for name, alarm in alarms.items()
        if name not in NOT_IN_PROMETHEUS
    ]
    text = yaml.safe_dump({"groups": [{"name": "keylane", "rules": found}]}, sort_keys=False, width=110)
    return _HEADER + str(text)


def _panel(widget: dict[str, Any], title: str, lines: list[tuple[str, str, str]]) -> dict[str, Any]:
    place = {name[0]: widget[name] for name in ("x", "y", "width", "height")}
    return {
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": lines[0][2], "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for number, (expression, legend, _) in enumerate(lines)
        ],
    }


def _lines_of(properties: dict[str, Any]) -> tuple[str, list[tuple[str, str, str]]]:
    """Return the title for a widget, and expression, legend and unit of its lines."""
    title = properties["title"]
    if title in (others := of_widgets()):
        return others[title]
    found = [read_search(each[0]["expression"]) for each in properties["metrics"]]
    is_one_of_many = len(found) > 1
    return title, [(each.promql(), _legend(each, is_one_of_many=is_one_of_many), each.unit) for each in found]


def _legend(query: MetricQuery, *, is_one_of_many: bool) -> str:
    labels = " ".join(f"{{{{{label}}}}}" for label in query.labels)
    name = query.metric.openmetrics.removeprefix("keylane_").replace("_", " ")
    return f"{name} {labels}".rstrip() if is_one_of_many or not labels else labels


def _of_view(metric: Metric) -> tuple[str, str, str]:
    query = MetricQuery(metric, "Sum" if metric.kind == "counter" else "Maximum", ("view",))
    return query.promql(), "{{view}}", query.unit


def _of_streams() -> list[tuple[str, str, str]]:
    is_open, cut = METRICS["StreamsOpen"], METRICS["StreamsCut"]
    return [
        (f"sum by (kind) ({is_open.samples})", "open: {{kind}}", "short"),
        (MetricQuery(cut, "Sum", ()).promql(), "cut off", "cps"),
    ]


def _rule(name: str, alarm: dict[str, Any], parameters: dict[str, Any]) -> dict[str, Any]:
    properties = alarm["Properties"]
    given = properties["Threshold"]
    threshold = parameters[given["Ref"]]["Default"] if isinstance(given, dict) else given
    said, _, runbook = properties["AlarmDescription"].rpartition(": ")
    summary = re.sub(r"\b(Most\w+)\b", lambda match: _shown(match[1], parameters), said)
    return {
        "alert": name,
        "expr": _expression(name, alarm, f"{_OPERATORS[properties['ComparisonOperator']]} {threshold}"),
        "for": f"{properties['EvaluationPeriods']}m",
        "labels": {"severity": "warning"},
        "annotations": {"summary": " ".join(summary.split()), "runbook": _command_of(runbook.strip())},
    }


def _command_of(runbook: str) -> str:
    # Who has the rules from the wheel has the pages there, too.
    return f"keylane help {runbook.removeprefix('docs/operate/').replace('.md#', '#')}"


def _expression(name: str, alarm: dict[str, Any], comparison: str) -> str:
    if name == _SILENT:
        # A job that cannot measure shows no gauges after a while, one that is away shows nothing.
        return f"absent({JOB['topic']['Lag'].samples})"
    query = query_of(alarm)
    found = of_alarms(_WINDOW)[name] if query is None else query.promql(_WINDOW)
    if " or " in found:
        return found
    return f"{found}{' * 60' if name in _PER_MINUTE else ''} {comparison}"


def _shown(parameter: str, parameters: dict[str, Any]) -> str:
    unit = " ms" if parameter.endswith("Ms") else ""
    return f"{parameters[parameter]['Default']}{unit}"


def _of_type(template: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {name: each for name, each in template["Resources"].items() if each["Type"] == kind}


def files() -> Iterator[tuple[str, str]]:
    """Give each file's path and text."""
    yield f"{FOLDER}/{DASHBOARD}", dashboard()
    yield f"{FOLDER}/{RULES}", rules()


def main() -> None:
    """Write the files."""
    (project_root() / FOLDER).mkdir(exist_ok=True)
    for path, text in files():
        (project_root() / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
