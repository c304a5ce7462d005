"""The meter of a function: on from its init phase, unless the settings say otherwise."""

from __future__ import annotations

import os

from keylane.config.table import SETTINGS
from keylane.metrics.meter import Meter, write_to_stdout


def function_meter() -> Meter:
    """The meter of this function, which writes to its log; off where KEYLANE_METRICS is false."""
    is_off = os.environ.get("KEYLANE_METRICS", "").strip().lower() == "false"
    return Meter(None if is_off else write_to_stdout)


def check_metrics() -> None:
    """Raise SettingsError where the variable is neither true nor false."""
    SETTINGS.read(os.environ, "KEYLANE_METRICS")
