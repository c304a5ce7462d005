"""JSON as Avro's binary encoding, by a schema: what REST Proxy's `avro.v2` asks for.

Source: the Avro 1.12 specification, "JSON Encoding" and "Binary Encoding".

    union          null, or an object of one member, its branch's name: {"string": "SFO"}, {"org.A": ...}
    bytes, fixed   a text of the characters 0 to 255, one for each byte
    float, double  a number, or "NaN", "Infinity", "-Infinity"
    a record       an object with each of its fields and no other: defaults play no part, as in Java's
    logical types  what their type is: a date is a number of days

A parser gave the JSON, so its numbers are Python's own: one with a fraction is no whole one.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from keylane.formats.avro_schema import DEEPEST, full_name, made_of, named

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Writer = Callable[[Any, bytearray], None]

_NAMED = {"record", "error", "enum", "fixed"}
_LARGEST_FIXED = 1 << 30
_ODD_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_INT_BITS, _LONG_BITS = 32, 64
_MORE = 0x80


class NotOfSchema(ValueError):
    """A value that isn't what its schema says; `path` leads to the place, as in `legs[2].dest`."""

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self.path = ""

    def below(self, step: str) -> NotOfSchema:
        """The same, seen from one level up."""
        self.path = step + ("." if self.path and not self.path.startswith("[") else "") + self.path
        return self


def encoder(schema: str, references: Sequence[str] = ()) -> Callable[[Any], bytes]:
    """Give a function from a JSON value to its bytes; `references` define names, the first first.

    Raises ValueError for what is no schema; the function raises NotOfSchema.
    """
    write = made_of(schema, references, _writer)

    def encode(value: Any) -> bytes:
        out = bytearray()
        try:
            write(value, out)
        except RecursionError:
            raise NotOfSchema(DEEPEST) from None
        return bytes(out)

    return encode


def _writer(schema: Any, names: dict[str, Writer], namespace: str) -> Writer:
    """The writer of a schema; the named types in it are added to `names`."""
    if isinstance(schema, str):
        return _PRIMITIVES.get(schema) or named(schema, names, namespace)
    if isinstance(schema, list):
        return _union([(_branch(each, namespace), _writer(each, names, namespace)) for each in schema])
    kind = schema["type"]
    if not isinstance(kind, str):
        return _writer(kind, names, namespace)
    if kind in _NAMED:
        return _define(schema, kind, names, namespace)
    if kind in _ITEMS:
        field, of = _ITEMS[kind]
        return of(_writer(schema[field], names, namespace))
    return _writer(kind, names, namespace)


def _branch(schema: Any, namespace: str) -> str:
    """What the JSON encoding calls a union's branch."""
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES else full_name(schema, namespace)
    kind = schema["type"]
    if kind not in _NAMED:
        return str(kind)
    given = schema.get("namespace")
    return full_name(schema["name"], namespace if given is None else given)


def _define(schema: dict[str, Any], kind: str, names: dict[str, Writer], namespace: str) -> Writer:
    """The writer of a record, enum or fixed: under its name before its fields are looked at."""
    name = _branch(schema, namespace)
    if kind == "enum":
        names[name] = _enum(tuple(schema["symbols"]))
    elif kind == "fixed":
        names[name] = _fixed(schema["size"])
    else:
        fields: list[tuple[str, Writer]] = []
        names[name] = _record(fields)
        inner = name.rpartition(".")[0]
        fields += [(str(each["name"]), _writer(each["type"], names, inner)) for each in schema["fields"]]
    return names[name]


def _long(number: int, out: bytearray) -> None:
    """A zigzag varint."""
    left = number << 1 ^ number >> _LONG_BITS - 1
    while left >= _MORE:
        out.append(left & (_MORE - 1) | _MORE)
        left >>= 7
    out.append(left)


def _null(value: Any, _: bytearray) -> None:
    if value is not None:
        raise NotOfSchema("is not null")


def _boolean(value: Any, out: bytearray) -> None:
    if not isinstance(value, bool):
        raise NotOfSchema("is neither true nor false")
    out.append(value)


def _whole(bits: int) -> Writer:
    limit = 1 << bits - 1

    def write(value: Any, out: bytearray) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not -limit <= value < limit:
            raise NotOfSchema(f"is no whole number of {bits} bits")
        _long(value, out)

    return write


def _number(form: str) -> Writer:
    packed = struct.Struct(form).pack

    def write(value: Any, out: bytearray) -> None:
        number = _ODD_NUMBERS.get(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise NotOfSchema("is no number")
        try:
            out += packed(number)
        except (OverflowError, struct.error):
            raise NotOfSchema("is too large for its type") from None

    return write


def _bytes_of(value: Any) -> bytes:
    try:
        if isinstance(value, str):
            return value.encode("latin-1")
    except UnicodeEncodeError:
        pass
    raise NotOfSchema("is no text of the characters 0 to 255, one for each byte")


def _raw(value: Any, out: bytearray) -> None:
    data = _bytes_of(value)
    _long(len(data), out)
    out += data


def _string(value: Any, out: bytearray) -> None:
    if not isinstance(value, str):
        raise NotOfSchema("is no text")
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise NotOfSchema("holds characters that are no Unicode text") from None
    _long(len(data), out)
    out += data


def _enum(symbols: tuple[str, ...]) -> Writer:
    numbers = {symbol: number for number, symbol in enumerate(symbols)}

    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, str) or value not in numbers:
            raise NotOfSchema(f"is none of {', '.join(symbols)[:200]}")
        _long(numbers[value], out)

    return write


def _fixed(size: Any) -> Writer:
    if not isinstance(size, int) or not 0 <= size <= _LARGEST_FIXED:
        raise ValueError(f"the schema has a fixed type of size {str(size)[:50]!r}")

    def write(value: Any, out: bytearray) -> None:
        data = _bytes_of(value)
        if len(data) != size:
            raise NotOfSchema(f"has {len(data)} bytes, not {size}")
        out += data

    return write


def _record(fields: list[tuple[str, Writer]]) -> Writer:
    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, dict):
            raise NotOfSchema("is no object")
        for name, field in fields:
            try:
                if name not in value:
                    raise NotOfSchema("is missing")  # noqa: TRY301 (the path is the same)
                field(value[name], out)
            except NotOfSchema as error:
                raise error.below(name) from None
        for name in value.keys() - {name for name, _ in fields} if len(value) > len(fields) else ():
            raise NotOfSchema("is no field of the schema").below(name[:100])

    return write


def _union(branches: list[tuple[str, Writer]]) -> Writer:
    places = {name: (number, write) for number, (name, write) in enumerate(branches)}

    def write(value: Any, out: bytearray) -> None:
        name, inner = "null", None
        if isinstance(value, dict) and len(value) == 1:
            ((name, inner),) = value.items()
        if (value is not None and name == "null") or name not in places:
            named = ", ".join(name for name in places if name != "null")[:200]
            null = "null, or " if "null" in places else ""
            raise NotOfSchema(f"is not {null}an object of one member that names its type: {named}")
        number, branch = places[name]
        _long(number, out)
        try:
            branch(inner, out)
        except NotOfSchema as error:
            raise (error.below(name) if value is not None else error) from None

    return write


def _array(item: Writer) -> Writer:
    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, list):
            raise NotOfSchema("is no list")
        if value:
            _long(len(value), out)
        for number, each in enumerate(value):
            try:
                item(each, out)
            except NotOfSchema as error:
                raise error.below(f"[{number}]") from None
        out.append(0)

    return write


def _map(item: Writer) -> Writer:
    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, dict):
            raise NotOfSchema("is no object")
        if value:
            _long(len(value), out)
        for key, each in value.items():
            try:
                _string(key, out)
                item(each, out)
            except NotOfSchema as error:
                raise error.below(key[:100]) from None
        out.append(0)

    return write


_ITEMS: dict[str, tuple[str, Callable[[Writer], Writer]]] = {
    "array": ("items", _array),
    "map": ("values", _map),
}
_PRIMITIVES: dict[str, Writer] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole(_INT_BITS),
    "long": _whole(_LONG_BITS),
    "float": _number("<f"),
    "double": _number("<d"),
    "bytes": _raw,
    "string": _string,
}
