"""The project's own files: those of a checkout, without what tools and builds have made in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
MADE = ("dist", "build", "local/localstack-process-executor/build")
"""Folders that builds make; those that begin with a dot are left out too, but for .github."""


def project_files(suffix: str) -> Iterator[Path]:
    """Yield the files whose names end with `suffix`, in no order."""
    made = [ROOT / each for each in MADE]
    for name, folders, files in os.walk(ROOT):
        folder = Path(name)
        folders[:] = [
            each
            for each in folders
            if folder / each not in made and (not each.startswith(".") or each == ".github")
        ]
        yield from (folder / each for each in files if each.endswith(suffix))
