"""The meter of a function."""

from __future__ import annotations

import os

from keylane.config.table import SETTINGS
from keylane.metrics.meter import NAMESPACE, Meter
from keylane.wiring import runtime


def build_meter() -> Meter:
    """Return a meter that writes to the function's log, or one that is off where KEYLANE_METRICS is false."""
    is_off = os.environ.get("KEYLANE_METRICS", "").strip().lower() == "false"
    namespace = os.environ.get("KEYLANE_METRICS_NAMESPACE", "").strip() or NAMESPACE
    return Meter(None if is_off else runtime.current().write_metrics, namespace=namespace)


def check_metrics() -> None:
    """Raise SettingsError where a setting of the meter is wrong, which was made without a check."""
    for name in ("KEYLANE_METRICS", "KEYLANE_METRICS_NAMESPACE"):
        SETTINGS.read(os.environ, name)
