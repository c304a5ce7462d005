"""JSON as Avro's binary encoding, by a schema: what REST Proxy's `avro.v2` needs.

Source: the Avro 1.12 specification, "JSON Encoding" and "Binary Encoding".

    union          null, or an object of one member, its branch's name: {"string": "SFO"}, {"org.A": ...}
    bytes, fixed   a string of the characters 0 to 255, one for each byte
    float, double  a number, or "NaN", "Infinity", "-Infinity"
    record         an object with each of its fields and no other: defaults are ignored, as in Java's encoder
    logical types  as their base type: a date is a number of days

A JSON parser made the values, so numbers are Python's own: one with a fraction is not an integer.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any

from keylane.formats.avro_schema import TOO_DEEP, Makers, NotOfSchema, at_step, compile_schema

Writer = Callable[[Any, bytearray], None]

__all__ = ["NotOfSchema", "encoder"]

_NAMED_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_INT_BITS, _LONG_BITS = 32, 64
_CONTINUES = 0x80


def encoder(schema: str, references: Sequence[str] = ()) -> Callable[[Any], bytes]:
    """Return a function from a JSON value to its bytes; `references` as in `compile_schema`.

    Raises ValueError for an invalid schema; the function raises NotOfSchema, whose sentence follows the path.
    """
    return encoder_of(compile_schema(schema, references, WRITERS))


def encoder_of(write: Writer) -> Callable[[Any], bytes]:
    """Return a function from a JSON value to the bytes that a writer makes of it; it raises NotOfSchema."""

    def encode(value: Any) -> bytes:
        out = bytearray()
        try:
            write(value, out)
        except RecursionError:
            raise NotOfSchema(TOO_DEEP) from None
        return bytes(out)

    return encode


def _long(number: int, out: bytearray) -> None:
    """A zigzag varint."""
    left = number << 1 ^ number >> _LONG_BITS - 1
    while left >= _CONTINUES:
        out.append(left & (_CONTINUES - 1) | _CONTINUES)
        left >>= 7
    out.append(left)


def _null(value: Any, _: bytearray) -> None:
    if value is not None:
        raise NotOfSchema("is not null")


def _boolean(value: Any, out: bytearray) -> None:
    if not isinstance(value, bool):
        raise NotOfSchema("is neither true nor false")
    out.append(value)


def _integer(bits: int) -> Writer:
    limit = 1 << bits - 1

    def write(value: Any, out: bytearray) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not -limit <= value < limit:
            raise NotOfSchema(f"is not an integer of {bits} bits")
        _long(value, out)

    return write


def _number(form: str) -> Writer:
    pack = struct.Struct(form).pack

    def write(value: Any, out: bytearray) -> None:
        number = _NAMED_NUMBERS.get(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise NotOfSchema("is not a number")
        try:
            out += pack(number)
        except (OverflowError, struct.error):
            raise NotOfSchema("is too large for its type") from None

    return write


def _encode_bytes(value: Any) -> bytes:
    try:
        if isinstance(value, str):
            return value.encode("latin-1")
    except UnicodeEncodeError:
        pass
    raise NotOfSchema("is not a string of the characters 0 to 255, one for each byte")


def raw(encode: Callable[[Any], bytes]) -> Writer:
    """Return what writes the bytes that `encode` makes of a value, behind their number."""

    def write(value: Any, out: bytearray) -> None:
        data = encode(value)
        _long(len(data), out)
        out += data

    return write


def _string(value: Any, out: bytearray) -> None:
    if not isinstance(value, str):
        raise NotOfSchema("is not a string")
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise NotOfSchema("has characters that are not valid Unicode") from None
    _long(len(data), out)
    out += data


def _enum(symbols: tuple[str, ...]) -> Writer:
    numbers = {symbol: number for number, symbol in enumerate(symbols)}

    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, str) or value not in numbers:
            raise NotOfSchema(f"is not one of {', '.join(symbols)[:200]}")
        _long(numbers[value], out)

    return write


def fixed(encode: Callable[[Any], bytes], size: int) -> Writer:
    """Return what writes the bytes that `encode` makes of a value, which are this many."""

    def write(value: Any, out: bytearray) -> None:
        data = encode(value)
        if len(data) != size:
            raise NotOfSchema(f"has {len(data)} bytes, not {size}")
        out += data

    return write


def _record(fields: list[tuple[str, Writer]]) -> Writer:
    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, dict):
            raise NotOfSchema("is not an object")
        name = ""
        try:
            for name, field in fields:
                if name not in value:
                    raise NotOfSchema("is missing")  # noqa: TRY301 (the path is the same)
                field(value[name], out)
        except NotOfSchema as error:
            raise at_step(error, name) from None
        for name in value.keys() - {name for name, _ in fields} if len(value) > len(fields) else ():
            raise at_step(NotOfSchema("is not a field of the schema"), name[:100])

    return write


def _union(branches: list[tuple[str, Writer]]) -> Writer:
    numbered = {name: (number, write) for number, (name, write) in enumerate(branches)}

    def write(value: Any, out: bytearray) -> None:
        name, inner = "null", None
        if isinstance(value, dict) and len(value) == 1:
            ((name, inner),) = value.items()
        if (value is not None and name == "null") or name not in numbered:
            names = ", ".join(name for name in numbered if name != "null")[:200]
            null = "null, or " if "null" in numbered else ""
            raise NotOfSchema(f"is not {null}an object of one member that names its type: {names}")
        number, branch = numbered[name]
        _long(number, out)
        try:
            branch(inner, out)
        except NotOfSchema as error:
            raise (at_step(error, name) if value is not None else error) from None

    return write


def _array(item: Writer) -> Writer:
    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, list):
            raise NotOfSchema("is not an array")
        if value:
            _long(len(value), out)
        number = 0
        try:
            for number, each in enumerate(value):  # noqa: B007 (the handler uses it)
                item(each, out)
        except NotOfSchema as error:
            raise at_step(error, f"[{number}]") from None
        out.append(0)

    return write


def _map(item: Writer) -> Writer:
    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, dict):
            raise NotOfSchema("is not an object")
        if value:
            _long(len(value), out)
        key = ""
        try:
            for key, each in value.items():
                _string(key, out)
                item(each, out)
        except NotOfSchema as error:
            raise at_step(error, key[:100]) from None
        out.append(0)

    return write


WRITERS: Makers[Writer] = Makers(
    primitives={
        "null": _null,
        "boolean": _boolean,
        "int": _integer(_INT_BITS),
        "long": _integer(_LONG_BITS),
        "float": _number("<f"),
        "double": _number("<d"),
        "bytes": raw(_encode_bytes),
        "string": _string,
    },
    logical=lambda *_: None,
    record=_record,
    enum=_enum,
    fixed=lambda _, size: fixed(_encode_bytes, size),
    array=_array,
    map=_map,
    union=_union,
)
