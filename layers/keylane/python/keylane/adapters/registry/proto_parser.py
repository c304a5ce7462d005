"""A parser of .proto files: the descriptor that protoc would produce, as far as decoding values needs it.

A registry returns what was registered: Java's producers register text, and not every registry can convert it
to a descriptor. Services, extensions of options, defaults and all options but `json_name` and `allow_alias`
are skipped. Type names stay as written: the descriptor pool resolves them. A test holds the parser against
the descriptors that protoc has made of many files.

Source: protobuf.dev, "Protocol Buffers Language Specification" for proto2 and proto3, and protoc's parser for
the names of synthetic oneofs.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

_TOKEN = re.compile(
    r"""(?:\s+|//[^\n]*|/\*.*?\*/)*
    (?:(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<open>/\*|["'])
    |(?P<word>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    |(?P<number>-?\s*(?:0[xX][0-9a-fA-F]+|\d[\w.+]*))
    |(?P<sign>[^\s])
    |(?P<end>\Z))""",
    re.VERBOSE | re.DOTALL,
)
_SCALARS = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes"),
        *("uint32", "sfixed32", "sfixed64", "sint32", "sint64"),
    )
}
_OPTIONS = re.compile(r"\.?google\.protobuf\.\w+Options")
"""What most extensions are of. Values have no options, and few texts import what these extend."""
_BYTE_ORDER_MARK = "\ufeff"
_LAST_NUMBER = 536_870_911
_LABELS = {"optional": 1, "required": 2, "repeated": 3}
_CLOSING = {"{": "}", "[": "]", "(": ")", "<": ">"}


def parse(text: str, name: str) -> FileDescriptorProto:
    """The descriptor of a .proto file; `name` is the name by which others import it. Raises ValueError."""
    return _Parser(text, name).file


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self._tokens = _tokens(text.removeprefix(_BYTE_ORDER_MARK))
        self._ahead = next(self._tokens)
        self.file = FileDescriptorProto(name=name, syntax="proto2")
        while self._ahead:
            self._statement()

    def _next(self) -> str:
        word, self._ahead = self._ahead, next(self._tokens, "")
        if not word:
            raise ValueError("the .proto ends within a statement")
        return word

    def _name(self, word: str) -> str:
        """Return the name of a type, or a package, of which this is the first word: it may go on anywhere."""
        word += self._next() if word == "." else ""
        while self._ahead.startswith("."):
            part = self._next()
            word += part + (self._next() if part == "." else "")
        return word

    def _expect(self, wanted: str) -> None:
        word = self._next()
        if word != wanted:
            raise ValueError(f"the .proto has {word[:50]!r} where {wanted!r} is expected")

    def _skip(self) -> None:
        """Skip the rest of a statement: up to its semicolon, or the block that ends it."""
        while (word := self._next()) != ";":
            if word in _CLOSING:
                self._skip_to(_CLOSING[word])
                if word == "{" and self._ahead not in {";", ",", "]"}:
                    return

    def _skip_to(self, closing: str) -> None:
        while (word := self._next()) != closing:
            if word in _CLOSING and word != "<":
                self._skip_to(_CLOSING[word])

    def _statement(self) -> None:
        word = self._next()
        if word in {"syntax", "package", "import"}:
            self._heading(word)
        elif word == "message":
            self._message(self.file.message_type.add(name=self._next()))
        elif word == "enum":
            self._enum(self.file.enum_type.add(name=self._next()))
        elif word == "extend":
            self._extend(self.file.extension)
        elif word != ";":
            if word not in {"option", "service"}:
                raise ValueError(f"the .proto has {word[:50]!r}, which is not supported")
            self._skip()

    def _heading(self, word: str) -> None:
        if word == "syntax":
            self._expect("=")
            self.file.syntax = _unquote(self._next())
        elif word == "package":
            self.file.package = self._name(self._next())
        else:
            kind = self._next() if self._ahead in {"public", "weak"} else ""
            if kind == "public":
                self.file.public_dependency.append(len(self.file.dependency))
            self.file.dependency.append(_unquote(self._next()))
        self._expect(";")

    def _message(self, message: DescriptorProto) -> None:
        entries: list[DescriptorProto] = []
        self._expect("{")
        while self._ahead != "}":
            word = self._next()
            if word == "message":
                self._message(message.nested_type.add(name=self._next()))
            elif word == "enum":
                self._enum(message.enum_type.add(name=self._next()))
            elif word == "oneof":
                self._oneof(message)
            elif word == "extend":
                self._extend(message.extension)
            elif word == "extensions":
                self._extension_ranges(message)
            elif word == "option":
                self._message_option(message)
            elif word == "reserved":
                self._skip()
            elif word != ";":
                self._field(message.field.add(), word, entries)
        self._expect("}")
        _add_synthetic_oneofs(message)
        # Map entries come last: message indexes count the messages of the text, which has none for maps.
        message.nested_type.extend(entries)

    def _message_option(self, message: DescriptorProto) -> None:
        if self._ahead == "message_set_wire_format":
            raise ValueError("the .proto has a message set, which is not supported")
        if self._ahead == "map_entry":
            # Registries that made the text of a descriptor write a map's entries out.
            self._next()
            self._expect("=")
            message.options.map_entry = self._ahead == "true"
        self._skip()

    def _oneof(self, message: DescriptorProto) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._next())
        self._expect("{")
        while self._ahead != "}":
            word = self._next()
            if word == "option":
                self._skip()
            elif word != ";":
                # Some registries write the synthetic oneof of an optional field out.
                self._field(message.field.add(), self._next() if word == "optional" else word, [])
                message.field[-1].oneof_index = index
        self._expect("}")

    def _extend(self, extensions: "RepeatedCompositeFieldContainer[FieldDescriptorProto]") -> None:
        extended = self._name(self._next())
        if _OPTIONS.fullmatch(extended):
            self._skip()
            return
        self._expect("{")
        while self._ahead != "}":
            if (word := self._next()) != ";":
                field = extensions.add(extendee=extended)
                self._field(field, word, [])
                field.proto3_optional = False
        self._expect("}")

    def _extension_ranges(self, message: DescriptorProto) -> None:
        while True:
            first = last = _parse_int(self._next())
            if self._ahead == "to":
                self._next()
                word = self._next()
                last = _LAST_NUMBER if word == "max" else _parse_int(word)
            message.extension_range.add(start=first, end=last + 1)
            if self._ahead != ",":
                break
            self._next()
        self._skip()

    def _field(self, field: FieldDescriptorProto, word: str, entries: list[DescriptorProto]) -> None:
        field.label = _LABELS.get(word, 1)
        if word in _LABELS:
            field.proto3_optional = word == "optional" and self.file.syntax == "proto3"
            word = self._next()
        if word == "group":
            raise ValueError("the .proto has a group, which is not supported")
        if word == "map" and self._ahead == "<":
            self._map(field, entries)
        else:
            _set_type(field, self._name(word))
            field.name = self._next()
        if field.type_name == _ENTRY:
            entries[-1].name = f"{_camel(field.name)}Entry"
            field.type_name = entries[-1].name
        self._expect("=")
        field.number = _parse_int(self._next())
        if self._ahead == "[":
            field_options = self._options()
            if "json_name" in field_options:
                field.json_name = _unquote(field_options["json_name"])
        self._expect(";")

    def _map(self, field: FieldDescriptorProto, entries: list[DescriptorProto]) -> None:
        entry = DescriptorProto()
        entry.options.map_entry = True
        self._expect("<")
        _set_type(entry.field.add(name="key", number=1, label=1), self._next())
        self._expect(",")
        _set_type(entry.field.add(name="value", number=2, label=1), self._name(self._next()))
        self._expect(">")
        field.label, field.type, field.type_name = 3, FieldDescriptorProto.TYPE_MESSAGE, _ENTRY
        field.name = self._next()
        entries.append(entry)

    def _options(self) -> dict[str, str]:
        """Options in brackets: those with plain values, by name."""
        found: dict[str, str] = {}
        self._expect("[")
        while (word := self._next()) != "]":
            if word in _CLOSING:
                self._skip_to(_CLOSING[word])
            elif self._ahead == "=":
                self._next()
                found[word] = self._ahead
        return found

    def _enum(self, enum: EnumDescriptorProto) -> None:
        self._expect("{")
        while self._ahead != "}":
            word = self._next()
            if word == "option" and self._ahead == "allow_alias":
                enum.options.allow_alias = True
            if word in {"option", "reserved"} and self._ahead != "=":
                self._skip()
            elif word != ";":
                self._expect("=")
                enum.value.add(name=word, number=_parse_int(self._next()))
                if self._ahead == "[":
                    self._options()
                self._expect(";")
        self._expect("}")


_ENTRY = "map entry"


def _add_synthetic_oneofs(message: DescriptorProto) -> None:
    """Give each optional field of proto3 the oneof that stands for it, with a name that nothing else has."""
    names = {each.name for each in (*message.field, *message.oneof_decl)}
    for field in message.field:
        if field.proto3_optional:
            name = field.name if field.name.startswith("_") else f"_{field.name}"
            while name in names:
                name = f"X{name}"
            names.add(name)
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while (found := _TOKEN.match(text, at)) and found.lastgroup != "end":
        at = found.end()
        if found.lastgroup == "open":  # to go on behind it would take the square of the text's length
            raise ValueError(f"the .proto has {found['open']!r} that is never closed")
        yield found[found.lastgroup or 0]
    yield ""


def _set_type(field: FieldDescriptorProto, name: str) -> None:
    if name in _SCALARS:
        field.type = _SCALARS[name]
    else:
        field.type_name = name


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _parse_int(word: str) -> int:
    return int(word.replace(" ", ""), 0)


def _unquote(word: str) -> str:
    if word[:1] not in {'"', "'"}:
        raise ValueError(f"the .proto has {word[:50]!r} where a quoted string is expected")
    return word[1:-1]
