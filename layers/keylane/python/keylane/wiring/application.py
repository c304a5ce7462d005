"""What every application is built with: what it serves of the API, and its meter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.adapters.aws import references
from keylane.config.api import ApiSettings
from keylane.config.table import API, SETTINGS
from keylane.metrics.meter import Meter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.wiring.runtime import Runtime

_SWITCH, _NAMESPACE = "KEYLANE_METRICS", "KEYLANE_METRICS_NAMESPACE"


def read_api_settings(environment: Mapping[str, str]) -> ApiSettings:
    """Read what is served. Raises SettingsError, SettingsUnavailable."""
    # Of these variables alone: others that are references are fetched when they are needed.
    own = {name: environment[name] for name in API if name in environment}
    return ApiSettings.from_environment(references.resolved(own))


def build_meter(runtime: Runtime, environment: Mapping[str, str]) -> Meter:
    """Return a meter that hands its numbers to the runtime, or one that is off: KEYLANE_METRICS is false.

    A wrong setting is `check_metrics`' to report, at the first request.
    """
    if environment.get(_SWITCH, "").strip().lower() == "false":
        return Meter()
    return Meter(
        runtime.open_metrics(environment.get(_NAMESPACE, "").strip() or SETTINGS[_NAMESPACE].default)
    )


def check_metrics(environment: Mapping[str, str]) -> None:
    """Raise SettingsError where a setting of the meter is wrong."""
    for name in (_SWITCH, _NAMESPACE):
        SETTINGS.read(environment, name)
