"""Values as columns -> what the indexes of their fields have of them: see `keylane.state.field_index`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from keylane.formats.change_events import parse_event
from keylane.formats.json_text import parse_verbatim
from keylane.model.records import Options
from keylane.state.field_index import indexes_of


def field_entries(values: pa.BinaryArray, options: Options) -> tuple[pa.BinaryArray, int]:
    """Return the entries of each value, empty for none, and how many values of fields no index can have.

    A value that is not JSON counts as one. One that is null or empty (a tombstone, a value that is left in
    Kafka) has no fields.
    """
    indexes = indexes_of(options)
    read: Callable[[str], Any] = parse_verbatim if options.envelope == "none" else _row
    found, invalid = [], 0
    for value in values.to_pylist():
        if not value:
            found.append(b"")
            continue
        try:
            document = read(value.decode())
        except ValueError:
            found.append(b"")
            invalid += 1
            continue
        entries, odd = indexes.entries(document)
        found.append(entries)
        invalid += odd
    return pa.array(found, pa.binary()), invalid


def _row(text: str) -> Any:
    """The row of a change event. Raises ValueError."""
    row = parse_event(text).row
    return None if row is None else parse_verbatim(row)
