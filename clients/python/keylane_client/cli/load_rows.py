"""Rows of CSV, JSON lines and Parquet files, one after the other, each with its number."""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from keylane_client.cli.errors import BadArgument
from keylane_client.cli.parquet import ArrowValues, quote, require_pyarrow
from keylane_client.cli.printing import printable
from keylane_client.json_text import parse_exactly, render_exactly

if TYPE_CHECKING:
    from rich.progress import Progress

LONGEST_CELL = 2**31 - 1
"""Characters. By default a longer one than 131,072 ends its row, and what its lines had would be rows."""
FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a file. `location`: its line or row, for people. `fault`: why it cannot be read, else None."""

    location: str
    values: dict[str, Any]
    fault: str | None = None


Rows = Iterator[Row]
OpenText = Callable[[], TextIO]
"""Opens the file as UTF-8; what is read of it is progress."""


def open_with_progress(file: Path, progress: "Progress") -> OpenText:
    """Return what opens a file of text, and shows how much of it has been read."""

    def open_text() -> TextIO:
        opened: Any = progress.open(
            file, "rt", encoding="utf-8-sig", newline="", description=printable(file.name)
        )
        return opened  # type: ignore[no-any-return]

    return open_text


def format_of(path: Path, given: str | None) -> str:
    """Return `csv`, `jsonl` or `parquet`. Raises BadArgument for a name that does not say."""
    found = given or FORMATS.get(path.suffix.lower())
    if found is None:
        raise BadArgument(f"{path.name} does not end in {', '.join(FORMATS)}: say what it is with --format")
    return found


def read_csv(open_text: OpenText) -> Rows:
    """Read rows below a header line; all values are strings, an empty one is left out."""
    csv.field_size_limit(LONGEST_CELL)
    with open_text() as file:
        reader = csv.DictReader(file, strict=True)
        try:
            names = list(reader.fieldnames or ())
        except csv.Error as error:
            raise BadArgument(f"the header line can't be read: {error}") from error
        if not names:
            raise BadArgument("the file has no header line")
        _refuse_twice(names)
        while True:
            try:
                row = next(reader, None)
            except csv.Error as error:
                yield Row(f"line {reader.line_num}", {}, str(error))
                continue
            if row is None:
                return
            location = f"line {reader.line_num}"
            if None in row:
                yield Row(location, {}, f"it has more than the header's {len(names)} fields")
            elif None in row.values():
                yield Row(location, {}, f"it has fewer than the header's {len(names)} fields")
            else:
                yield Row(location, {name: value for name, value in row.items() if value != ""})


def read_json_lines(open_text: OpenText) -> Rows:
    """Read one JSON object a line, whose numbers keep their digits; empty lines are skipped."""
    with open_text() as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                found = parse_exactly(line)
            except (ValueError, RecursionError) as error:
                yield Row(f"line {number}", {}, f"it is not JSON: {error}")
                continue
            fault = None if isinstance(found, dict) else "it is not a JSON object"
            yield Row(f"line {number}", found if fault is None else {}, fault)


def read_parquet(path: Path) -> Rows:
    """Read rows, whose values are those of `ArrowValues`."""
    pa, parquet = require_pyarrow()
    try:
        file = parquet.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise BadArgument(f"{path} is not a Parquet file: {error}") from error
    _refuse_twice(file.schema_arrow.names)
    values, number = ArrowValues(pa), 0
    with file:
        for batch in file.iter_batches(batch_size=1000):
            for row in values.rows(batch):
                number += 1
                location = f"row {number}"
                yield Row(location, {}, row) if isinstance(row, str) else Row(location, row)


def render_value(values: dict[str, Any]) -> bytes:
    """Return a row as JSON; bytes are base64. Raises ValueError for NaN and the infinities."""
    return render_exactly(values, quote).encode()


def render_key(value: Any) -> str | bytes:
    """Return a key: text and bytes as they are, all else as JSON without spaces, as typed keys are."""
    return value if isinstance(value, (str, bytes)) else render_exactly(value, quote, space="")


def _refuse_twice(names: Sequence[str]) -> None:
    """Raise BadArgument where two columns have one name: only one of them would be written."""
    for name in filter(None, names):
        if names.count(name) > 1:
            raise BadArgument(f"the file has two columns {name!r}")
