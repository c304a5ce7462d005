"""Loads the handlers of the Lambda functions from their folders, which are not packages."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


def load_handler(folder: Path, function: str) -> ModuleType:
    """Return a new module of the function's handler. Raises FileNotFoundError."""
    path = folder / function / "handler.py"
    spec = importlib.util.spec_from_file_location(f"keylane_{function}_handler", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
