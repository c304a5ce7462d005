"""A hook of hatchling: the wheel gets the files of the checkout that its commands read (`shipped`).

An editable installation reads them in the checkout.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "keylane_local/shipped"


class ShippedFiles(BuildHookInterface):
    """Adds what each pattern of `shipped` finds below FOLDER."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before a wheel is built. Raises FileNotFoundError for a pattern that finds nothing."""
        for pattern in self.config["shipped"] if version == "standard" else ():
            found = sorted(Path(self.root).glob(pattern))
            if not found:
                raise FileNotFoundError(f"pyproject.toml ships {pattern}, and there is none")
            for path in found:
                relative = path.relative_to(self.root).as_posix()
                build_data["force_include"][relative] = f"{FOLDER}/{relative}"
