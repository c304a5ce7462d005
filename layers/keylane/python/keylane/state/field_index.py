"""What the indexes of a topic's fields have of a record: in its envelope, and as members of sorted sets.

An index is one field, or several together. Indexes have numbers: first all fields in the order of their
names, then those of several fields in the order of theirs.

    entry      number (u8), length (u8), value     in an envelope, by number and value, none twice
    value      the forms of `ordered`; those of several fields with one 00 between each
    member     value, 00, the record's key         in the index's sorted sets, with score 0

A record has no entry in an index without a value for it, and one for each element of `texts`. It has none in
an index of several fields if it lacks one of them, and none at all if they have more than LONGEST_ENTRIES.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from keylane.state import ordered
from keylane.state.field_types import FIELD_TYPES, FieldType

if TYPE_CHECKING:
    from keylane.model.records import Options

LONGEST_ENTRIES = 0xFFFF
"""As many bytes an envelope has for them; a record with more has none."""


class Field(NamedTuple):
    """A field of a topic.

    `path`: through objects of the value. `kind`: one of FIELD_TYPES. `number`: that of its index.
    """

    name: str
    path: tuple[str, ...]
    kind: str
    number: int

    @property
    def type(self) -> FieldType:
        """What its kind says of its values."""
        return FIELD_TYPES[self.kind]

    def values(self, document: Any) -> Sequence[bytes]:
        """Return the forms of its values in a parsed document (`parse_verbatim`).

        Raises NotOrdered for what is not null and not a value of its type.
        """
        found = document
        for name in self.path:
            if type(found) is not dict:
                return ()
            found = found.get(name)
        if found is None:
            return ()
        return self.type.values(found)


class FieldIndex(NamedTuple):
    """An index: of one field, which has its name, or of several."""

    number: int
    name: str
    fields: tuple[Field, ...]


KEYS = FieldIndex(-1, "keys", ())
"""The index of a topic's keys, of no field: its members are keys alone, and no envelope has entries of it."""


class FieldIndexes(NamedTuple):
    """All indexes of a topic, by their numbers, and its fields, which are the first of them."""

    fields: tuple[Field, ...]
    indexes: tuple[FieldIndex, ...]

    def entries(self, document: Any) -> tuple[bytes, int]:
        """Return the entries of a parsed document, and how many fields have what can't be a value of them."""
        invalid = 0
        of_field: list[Sequence[bytes]] = []
        parts: list[bytes] = []
        for field in self.fields:
            try:
                values = field.values(document)
            except ordered.NotOrdered:
                values = ()
                invalid += 1
            of_field.append(values)
            for value in values:
                parts += (HEADS[field.number][len(value)], value)
        for number, _, together in self.indexes[len(self.fields) :]:
            values = [of_field[field.number][0] for field in together if of_field[field.number]]
            if len(values) == len(together):
                value = ordered.END.join(values)
                parts += (HEADS[number][len(value)], value)
        block = b"".join(parts)
        if len(block) > LONGEST_ENTRIES:
            return b"", len(self.fields)
        return block, invalid


HEADS = [[bytes((number, length)) for length in range(256)] for number in range(32)]
"""What an entry begins with, by the number of its index and the length of its value."""


def indexes_of(options: Options) -> FieldIndexes:
    """Return the indexes of a topic with these options."""
    return _indexes(options.fields, options.indexes)


@lru_cache(maxsize=256)
def _indexes(
    fields: tuple[tuple[str, str], ...], together: tuple[tuple[str, tuple[str, ...]], ...]
) -> FieldIndexes:
    own = tuple(
        Field(name, tuple(name.split(".")), kind, number) for number, (name, kind) in enumerate(fields)
    )
    by_name = {field.name: field for field in own}
    indexes = [FieldIndex(field.number, field.name, (field,)) for field in own]
    for name, parts in together:
        indexes.append(FieldIndex(len(indexes), name, tuple(by_name[part] for part in parts)))
    return FieldIndexes(own, tuple(indexes))


def split_entries(entries: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and value of each entry in an envelope."""
    for entry in cut_entries(entries):
        yield entry[0], entry[2:]


def cut_entries(entries: bytes) -> list[bytes]:
    """Return each entry in an envelope, as it is there."""
    found, at = [], 0
    while at < len(entries):
        end = at + 2 + entries[at + 1]
        found.append(entries[at:end])
        at = end
    return found


def values_at(entries: bytes, number: int) -> list[bytes]:
    """Return the values that the entries in an envelope have in one index, in their order."""
    found, at = [], 0
    # Entries are in the order of the numbers.
    while at < len(entries) and (each := entries[at]) <= number:
        end = at + 2 + entries[at + 1]
        if each == number:
            found.append(entries[at + 2 : end])
        at = end
    return found
