"""Whether a process exports spans: OpenTelemetry's own environment variables say so.

Without them nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.adapters.open_telemetry import Tracing

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def is_traced(environment: Mapping[str, str]) -> bool:
    """Return whether the environment names an exporter or a collector."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporters:
        return exporters != "none"
    return any(environment.get(name, "").strip() for name in _ENDPOINTS)


def open_tracing(
    environment: Mapping[str, str], service: str, say: Callable[[str], object]
) -> Tracing | None:
    """Return the tracer of a process, None if it has none. What is wrong is said, and stops nothing."""
    if not is_traced(environment):
        return None
    try:
        from keylane.adapters.open_telemetry import Tracing, load_exporters  # noqa: PLC0415 (extra `otel`)
    except ImportError as error:
        say(f"no traces: the package of {error.name} is not installed: pip install 'keylane[otel]'")
        return None
    try:
        return Tracing(service, partial(load_exporters, environment), say)
    except Exception as error:  # noqa: BLE001 (whatever the SDK rejects: requests do not depend on it)
        say(f"no traces: {error}")
        return None
