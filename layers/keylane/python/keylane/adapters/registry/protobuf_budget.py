"""What a Protobuf value may become: fields and characters are counted before anything is made of it.

Two bytes are an empty message, and its JSON has every field without presence: a value of 40 kB and a schema
of 2,000 fields are 800 MB of JSON. One byte is the number of an enum's symbol, and its JSON is the symbol's
name. So the bytes are walked first. A value that is too small for its schema to exceed a limit is not walked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from keylane.formats.avro_primitives import OUTPUT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

FIELDS_LIMIT = 500_000
"""Fields of all messages of a value, set or not: a second or two of work."""
_VARINT, _FIXED64, _LENGTH, _START, _END, _FIXED32 = range(6)
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_ANY = "google.protobuf.Any"
_EMPTY_MESSAGE_BYTES = 2
_FIELD_CHARACTERS = 8  # of a field beside its name: quotes, colon, comma, a default value
_DEPTH_LIMIT = 100  # as in Protobuf's parsers


class _Size(NamedTuple):
    """What one message adds to the JSON: its fields, and the characters of their names."""

    fields: int
    characters: int


class Budget:
    """The limits for values of one schema; each type's size is computed once."""

    def __init__(self, file: FileDescriptor) -> None:
        self._sizes: dict[str, _Size] = {}
        self._symbols: dict[str, int] = {}
        types = list(_types_of(file))
        self.extensions = {
            (each.containing_type.full_name, each.number): each for each in _extensions_of(file, types)
        }
        """Those that the schema knows, by what they extend and their numbers."""
        self.may_hide = any(map(_may_hide, types))
        """Whether a message may have data that its fields do not show."""
        sizes = list(map(self.size, types))
        fields, characters = (max(counts, default=0) for counts in zip(*sizes, strict=True) or ((), ()))
        self.largest = _Size(fields, characters)
        fields_of_all = [*self.extensions.values(), *(field for each in types for field in each.fields)]
        self.symbol = max(map(self.longest_symbol, fields_of_all), default=0)

    def check(self, descriptor: Descriptor, data: bytes) -> None:
        """Raise ValueError for a value of the type that has too many fields, or becomes too much JSON."""
        worst = _Count(self)
        try:
            worst.add_opaque(len(data))
        except ValueError:
            _Count(self).walk(descriptor, data, 0, 0)

    def size(self, descriptor: Descriptor) -> _Size:
        """The size of a message of the type; a map's entry that lacks its value has an empty message."""
        found = self._sizes.get(descriptor.full_name)
        if found is None:
            own = list(descriptor.fields)
            characters = sum(
                len(each.json_name) + _FIELD_CHARACTERS + self.longest_symbol(each) for each in own
            )
            found = _Size(len(own), characters)
            if descriptor.GetOptions().map_entry and own[1].message_type is not None:
                # No entry's value is an entry: this ends. A thousand maps may have the same large message.
                inner = self.size(own[1].message_type)
                found = _Size(found.fields + inner.fields, characters + inner.characters)
            self._sizes[descriptor.full_name] = found
        return found

    def longest_symbol(self, field: FieldDescriptor) -> int:
        """The characters of the longest name of the field's enum, 0 for another type."""
        enum = field.enum_type
        if enum is None:
            return 0
        found = self._symbols.get(enum.full_name)
        if found is None:
            found = self._symbols[enum.full_name] = max(len(each.name) for each in enum.values)
        return found


class _Count:
    """One value's fields and characters. What is not a message counts as nothing: the parser refuses it."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._fields = FIELDS_LIMIT
        self._characters = OUTPUT_LIMIT

    def walk(self, descriptor: Descriptor | None, data: bytes, at: int, depth: int) -> int:
        """Count a message, of which None is known in an unknown group; return where it ends."""
        if depth > _DEPTH_LIMIT:
            raise ValueError("the value is nested too deeply")
        if descriptor is not None:
            self._spend(*self._budget.size(descriptor))
        by_number = {} if descriptor is None else descriptor.fields_by_number
        while at < len(data):
            tag, at = _varint(data, at)
            kind, field = tag & 7, by_number.get(tag >> 3)
            if field is None and descriptor is not None and descriptor.is_extendable:
                field = self._budget.extensions.get((descriptor.full_name, tag >> 3))
            if kind == _END:
                break
            if kind == _START:
                at = self.walk(None if field is None else field.message_type, data, at, depth + 1)
            elif kind == _VARINT:
                _, at = _varint(data, at)
                if field is not None:
                    self._spend(0, self._budget.longest_symbol(field))
            elif kind == _LENGTH:
                length, at = _varint(data, at)
                self._bytes(descriptor, field, data[at : at + length], depth)
                at += length
            else:
                at += _FIXED_BYTES.get(kind, len(data))
        return at

    def add_opaque(self, length: int) -> None:
        """Count bytes that may hold any message of the schema."""
        largest, messages = self._budget.largest, length // _EMPTY_MESSAGE_BYTES + 1
        self._spend(messages * largest.fields, messages * largest.characters + length * self._budget.symbol)

    def _bytes(
        self, descriptor: Descriptor | None, field: FieldDescriptor | None, data: bytes, depth: int
    ) -> None:
        if descriptor is None:
            return
        if field is None:
            if descriptor.is_extendable:
                self.add_opaque(len(data))
        elif field.message_type is not None:
            self.walk(field.message_type, data, 0, depth + 1)
        elif descriptor.full_name == _ANY:
            self.add_opaque(len(data))
        elif field.enum_type is not None:
            self._spend(0, len(data) * self._budget.longest_symbol(field))

    def _spend(self, fields: int, characters: int) -> None:
        self._fields -= fields
        self._characters -= characters
        if self._fields < 0:
            raise ValueError(f"the value's messages have more than {FIELDS_LIMIT} fields, set or not")
        if self._characters < 0:
            raise ValueError(f"the value's JSON has more than {OUTPUT_LIMIT} characters")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a position, and the position behind it."""
    found = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 (the last byte of a varint)
            break
        shift += 7
        if shift > 63:  # noqa: PLR2004 (no integer is longer: the parser refuses it)
            return 0, len(data)
    return found, at


def _may_hide(descriptor: Descriptor) -> bool:
    enums = (each.enum_type for each in descriptor.fields)
    return descriptor.is_extendable or any(enum is not None and enum.is_closed for enum in enums)


def _extensions_of(file: FileDescriptor, types: Iterable[Descriptor]) -> Iterator[FieldDescriptor]:
    """All extensions of the file, of the files that it imports, and within these types of them."""
    for each in _files_of(file):
        yield from each.extensions_by_name.values()
    for found in types:
        yield from found.extensions


def _types_of(file: FileDescriptor) -> Iterator[Descriptor]:
    """All message types of the file and of the files that it imports."""
    for each in _files_of(file):
        types = list(each.message_types_by_name.values())
        while types:
            found = types.pop()
            yield found
            types.extend(found.nested_types)


def _files_of(file: FileDescriptor) -> Iterator[FileDescriptor]:
    files, seen = [file], {file.name}
    while files:
        each = files.pop()
        yield each
        imported = [one for one in each.dependencies if one.name not in seen]
        seen.update(one.name for one in imported)
        files.extend(imported)
