"""What a function serves of the API."""

from __future__ import annotations

import os

from keylane.adapters.aws import references
from keylane.config.api import ApiSettings
from keylane.config.table import API


def read_api_settings() -> ApiSettings:
    """Read the settings from the environment. Raises SettingsError, SettingsUnavailable."""
    # Of these variables alone: others that are references are fetched when they are needed.
    own = {name: value for name, value in os.environ.items() if name in API}
    return ApiSettings.from_environment(references.resolved(own))
