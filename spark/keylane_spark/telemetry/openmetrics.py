"""The job's metrics for Prometheus, at a port of its own: OpenMetrics, or Prometheus' text format.

Counters are totals since the job started. While the job cannot measure, because Redis is away or it starts
over, `Age` goes on growing; the other gauges stay as they were, and are gone after 150 s without a
measurement.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family

from keylane import __version__
from keylane.errors import BadConfig
from keylane.metrics.catalogue import COUNTER, FORMER_NAMES, JOB
from keylane_spark.telemetry.metrics import JobMetrics

INTERVAL_S = 1.0
"""How often the job measures for the page."""


class JobCollector:
    """Gives the numbers to Prometheus' library at each scrape."""

    def __init__(self, metrics: JobMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Family]:
        """Yield every metric of the job; the ones without a value have no samples."""
        found = self._metrics.series()
        for kind, metrics in JOB.items():
            for name, metric in metrics.items():
                is_counter = metric.kind == COUNTER
                make = CounterMetricFamily if is_counter else GaugeMetricFamily
                family = make(metric.openmetrics, metric.meaning, labels=metric.labels)
                for series in found:
                    if series.kind == kind and (is_counter or name in series.gauges):
                        value = series.totals.get(name, 0) if is_counter else series.gauges[name]
                        family.add_metric(series.labels, value)
                yield family
                if metric.openmetrics in FORMER_NAMES:
                    former = GaugeMetricFamily(
                        FORMER_NAMES[metric.openmetrics], f"Deprecated: {metric.openmetrics}"
                    )
                    for sample in family.samples:
                        former.add_sample(former.name, sample.labels, sample.value)
                    yield former
        metadata = GaugeMetricFamily("keylane_job_metadata", "The job's version", labels=("version",))
        metadata.add_metric((__version__,), 1)
        yield metadata


def serve_metrics(metrics: JobMetrics, host: str, port: int) -> None:
    """Serve the page in a thread of its own until the process ends. Raises BadConfig."""
    registry = CollectorRegistry(auto_describe=False)
    collector: Any = JobCollector(metrics)
    registry.register(collector)
    try:
        start_http_server(port, host, registry)
    except OSError as error:
        raise BadConfig(
            f"[job] metrics_host and metrics_port: cannot listen on {host}:{port}"
            f" ({error.strerror or error}): choose another port, or an address of this machine"
        ) from error
