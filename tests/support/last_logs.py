"""The report of a test that fails has what servers said last: the ends of the logs written during it."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from keylane_local.process.processes import tail

if TYPE_CHECKING:
    from collections.abc import Generator

LINES = 12
LINE_CHARACTERS = 400
FILES = 12
_IS_LOG = re.compile(r"(?!\d+\.log).*\.log|log")
"""Not Kafka's segments, nor what a database numbers."""
_BEGUN = pytest.StashKey[float]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_BEGUN] = time.time()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        folder = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        for log in written_since(folder, item.stash.get(_BEGUN, 0.0)):
            lines = [line[:LINE_CHARACTERS] for line in tail(log, LINES).splitlines()]
            report.sections.append((f"end of {log}", "\n".join(lines)))
    return report


def written_since(folder: Path, begun_s: float) -> list[Path]:
    """The logs below `folder` with lines from that time or later, in the order of their last lines."""
    found: list[tuple[float, Path]] = []
    for at, _, names in os.walk(folder):  # which passes over what a server removes meanwhile
        for path in (Path(at, name) for name in names if _IS_LOG.fullmatch(name)):
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                if stat.st_size and stat.st_mtime >= begun_s:
                    found.append((stat.st_mtime, path))
    return [path for _, path in sorted(found)][-FILES:]
