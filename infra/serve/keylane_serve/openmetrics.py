"""The page `/metrics`: the functions' metrics for Prometheus. Imported at the first request for it.

OpenMetrics if the client accepts it, else Prometheus' text format. Counters with kprf's names have no suffix
`_total`, so that kprf's dashboards find them; OpenMetrics demands the suffix, so there their type is unknown.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    UnknownMetricFamily,
)
from prometheus_client.exposition import choose_encoder

from keylane import __version__
from keylane.metrics.catalogue import COUNTER, METRICS, OWN
from keylane_serve.function_metrics import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric as Family

    from keylane.metrics.catalogue import Metric
    from keylane_serve.function_metrics import FunctionMetrics, Histogram


def render_page(metrics: FunctionMetrics, accept: str) -> tuple[bytes, str]:
    """Return the page and its content type, the format chosen by the request's Accept header."""
    registry = CollectorRegistry(auto_describe=False)
    collector: Any = _Collector(metrics)
    registry.register(collector)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Collector:
    def __init__(self, metrics: FunctionMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Family]:
        """Yield every metric that has a value, and the front's own two."""
        for name, metric in METRICS.items():
            if name in self._metrics.histograms:
                yield _histogram(metric, self._metrics.histograms[name])
            elif name in self._metrics.numbers:
                yield _numbers(metric, self._metrics.numbers[name])
        meaning = "Requests that no function answered: too large, throttled, timed out, or failed"
        refused = CounterMetricFamily(f"{OWN}front_refusals", meaning, labels=("code",))
        for status, count in self._metrics.refusals.items():
            refused.add_metric((str(status),), count)
        yield refused
        metadata = GaugeMetricFamily(f"{OWN}app_metadata", "The application's version", labels=("version",))
        metadata.add_metric((__version__,), 1)
        yield metadata


def _numbers(metric: Metric, by_labels: dict[tuple[str, ...], float]) -> Family:
    name, meaning = metric.openmetrics, metric.meaning
    make: type[GaugeMetricFamily | CounterMetricFamily | UnknownMetricFamily] = GaugeMetricFamily
    if metric.kind == COUNTER:
        make = CounterMetricFamily if metric.is_own else UnknownMetricFamily
    family = make(name, meaning, labels=metric.labels)
    for labels, number in by_labels.items():
        family.add_metric(labels, number)
    return family


def _histogram(metric: Metric, by_labels: dict[tuple[str, ...], Histogram]) -> Family:
    family = HistogramMetricFamily(metric.openmetrics, metric.meaning, labels=metric.labels)
    bounds = [*map(str, BOUNDS), "+Inf"]
    for labels, histogram in by_labels.items():
        below = itertools.accumulate(histogram.counts)
        family.add_metric(labels, list(zip(bounds, below, strict=True)), histogram.total)
    return family
