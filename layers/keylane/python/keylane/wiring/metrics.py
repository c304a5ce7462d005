"""The meter of a function: on from its init phase, unless the settings say otherwise."""

from __future__ import annotations

import os

from keylane.config.env import switch
from keylane.metrics.meter import METER


def start_metrics() -> None:
    """KEYLANE_METRICS, true by default: the functions' numbers in their logs, from the first request on."""
    if os.environ.get("KEYLANE_METRICS", "").strip().lower() == "false":
        METER.stop()
    else:
        METER.start()


def check_metrics() -> None:
    """Raise SettingsError where the variable is neither true nor false."""
    switch(os.environ, "KEYLANE_METRICS", default=True)
