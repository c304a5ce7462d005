"""The job's metrics in CloudWatch's embedded metric format: one line for each topic, view and index.

A log group takes the lines from the job's output, and CloudWatch makes metrics of them
(https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format.html).
"""

import json
from collections.abc import Callable, Mapping

from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from keylane.metrics.catalogue import COUNTER, JOB, labels_of
from keylane_spark.telemetry.metrics import MetricSeries

NAMESPACE = "Keylane"
INTERVAL_S = 10.0


class EmfLines:
    """Writes lines in which a counter is what was added since the line before."""

    def __init__(self, write: Callable[[str], None], namespace: str = NAMESPACE) -> None:
        self._write = write
        self._namespace = namespace
        self._written: dict[tuple[str, ...], Mapping[str, int]] = {}

    def __call__(self, found: list[MetricSeries]) -> None:
        """Write a line for each that is still served, or has counted something."""
        for series in found:
            name = series.kind, *series.labels
            before = self._written.get(name, {})
            added = {count: total - before.get(count, 0) for count, total in series.totals.items()}
            self._written[name] = series.totals
            if series.gauges or any(added.values()):
                self._write(self._line(series, added))

    def _line(self, series: MetricSeries, added: Mapping[str, int]) -> str:
        metrics = EphemeralMetrics(namespace=self._namespace)
        for label, value in zip(labels_of(series.kind), series.labels, strict=True):
            metrics.add_dimension(label, value)
        for name, metric in JOB[series.kind].items():
            unit = MetricUnit(metric.unit)
            if metric.kind == COUNTER:
                metrics.add_metric(name, unit, added.get(name, 0))
            elif name in series.gauges:
                metrics.add_metric(name, unit, series.gauges[name])
        return json.dumps(metrics.serialize_metric_set())
