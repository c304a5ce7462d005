"""Values as columns -> what the indexes of their fields have of them: see `keylane.state.field_index`.

msgspec reads a document and keeps of it what its fields have, as it is spelled there. The rest is done by
columns, once for each rendering.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keylane.formats.change_events import RowEvent
from keylane.formats.json_text import may_be_deep, members, parse_verbatim
from keylane.formats.schema_times import time_kinds
from keylane.model.records import Options
from keylane.state import ordered
from keylane.state.field_index import HEADS, LONGEST_ENTRIES, Field, FieldIndexes, indexes_of
from keylane_spark.rows.change_events import read_event
from keylane_spark.rows.ordered_forms import forms_of


class Decoded(NamedTuple):
    """What is decoded of each value. `documents`: its JSON, None for null and for what can't be decoded.

    `schemas`: the text of its schema, None where there is none that says more of it.
    """

    documents: list[bytes | None]
    schemas: list[str | None]

    @classmethod
    def of_none(cls, count: int) -> Decoded:
        """Of values that can't be decoded."""
        return cls([None] * count, [None] * count)


class Decode(Protocol):
    """Decodes values in a Schema Registry's wire format.

    `are_events`: they are change events. Raises RegistryUnavailable.
    """

    def __call__(self, values: pa.BinaryArray, *, are_events: bool = False) -> Decoded:
        """Return what is decoded of as many values."""


def decode_none(values: pa.BinaryArray, *, are_events: bool = False) -> Decoded:
    """Return that no value can be decoded."""
    return Decoded.of_none(len(values))


def field_entries(
    values: pa.BinaryArray, options: Options, decode: Decode = decode_none
) -> tuple[pa.BinaryArray, int]:
    """Return the entries of each value, empty for none, and how many values of fields no index can have.

    `decode`: of values of a Schema Registry. A value that is not JSON, or can't be decoded, counts as one.
    One that is null or empty (a tombstone, a value that is left in Kafka) has no fields.

    Raises RegistryUnavailable.
    """
    are_events = options.envelope != "none"
    documents: Sequence[bytes | None] = pc.fill_null(values, b"").to_pylist()
    schemas: Sequence[str | None] = ()
    if options.value_format == "registry":
        stored = documents
        documents, schemas = decode(values, are_events=are_events)
        documents = [each if value else b"" for value, each in zip(stored, documents, strict=True)]
    if are_events:
        events = [_event(document) for document in documents]
        texts = [event.row for event in events]
        schemas = schemas or [event.schema for event in events]
    else:
        texts = [_text(document) for document in documents]
    if all(kind != "time" for _, kind in options.fields):
        return _reader_of(indexes_of(options)).entries(texts)
    if not schemas and any(name.startswith(_PAYLOAD) for name, _ in options.fields):
        schemas = [_schema_beside(text) for text in texts]
    if not any(schemas):
        return _reader_of(indexes_of(options)).entries(texts)
    return _entries_by_schema(texts, schemas, options)


_PAYLOAD = "payload."
"""Begins the fields of values that Connect's JSON converter writes beside their schema."""
_NOTHING, _UNREAD = RowEvent(""), RowEvent(None)


def _text(document: bytes | None) -> str | None:
    """Return the JSON that has the fields, empty if there is none; None for what can't be read."""
    try:
        return None if document is None else document.decode()
    except ValueError:
        return None


def _event(document: bytes | None) -> RowEvent:
    """What a change event says; its row is as of `_text`, empty also where it is deleted."""
    if not document:
        return _UNREAD if document is None else _NOTHING
    try:
        event = read_event(document.decode())
    except ValueError:
        return _UNREAD
    return _NOTHING if event.text is None else event


def _schema_beside(text: str | None) -> str | None:
    try:
        return members(text or "").get("schema")
    except ValueError:
        return None


def _entries_by_schema(
    texts: Sequence[str | None], schemas: Sequence[str | None], options: Options
) -> tuple[pa.BinaryArray, int]:
    """Return as `field_entries`: the times of each document are in the units that its schema says."""
    rows = defaultdict[FieldIndexes, list[int]](list)
    for row, schema in enumerate(schemas):
        rows[_indexes_by_schema(schema, options) if schema else indexes_of(options)].append(row)
    if len(rows) == 1:
        return _reader_of(next(iter(rows))).entries(texts)
    found, invalid = [b""] * len(texts), 0
    for indexes, own in rows.items():
        entries, count = _reader_of(indexes).entries([texts[row] for row in own])
        invalid += count
        for row, each in zip(own, entries.to_pylist(), strict=True):
            found[row] = each
    return pa.array(found, pa.binary()), invalid


@lru_cache(maxsize=256)
def _indexes_by_schema(schema: str, options: Options) -> FieldIndexes:
    """Return a topic's indexes for values of one schema."""
    names = [name for name, kind in options.fields if kind == "time"]
    paths = {name: tuple(name.removeprefix(_PAYLOAD).split(".")) for name in names}
    kinds = time_kinds(schema, [*paths.values()], of_event=options.envelope != "none")
    fields = tuple(
        (name, kinds.get(paths[name], kind) if name in paths else kind) for name, kind in options.fields
    )
    return indexes_of(replace(options, fields=fields))


FEW_DOCUMENTS = 256
"""Fewer are parsed one by one, which takes less than columns do to begin with."""
ABSENT = msgspec.Raw(b"null")
"""Of a field that a document does not have."""


class _FieldColumn(NamedTuple):
    """A field, and where a document that was read has it.

    `attributes`: from the document on. `field`: its path goes on from there.
    """

    attributes: tuple[str, ...]
    field: Field

    def renderings(self, documents: Iterable[Any]) -> pa.DictionaryArray:
        """Return the JSON of each."""
        for attribute in self.attributes:
            documents = [getattr(each, attribute, ABSENT) for each in documents]
        return pa.array([bytes(each) for each in documents], pa.binary()).dictionary_encode()


class _FieldValues(NamedTuple):
    """What a field's index has of each document.

    `entries`: binary. `first`: binary, the first value; null for none. `invalid`: how many can't be values.
    """

    entries: pa.BinaryArray
    first: pa.BinaryArray
    invalid: np.ndarray

    @classmethod
    def of(cls, field: Field, spelled: pa.DictionaryArray) -> _FieldValues:
        """`spelled`: the JSON that each document has."""
        renderings = spelled.dictionary
        forms = pa.nulls(len(renderings), pa.binary()) if field.path else forms_of(field.kind, renderings)
        entries, first, invalid = [], [], np.zeros(len(renderings), np.int64)
        others = forms.is_null()
        for at, rendering in zip(np.flatnonzero(others), renderings.filter(others).to_pylist(), strict=True):
            try:
                values = field.values(parse_verbatim(rendering.decode()))
            except ValueError:
                values, invalid[at] = (), 1
            entries.append(b"".join([HEADS[field.number][len(value)] + value for value in values]))
            first.append(values[0] if values else None)
        of_forms = _entries_at(field.number, forms)
        return cls(
            pc.replace_with_mask(of_forms, others, pa.array(entries, pa.binary())).take(spelled.indices),
            pc.replace_with_mask(forms, others, pa.array(first, pa.binary())).take(spelled.indices),
            invalid.take(spelled.indices),
        )


def _entries_at(number: int, values: pa.BinaryArray) -> pa.BinaryArray:
    """Return the entry of each value in one index, null for none."""
    heads = pa.array(HEADS[number], pa.binary())
    return pc.binary_join_element_wise(heads.take(pc.binary_length(values)), values, b"")


class _FieldReader(NamedTuple):
    """What reads the fields of a topic.

    `nothing`: a document without fields, read.
    """

    indexes: FieldIndexes
    columns: tuple[_FieldColumn, ...]
    decoder: msgspec.json.Decoder[Any]
    nothing: Any

    def entries(self, texts: Sequence[str | None]) -> tuple[pa.BinaryArray, int]:
        """Return as `field_entries`; a text is empty where there is none, None where it can't be read."""
        invalid = texts.count(None)
        if len(texts) < FEW_DOCUMENTS:
            found = [b""] * len(texts)
            alone = {at: text for at, text in enumerate(texts) if text}
        else:
            documents, alone = self._read(texts)
            entries, count = self._entries(documents)
            invalid += count
            if not alone:
                return entries, invalid
            found = entries.to_pylist()
        for at, text in alone.items():
            found[at], count = self._entries_alone(text)
            invalid += count
        return pa.array(found, pa.binary()), invalid

    def _read(self, texts: Sequence[str | None]) -> tuple[list[Any], dict[int, str]]:
        """Return the documents, `nothing` for none, and by their places the texts to parse alone."""
        decode, nothing = self.decoder.decode, self.nothing
        documents, alone = [], {}
        for at, text in enumerate(texts):
            document = nothing
            if text and may_be_deep(text, 0, len(text)):
                alone[at] = text  # msgspec's bound is another one
            elif text:
                try:
                    document = decode(text)
                except (msgspec.MsgspecError, RecursionError):
                    alone[at] = text
            documents.append(document)
        return documents, alone

    def _entries(self, documents: Sequence[Any]) -> tuple[pa.BinaryArray, int]:
        of_field = [_FieldValues.of(column.field, column.renderings(documents)) for column in self.columns]
        together = self.indexes.indexes[len(of_field) :]
        entries = [
            *(values.entries for values in of_field),
            *(
                _entries_at(
                    number,
                    pc.binary_join_element_wise(
                        *(of_field[part.number].first for part in parts), ordered.END
                    ),
                )
                for number, _, parts in together
            ),
        ]
        joined = pc.binary_join_element_wise(*entries, b"", null_handling="replace")
        invalid = np.sum([values.invalid for values in of_field], axis=0)
        too_long = pc.greater(pc.binary_length(joined), LONGEST_ENTRIES)
        return pc.if_else(too_long, b"", joined), int(np.where(too_long, len(of_field), invalid).sum())

    def _entries_alone(self, text: str) -> tuple[bytes, int]:
        """Of one of few, or of what msgspec refuses: it is not valid JSON, or lacks an object with fields."""
        try:
            return self.indexes.entries(parse_verbatim(text))
        except ValueError:
            return b"", 1


@lru_cache(maxsize=256)
def _reader_of(indexes: FieldIndexes) -> _FieldReader:
    shape, places = document_shape([field.path for field in indexes.fields])
    decoder = msgspec.json.Decoder(shape)
    columns = tuple(
        _FieldColumn(attributes, field._replace(path=field.path[len(attributes) :]))
        for field, attributes in zip(indexes.fields, places, strict=True)
    )
    return _FieldReader(indexes, columns, decoder, decoder.decode(b"{}"))


def document_shape(paths: Sequence[tuple[str, ...]]) -> tuple[type[msgspec.Struct], list[tuple[str, ...]]]:
    """Return a class for msgspec that has what is at these paths as JSON, and by which attributes.

    Below a path that ends there are no attributes: what another path has there is in the same JSON.
    """
    fields: list[tuple[str, Any, Any]] = []
    renamed: dict[str, str] = {}
    places: dict[tuple[str, ...], tuple[str, ...]] = {}
    for number, name in enumerate(dict.fromkeys(path[0] for path in paths)):
        attribute = f"field_{number}"
        renamed[attribute] = name
        below = [path[1:] for path in paths if path[0] == name]
        if () in below:
            fields.append((attribute, msgspec.Raw, ABSENT))
            own: list[tuple[str, ...]] = [()] * len(below)
        else:
            shape, own = document_shape(below)
            fields.append((attribute, shape | None, None))
        places |= {(name, *path): (attribute, *place) for path, place in zip(below, own, strict=True)}
    return msgspec.defstruct("Document", fields, rename=renamed, gc=False), [places[path] for path in paths]
