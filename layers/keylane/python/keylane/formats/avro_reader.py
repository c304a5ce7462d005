"""Values in Avro's binary encoding as JSON, read by the schema that they were written with.

Source: the Avro 1.12 specification, "Binary Encoding". Keylane has its own reader because compiled readers
recurse on the machine's stack as deep as a value is nested, so that a value of 30 kB ends the process, and
because they accept an array that claims to have a billion empty items.

A union's value stands for itself, without its branch's name.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from keylane.formats import avro_primitives as values
from keylane.formats.avro_primitives import Input, Reader
from keylane.formats.avro_schema import TOO_DEEP, Makers, NotOfSchema, at_step, compile_schema, decimal_scale

_UUID_BYTES = 16


def decoder(schema: str, references: Sequence[str] = ()) -> Callable[[bytes], str]:
    """Return a function from a value's bytes to its JSON text; `references` as in `compile_schema`.

    Both raise ValueError, whose sentence says what is wrong and where.
    """
    read = compile_schema(schema, references, _READERS)

    def decode(data: bytes) -> str:
        source = Input(data)
        try:
            text = json.dumps(read(source), ensure_ascii=False)
        except RecursionError:
            raise ValueError(TOO_DEEP) from None
        except NotOfSchema as error:
            raise ValueError(f"{error.path}: {error}") from error
        if source.at < len(data):
            raise ValueError(f"{len(data) - source.at} bytes are left over")
        return text

    return decode


def _logical(schema: dict[str, Any], kind: str) -> Reader | None:
    logical = schema.get("logicalType")
    if kind == "bytes" and (scale := decimal_scale(schema)) is not None:
        return values.as_decimal(values.raw, scale)
    return values.LOGICAL.get((kind, str(logical)))


def _record(fields: list[tuple[str, Reader]]) -> Reader:
    names = -1  # their length; a record is made before its fields are

    def read(source: Input) -> dict[str, Any]:
        nonlocal names
        if names < 0:
            names = sum(len(name) for name, _ in fields)
        source.spend(len(fields), names)
        source.enter()
        found: dict[str, Any] = {}
        name = ""
        try:
            for name, field in fields:
                found[name] = field(source)
        except ValueError as error:
            raise at_step(error, name) from None
        source.levels -= 1
        return found

    return read


def _enum(symbols: tuple[str, ...]) -> Reader:
    if max(map(len, symbols), default=0) <= values.CHEAP:
        return lambda source: _choose(symbols, source.long(), "enum")

    def read(source: Input) -> str:
        symbol: str = _choose(symbols, source.long(), "enum")
        source.spend(0, len(symbol))
        return symbol

    return read


def _union(branches: list[tuple[str, Reader]]) -> Reader:
    readers = [read for _, read in branches]
    return lambda source: _choose(readers, source.long(), "union")(source)


def _choose(choices: Sequence[Any], number: int, what: str) -> Any:
    if not 0 <= number < len(choices):
        raise ValueError(f"the {what} has {len(choices)} members: number {number} does not exist")
    return choices[number]


def _fixed(schema: dict[str, Any], size: int) -> Reader:
    def take(source: Input) -> bytes:
        return source.take(size)

    logical = schema.get("logicalType")
    if (scale := decimal_scale(schema, size)) is not None:
        return values.as_decimal(take, scale)
    if logical == "uuid" and size == _UUID_BYTES:
        return values.as_uuid(take)
    return values.as_base64(take)


def _array(item: Reader) -> Reader:
    def read(source: Input) -> list[Any]:
        found: list[Any] = []
        append = found.append
        source.enter()
        while count := source.block():
            try:
                for _ in range(count):
                    append(item(source))
            except ValueError as error:
                raise at_step(error, f"[{len(found)}]") from None
        source.levels -= 1
        return found

    return read


def _map(value: Reader) -> Reader:
    def read(source: Input) -> dict[str, Any]:
        found: dict[str, Any] = {}
        source.enter()
        while count := source.block():
            for _ in range(count):
                key = values.string(source)
                try:
                    found[key] = value(source)
                except ValueError as error:
                    raise at_step(error, key[:100]) from None
        source.levels -= 1
        return found

    return read


_READERS: Makers[Reader] = Makers(
    primitives={
        "null": values.null,
        "boolean": values.boolean,
        "int": Input.long,
        "long": Input.long,
        "float": values.single,
        "double": values.double,
        "bytes": values.as_base64(values.raw),
        "string": values.string,
    },
    logical=_logical,
    record=_record,
    enum=_enum,
    fixed=_fixed,
    array=_array,
    map=_map,
    union=_union,
)
