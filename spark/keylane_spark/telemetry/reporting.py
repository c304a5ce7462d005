"""Where the job's metrics go, as `[job] metrics` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane_spark.telemetry import emf
from keylane_spark.telemetry.metrics import JobMetrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.ports import Clock
    from keylane_spark.config.topics import JobConfig


def begin_reporting(job: JobConfig, clock: Clock, write: Callable[[str], None], namespace: str) -> JobMetrics:
    """Return the metrics, reported from now on. `write` prints lines. Raises BadConfig for a port in use."""
    if job.metrics == "emf":
        return JobMetrics(clock, emf.INTERVAL_S, emf.EmfLines(write, namespace))
    if job.metrics == "none":
        return JobMetrics(clock)
    from keylane_spark.telemetry import openmetrics  # noqa: PLC0415 (few need it)

    metrics = JobMetrics(clock, openmetrics.INTERVAL_S)
    openmetrics.serve_metrics(metrics, job.metrics_host, job.metrics_port)
    return metrics
