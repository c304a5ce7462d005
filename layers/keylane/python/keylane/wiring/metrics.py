"""The meter of a function."""

from __future__ import annotations

import os

from keylane.config.table import SETTINGS
from keylane.metrics.meter import Meter, write_to_stdout


def build_meter() -> Meter:
    """Return a meter that writes to the function's log, or one that is off where KEYLANE_METRICS is false."""
    is_off = os.environ.get("KEYLANE_METRICS", "").strip().lower() == "false"
    return Meter(None if is_off else write_to_stdout)


def check_metrics() -> None:
    """Raise SettingsError where KEYLANE_METRICS is neither true nor false."""
    SETTINGS.read(os.environ, "KEYLANE_METRICS")
