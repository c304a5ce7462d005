"""Values as columns -> what the indexes of their fields have of them: see `keylane.state.field_index`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from keylane.formats.change_events import parse_event
from keylane.formats.json_text import parse_verbatim
from keylane.model.records import Options
from keylane.state.field_index import indexes_of


class Decode(Protocol):
    """Values in a Schema Registry's wire format -> their JSON; None for null, and for what can't be decoded.

    `are_events`: they are change events. Raises RegistryUnavailable.
    """

    def __call__(self, values: pa.BinaryArray, *, are_events: bool = False) -> Sequence[bytes | None]:
        """Return as many documents as there are values."""


def decode_none(values: pa.BinaryArray, *, are_events: bool = False) -> Sequence[bytes | None]:
    """Return that no value can be decoded."""
    return [None] * len(values)


def field_entries(
    values: pa.BinaryArray, options: Options, decode: Decode = decode_none
) -> tuple[pa.BinaryArray, int]:
    """Return the entries of each value, empty for none, and how many values of fields no index can have.

    `decode`: of values of a Schema Registry. A value that is not JSON, or can't be decoded, counts as one.
    One that is null or empty (a tombstone, a value that is left in Kafka) has no fields.

    Raises RegistryUnavailable.
    """
    indexes, are_events = indexes_of(options), options.envelope != "none"
    read: Callable[[str], Any] = _row if are_events else parse_verbatim
    stored: Sequence[bytes | None] = values.to_pylist()
    documents = decode(values, are_events=are_events) if options.value_format == "registry" else stored
    found, invalid = [], 0
    for value, text in zip(stored, documents, strict=True):
        if not value:
            found.append(b"")
            continue
        try:
            document = read(_text_of(text))
        except ValueError:
            found.append(b"")
            invalid += 1
            continue
        entries, odd = indexes.entries(document)
        found.append(entries)
        invalid += odd
    return pa.array(found, pa.binary()), invalid


def _text_of(document: bytes | None) -> str:
    if document is None:
        raise ValueError("it can't be decoded")
    return document.decode()


def _row(text: str) -> Any:
    """The row of a change event. Raises ValueError."""
    row = parse_event(text).row
    return None if row is None else parse_verbatim(row)
