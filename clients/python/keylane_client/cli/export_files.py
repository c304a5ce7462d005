"""Files of a topic's records: JSON lines, which `keylane import` reads, and tables of CSV and Parquet."""

import base64
import csv
import tempfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

from keylane_client import Record, parse_exactly
from keylane_client.cli.errors import BadArgument, CommandFailed
from keylane_client.cli.parquet import require_pyarrow
from keylane_client.cli.printing import render_json

MOST_COLUMNS = 2_000
"""Of a table: a field each, of all records."""
_BATCH_ROWS = 10_000
_BOOLEAN, _INTEGER, _WIDE, _NUMBER, _TEXT = "boolean", "integer", "wide integer", "number", "text"
_INT64, _EXACT_IN_DOUBLE = range(-(2**63), 2**63), range(-(2**53), 2**53 + 1)
LEFT_IN_KAFKA = "left-in-kafka"


class RecordFile(Protocol):
    """A file that records are written to; it is complete once `finish` returns."""

    def add(self, record: Record) -> None:
        """Write a record. Raises CommandFailed for one that has no place in the file."""

    def finish(self) -> None:
        """Write what is left."""

    def close(self) -> None:
        """Close what is open, whether the file is complete or not."""


def line_of_record(record: Record) -> str:
    """Return a record as a line, which has all that `record_of_line` needs."""
    is_binary = isinstance(record.key, bytes)
    line: dict[str, Any] = {"key": _base64(record.key) if is_binary else record.key}
    if is_binary:
        line["key_format"] = "base64"
    value = _base64(record.value) if record.value_format == "base64" else record.value
    line |= {"value": value, "value_format": record.value_format}
    if record.timestamp_ms is not None:
        line["timestamp"] = record.timestamp_ms
    return render_json({**line, "position": str(record.position)})


class LinesFile:
    """JSON lines: key, value, how both are written, timestamp and position."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", newline="\n")

    def add(self, record: Record) -> None:
        """See `RecordFile`."""
        self._file.write(line_of_record(record) + "\n")

    def finish(self) -> None:
        """See `RecordFile`."""
        self._file.flush()

    def close(self) -> None:
        """See `RecordFile`."""
        self._file.close()


class TableFile:
    """A table: the key, and a column for each field of the values, of all records.

    What the columns are is known once all records are: until then the rows are in a temporary file beside.
    Values that are no JSON objects are in the column `value`. `write`: writes the table.
    """

    def __init__(self, path: Path, key: str, write: "Callable[[Path, TableRows], None]") -> None:
        self._path = path
        self._key = key
        self._write = write
        self._rows = TableRows(path.parent, key)

    def add(self, record: Record) -> None:
        """See `RecordFile`."""
        is_object = isinstance(record.value, dict)
        fields = record.value if is_object else {"value": record.value}
        key = _plain(record.key)
        if self._key in fields and fields[self._key] != key:
            raise BadArgument(f"the values have a field {self._key!r}: name the key's column with --key")
        self._rows.add({self._key: key, **fields})

    def finish(self) -> None:
        """See `RecordFile`."""
        self._write(self._path, self._rows)

    def close(self) -> None:
        """See `RecordFile`."""
        self._rows.close()


class TableRows:
    """Rows in a temporary file, and the kind of each column so far."""

    def __init__(self, folder: Path, key: str) -> None:
        self.kinds: dict[str, str] = {key: _TEXT}
        self._file = tempfile.TemporaryFile("w+", encoding="utf-8", dir=folder)  # noqa: SIM115 (closed at the end)

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row. Raises CommandFailed for more columns than a table may have."""
        row = {_unicode(name): _plain(value) for name, value in row.items()}
        for name, value in row.items():
            if value is not None:
                self.kinds[name] = _kind_of_both(self.kinds.get(name), _kind_of(value))
        if len(self.kinds) > MOST_COLUMNS:
            raise CommandFailed(f"the values have more than {MOST_COLUMNS} fields: choose some with --fields")
        self._file.write(render_json(row) + "\n")

    def close(self) -> None:
        """Let go of the rows."""
        self._file.close()

    def batches(self) -> Iterator[list[dict[str, Any]]]:
        """Return the rows, some at a time."""
        self._file.seek(0)
        while lines := list(islice(self._file, _BATCH_ROWS)):
            yield list(map(parse_exactly, lines))


def write_csv(path: Path, rows: TableRows) -> None:
    """Write a header line and the rows; what a record lacks is empty."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows.kinds), restval="", extrasaction="ignore")
        writer.writeheader()
        for batch in rows.batches():
            writer.writerows({name: _cell(value) for name, value in row.items()} for row in batch)


def write_parquet(path: Path, rows: TableRows) -> None:
    """Write the rows with the types of their columns. Raises BadArgument without pyarrow."""
    pa, parquet = require_pyarrow()
    integer = dict.fromkeys((_INTEGER, _WIDE), pa.int64())
    types = {_BOOLEAN: pa.bool_(), **integer, _NUMBER: pa.float64(), _TEXT: pa.string()}
    schema = pa.schema([(name, types[kind]) for name, kind in rows.kinds.items()])
    with parquet.ParquetWriter(path, schema) as writer:
        for batch in rows.batches():
            typed = [
                {name: _as_kind(value, rows.kinds.get(name)) for name, value in row.items()} for row in batch
            ]
            writer.write_batch(pa.RecordBatch.from_pylist(typed, schema))


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return _BOOLEAN
    if isinstance(value, int):
        return _INTEGER if value in _EXACT_IN_DOUBLE else _WIDE if value in _INT64 else _TEXT
    return _NUMBER if isinstance(value, (float, Decimal)) and isfinite(float(value)) else _TEXT


def _kind_of_both(kind: str | None, other: str) -> str:
    if kind is None or kind == other:
        return other
    if _WIDE in {kind, other}:  # an id, say, which a double would make another's
        return _WIDE if _INTEGER in {kind, other} else _TEXT
    return _NUMBER if {kind, other} == {_INTEGER, _NUMBER} else _TEXT


def _as_kind(value: Any, kind: str | None) -> Any:
    if value is None or kind is None:
        return None
    if kind == _NUMBER:
        return float(value)
    return value if kind != _TEXT or isinstance(value, str) else render_json(value)


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else render_json(value)


def _unicode(text: str) -> str:
    """Return a text with escapes for halves of surrogate pairs, which JSON has and UTF-8 has not."""
    return text.encode(errors="backslashreplace").decode()


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return _unicode(value)
    return _base64(value) if isinstance(value, bytes) else value


def _base64(data: Any) -> str:
    return base64.b64encode(data).decode()
