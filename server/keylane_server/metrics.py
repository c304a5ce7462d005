"""The server's metrics in Prometheus' library: of one process, or of several by the library's own files.

With several processes METRICS_FOLDER is set before the library is imported; each process then writes its
numbers there, and any of them can add them up. The files of a process that has ended stay, so that no counter
goes back; its gauges do not count.

This is the only module that touches the private buckets and the sum of a `Histogram`: the library adds one
value at a time, and a request may write ten thousand records. If a release renames them, the first sample
raises AttributeError, and tests/unit/server/test_metrics.py fails.
"""

from __future__ import annotations

import bisect
import os
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from keylane import __version__
from keylane.metrics.catalogue import COUNTER, FORMER_NAMES, HISTOGRAM, METRICS
from keylane_server.options import METRICS_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keylane.metrics.emf import EmfLog

BOUNDS = (0.25, 0.5, 1.0, 2.5, *(5.0 * 2**number for number in range(14)))
"""Upper bounds of the buckets in milliseconds, up to 41 seconds; kprf has those from 5 to 80."""
_OF_PROCESS = re.compile(r"gauge_live\w*_(\d+)\.db")


class ServerMetrics:
    """See `MetricSink`, for any thread. `refused` counts requests that the server itself answers.

    `emf`: gets the same numbers, and writes them with `write_lines`; None for the page alone.
    """

    def __init__(self, emf: EmfLog | None = None) -> None:
        self._emf = emf
        self._emf_lock = threading.Lock()
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry(auto_describe=False)
        self._metrics: dict[str, Counter | Gauge | Histogram] = {}
        meaning = "Requests that the server refused: without a token, too large, or more than it can take"
        self._refusals = Counter("keylane_server_refusals", meaning, ("code",), registry=self._registry)

    def add_number(self, metric: str, labels: tuple[str, ...], value: float) -> None:
        """See `MetricSink.add_number`."""
        found = self._series(metric, labels)
        if isinstance(found, Counter):
            found.inc(value)
        else:
            found.set(value)
        if self._emf is not None:
            with self._emf_lock:
                self._emf.add_number(metric, labels, value)

    def add_samples(self, metric: str, labels: tuple[str, ...], samples: Sequence[tuple[float, int]]) -> None:
        """See `MetricSink.add_samples`."""
        found = self._series(metric, labels)
        for value, times in samples:
            found._sum.inc(value * times)  # noqa: SLF001 (see the module's docstring)
            found._buckets[bisect.bisect_left(BOUNDS, value)].inc(times)  # noqa: SLF001
        if self._emf is not None:
            with self._emf_lock:
                self._emf.add_samples(metric, labels, samples)

    def flush(self) -> None:
        """See `MetricSink.flush`: nothing is kept back from the page."""

    def write_lines(self) -> None:
        """Write the lines of what was added since the last ones."""
        if self._emf is not None:
            with self._emf_lock:
                self._emf.flush()

    def count_refusal(self, status: int) -> None:
        """Count a request that the server refused."""
        self._refusals.labels(str(status)).inc()

    def render_page(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its content type, the format chosen by the request's Accept header."""
        encode, content_type = choose_encoder(accept)
        page = CollectorRegistry(auto_describe=False)
        folder = os.environ.get(METRICS_FOLDER)
        collector: Any = _Page(_of_all_processes(Path(folder)) if folder else self._registry)
        page.register(collector)
        return encode(page), content_type

    def _series(self, name: str, labels: tuple[str, ...]) -> Any:
        found = self._metrics.get(name)
        if found is None:
            found = self._metrics[name] = self._make(name)
        return found.labels(*labels) if labels else found

    def _make(self, name: str) -> Counter | Gauge | Histogram:
        metric = METRICS[name]
        described = metric.openmetrics, metric.meaning, metric.labels
        if metric.kind == HISTOGRAM:
            return Histogram(*described, registry=self._registry, buckets=BOUNDS)
        if metric.kind == COUNTER:
            return Counter(*described, registry=self._registry)
        mode: Any = "livesum" if metric.is_summed else "livemostrecent"
        return Gauge(*described, registry=self._registry, multiprocess_mode=mode)


class _Page:
    """What the page shows: the metrics of a registry, some under their former names, too, and the version."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Family]:
        """Yield every metric that has a value."""
        for family in sorted(self._registry.collect(), key=lambda each: each.name):
            yield family
            if family.name in FORMER_NAMES:
                yield _with_former_name(family)
        metadata = GaugeMetricFamily("keylane_app_metadata", "The application's version", labels=("version",))
        metadata.add_metric((__version__,), 1)
        yield metadata


def _with_former_name(family: Family) -> Family:
    # Former counters have no `_total`, without which OpenMetrics has no counters: their type is unknown.
    is_counter = family.type == COUNTER
    name = FORMER_NAMES[family.name]
    renamed = Family(name, f"Deprecated: {family.name}", "unknown" if is_counter else family.type)
    for sample in family.samples:
        suffix = "" if is_counter else sample.name.removeprefix(family.name)
        renamed.add_sample(f"{name}{suffix}", sample.labels, sample.value)
    return renamed


def _of_all_processes(folder: Path) -> CollectorRegistry:
    """Return the sum over all processes; of a gauge that is not summed, its last value in one that runs."""
    for file in folder.iterdir():
        found = _OF_PROCESS.fullmatch(file.name)
        if found and not _runs(int(found[1])):
            mark_process_dead(int(found[1]), str(folder))  # type: ignore[no-untyped-call]
    registry = CollectorRegistry(auto_describe=False)
    MultiProcessCollector(registry, str(folder))  # type: ignore[no-untyped-call]
    return registry


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
