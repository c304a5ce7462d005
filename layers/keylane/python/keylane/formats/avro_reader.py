"""Values in Avro's binary encoding as JSON, read by the schema that they were written with.

A reader of our own: the compiled ones recurse on the machine's stack as deep as a value says, and a value of
30 kB then ends the process; they also believe an array that claims a billion empty items.

A union's value stands for itself, without its branch's name. Aliases, defaults and orders play no part: the
schema is the writer's own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from keylane.formats import avro_primitives as values
from keylane.formats.avro_primitives import Input
from keylane.formats.avro_schema import DEEPEST, full_name, made_of, named

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from keylane.formats.avro_primitives import Reader

_PRIMITIVES: dict[str, Reader] = {
    "null": values.null,
    "boolean": values.boolean,
    "int": Input.long,
    "long": Input.long,
    "float": values.single,
    "double": values.double,
    "bytes": values.as_base64(values.raw),
    "string": values.string,
}
_NAMED = {"record", "error", "enum", "fixed"}
_UUID_BYTES = 16
_LARGEST_FIXED = 1 << 30
_LARGEST_SCALE = 10_000


def decoder(schema: str, references: Sequence[str] = ()) -> Callable[[bytes], str]:
    """Give a function from a value's bytes to its JSON text; `references` define names, the first first.

    Both raise ValueError, whose sentence says what is wrong.
    """
    read = made_of(schema, references, _reader)

    def decode(data: bytes) -> str:
        source = Input(data)
        try:
            text = json.dumps(read(source), ensure_ascii=False)
        except RecursionError:
            raise ValueError(DEEPEST) from None
        if source.at < len(data):
            raise ValueError(f"{len(data) - source.at} bytes are left over")
        return text

    return decode


def _reader(schema: Any, names: dict[str, Reader], namespace: str) -> Reader:
    """The reader of a schema; the named types in it are added to `names`."""
    if isinstance(schema, str):
        return _PRIMITIVES.get(schema) or named(schema, names, namespace)
    if isinstance(schema, list):
        return _union([_reader(branch, names, namespace) for branch in schema])
    kind = schema["type"]
    if not isinstance(kind, str):
        return _reader(kind, names, namespace)
    if kind in _NAMED:
        return _define(schema, kind, names, namespace)
    if kind in _ITEMS:
        field, of = _ITEMS[kind]
        return of(_reader(schema[field], names, namespace))
    return _logical(schema, kind) or _reader(kind, names, namespace)


def _logical(schema: dict[str, Any], kind: str) -> Reader | None:
    logical = schema.get("logicalType")
    if (kind, logical) == ("bytes", "decimal"):
        return values.as_decimal(values.raw, _scale(schema))
    return values.LOGICAL.get((kind, str(logical)))


def _define(schema: dict[str, Any], kind: str, names: dict[str, Reader], namespace: str) -> Reader:
    """The reader of a record, enum or fixed: under its name before its fields are looked at."""
    given = schema.get("namespace")
    name = full_name(schema["name"], namespace if given is None else given)
    if kind == "enum":
        names[name] = _enum(tuple(schema["symbols"]))
    elif kind == "fixed":
        names[name] = _fixed(schema)
    else:
        fields: list[tuple[str, Reader]] = []
        names[name] = _record(fields)
        inner = name.rpartition(".")[0]
        fields += [(str(each["name"]), _reader(each["type"], names, inner)) for each in schema["fields"]]
    return names[name]


def _record(fields: list[tuple[str, Reader]]) -> Reader:
    return lambda source: {name: read(source) for name, read in fields}


def _enum(symbols: tuple[str, ...]) -> Reader:
    return lambda source: _choice(symbols, source.long(), "an enum")


def _union(branches: list[Reader]) -> Reader:
    return lambda source: _choice(branches, source.long(), "a union")(source)


def _choice(choices: Sequence[Any], number: int, what: str) -> Any:
    if not 0 <= number < len(choices):
        raise ValueError(f"{what} of {len(choices)} has number {number}")
    return choices[number]


def _fixed(schema: dict[str, Any]) -> Reader:
    size, logical = schema["size"], schema.get("logicalType")
    if not isinstance(size, int) or not 0 <= size <= _LARGEST_FIXED:
        raise ValueError(f"the schema has a fixed type of size {str(size)[:50]!r}")

    def take(source: Input) -> bytes:
        return source.take(size)

    if logical == "decimal":
        return values.as_decimal(take, _scale(schema))
    if logical == "uuid" and size == _UUID_BYTES:
        return values.as_uuid(take)
    return values.as_base64(take)


def _scale(schema: dict[str, Any]) -> int:
    scale = schema.get("scale", 0)
    if not isinstance(scale, int) or not 0 <= scale <= _LARGEST_SCALE:
        raise ValueError(f"the schema has a decimal of scale {str(scale)[:50]!r}")
    return scale


def _array(item: Reader) -> Reader:
    def read(source: Input) -> list[Any]:
        found: list[Any] = []
        while count := source.block():
            found += [item(source) for _ in range(count)]
        return found

    return read


def _map(value: Reader) -> Reader:
    def read(source: Input) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while count := source.block():
            for _ in range(count):
                key = values.string(source)
                found[key] = value(source)
        return found

    return read


_ITEMS: dict[str, tuple[str, Callable[[Reader], Reader]]] = {
    "array": ("items", _array),
    "map": ("values", _map),
}
