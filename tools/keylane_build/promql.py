"""PromQL from the queries and searches of infra/observability.yaml, by the names of the catalogue."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from keylane.metrics.catalogue import COUNTER, HISTOGRAM, JOB, METRICS, Metric
from keylane.model.routes import PRODUCE, QUERY, ROUTES

RATE = "$__rate_interval"
"""Grafana's word for a few scrapes; a rule names its own time."""
_SEARCH = re.compile(r"SEARCH\('\{(.+)\} MetricName=\"(\w+)\"', '(\w+)', 60\)")
_QUERY = re.compile(
    r"SELECT ([A-Z]+)\((\w+)\) FROM SCHEMA\(([^)]+)\)(?: GROUP BY (\w+) ORDER BY \1\(\) DESC)?"
)
_PUSH = "push"


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """A metric, how its values become one (Maximum, Sum, SampleCount or p99), and the labels that stay."""

    metric: Metric
    statistic: str
    labels: Sequence[str]

    @property
    def unit(self) -> str:
        """Grafana's name of the result's unit."""
        if self.statistic in {"Sum", "SampleCount"}:
            return "cps"
        return "ms" if self.metric.unit == "Milliseconds" else "short"

    def promql(self, window: str = RATE) -> str:
        """Return the expression: a rate per second for counts, else a value."""
        by, name = ", ".join(self.labels), self.metric.samples
        clause = f" by ({by})" if by else ""
        if self.metric.kind == HISTOGRAM and self.statistic != "SampleCount":
            return percentile(name, window, [*self.labels])
        if self.metric.kind == HISTOGRAM:
            return f"sum{clause} (rate({name}_count[{window}]))"
        if self.metric.kind == COUNTER:
            return f"sum{clause} (rate({name}[{window}]))"
        return f"max{clause} ({name})"


def percentile(name: str, window: str, labels: Sequence[str] = (), matchers: str = "") -> str:
    """Return the 99th percentile of a histogram."""
    by = ", ".join(["le", *labels])
    return f"histogram_quantile(0.99, sum by ({by}) (rate({name}_bucket{matchers}[{window}])))"


def read_search(expression: str) -> MetricQuery:
    """Return what a search of the CloudWatch dashboard is about."""
    found = _SEARCH.match(expression)
    if found is None:
        raise ValueError(f"not a search: {expression}")
    _, *labels = found[1].split(",")
    return MetricQuery(find_metric(found[2], labels), found[3], labels)


def read_query(expression: str) -> MetricQuery | None:
    """Return what an alarm's query is about; None for one on AWS' own metrics."""
    found = _QUERY.fullmatch(expression)
    if found is None:
        return None
    _, *labels = found[3].replace(" ", "").split(",")
    statistic = "Maximum" if found[1] == "MAX" else "Sum"
    return MetricQuery(find_metric(found[2], labels), statistic, labels)


def find_metric(name: str, labels: Sequence[str]) -> Metric:
    """Return a metric by its name in CloudWatch. Raises KeyError if none has these labels."""
    for table in (METRICS, *JOB.values()):
        if name in table and table[name].labels == tuple(labels):
            return table[name]
    raise KeyError(f"no metric {name} has the labels {', '.join(labels)}")


def request_percentile(function: str, window: str) -> str:
    """Return the 99th percentile of the requests to query or produce, in milliseconds."""
    names = [route.name for route in ROUTES if route.function == function]
    methods = "|".join(f"{_PUSH}/.+" if name == _PUSH else name for name in names)
    return percentile(METRICS["RequestDuration"].samples, window, (), f'{{method=~"{methods}"}}')


def of_widgets(window: str = RATE) -> dict[str, tuple[str, list[tuple[str, str, str]]]]:
    """Return what takes the place of widgets on AWS' metrics, by their title.

    That is a title, and for each line the expression, the legend and the unit.
    """
    refused = f"sum by (code) (rate(keylane_server_refusals_total[{window}]))"
    return {
        "Reads and writes, p99, ms": (
            "Reads and writes, p99, ms",
            [
                (request_percentile(QUERY, window), "reads", "ms"),
                (request_percentile(PRODUCE, window), "writes", "ms"),
            ],
        ),
        "Write-ahead log": (
            "Write-ahead log",
            [
                (_sum("RetriedMessages", window, "reason"), "delivered again: {{reason}}", "cps"),
                (_sum("DeadLetters", window, "reason"), "dead: {{reason}}", "cps"),
            ],
        ),
        "API Gateway": ("Requests that no function answered", [(refused, "{{code}}", "cps")]),
    }


def of_alarms(window: str) -> dict[str, str]:
    """Return what takes the place of alarms on AWS' metrics, up to the comparison."""
    requests, dead = METRICS["RequestDuration"].samples, METRICS["DeadLetters"].samples
    # The first dead letter begins the series, and a rate does not see a beginning.
    begins = f"{dead} unless {dead} offset {window}"
    return {
        "ServerErrors": (
            f'sum(rate({requests}_count{{code=~"5.."}}[{window}])) / sum(rate({requests}_count[{window}]))'
        ),
        "ReadsSlow": request_percentile(QUERY, window),
        "WritesSlow": request_percentile(PRODUCE, window),
        "DeadLettersWait": f"{_sum('DeadLetters', window, 'reason')} > 0 or {begins}",
    }


def _sum(name: str, window: str, *labels: str) -> str:
    return MetricQuery(find_metric(name, labels), "Sum", labels).promql(window)


def query_of(alarm: dict[str, Any]) -> MetricQuery | None:
    """Return what an alarm of the template is about; None if its metric is AWS' own."""
    metrics = alarm["Properties"].get("Metrics")
    return read_query(metrics[0]["Expression"]["Fn::Sub"]) if metrics else None
