"""`/metrics`: what the functions told, as Prometheus and others read it. Imported when somebody asks for it.

OpenMetrics where the client takes it, else Prometheus' text. Counters that have kprf's names have no
`_total`, so that its dashboards find them; to OpenMetrics, where a counter must, they are of unknown type.
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
from keylane.metrics.catalogue import COUNTER, METRICS
from keylane_local.front.measures import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric as Family

    from keylane.metrics.catalogue import Metric
    from keylane_local.front.measures import Histogram, Measures

OWN = "keylane_"


def page(measures: Measures, accept: str) -> tuple[bytes, str]:
    """The page, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    told: Any = _Told(measures)
    registry.register(told)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Told:
    def __init__(self, measures: Measures) -> None:
        self._measures = measures

    def collect(self) -> Iterator[Family]:
        """Every metric that was told at least once."""
        for name, metric in METRICS.items():
            if name in self._measures.histograms:
                yield _histogram(metric, self._measures.histograms[name])
            elif name in self._measures.numbers:
                yield _numbers(metric, self._measures.numbers[name])
        meaning = "Requests that no function answered: too large, throttled, timed out, or failed"
        refused = CounterMetricFamily(f"{OWN}front_refusals", meaning, labels=("code",))
        for status, count in self._measures.refusals.items():
            refused.add_metric((str(status),), count)
        yield refused
        metadata = GaugeMetricFamily(f"{OWN}app_metadata", "The application's version", labels=("version",))
        metadata.add_metric((__version__,), 1)
        yield metadata


def _numbers(metric: Metric, by_labels: dict[tuple[str, ...], float]) -> Family:
    name, meaning = metric.openmetrics, metric.meaning
    make: type[GaugeMetricFamily | CounterMetricFamily | UnknownMetricFamily] = GaugeMetricFamily
    if metric.kind == COUNTER:
        make = CounterMetricFamily if name.startswith(OWN) else UnknownMetricFamily
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
