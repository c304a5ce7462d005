"""JSON as Avro's binary encoding, by a schema: the opposite of `avro_reader`.

So a key is asked for as it is shown.

    union          the first branch that takes the value
    bytes, fixed   base64
    decimal        its digits as a string, with no more of them behind the point than its scale
    date, time-*, timestamp-*, local-timestamp-*, uuid    as they are shown; a number as its base type

All else is as in `avro_writer`.
"""

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from keylane.formats.avro_schema import Makers, NotOfSchema, compile_schema, decimal_scale
from keylane.formats.avro_writer import WRITERS, Writer, encoder_of, fixed, raw

_write_long = WRITERS.primitives["long"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DECIMAL = re.compile(r"(-?)([0-9]{1,1000})(?:\.([0-9]{1,1000}))?", re.ASCII)
_TIME = re.compile(r"([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?", re.ASCII)
_TIMESTAMP = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8})(?:\.([0-9]{1,9}))?(Z?)", re.ASCII)
_UUID_BYTES = 16
_MOST_DIGITS = 4_300
"""Of what Python reads as an integer."""


class AvroKeys(NamedTuple):
    """`fields`: the names of the schema's record; None where it is not one. `encode` raises NotOfSchema."""

    fields: tuple[str, ...] | None
    encode: Callable[[Any], bytes]


def keys_of(schema: str, references: Sequence[str] = ()) -> AvroKeys:
    """Return what encodes keys. The arguments and errors are those of `compile_schema`."""
    write = compile_schema(schema, references, _WRITERS)
    return AvroKeys(write.names if isinstance(write, _Record) else None, encoder_of(write))


def encoder(schema: str, references: Sequence[str] = ()) -> Callable[[Any], bytes]:
    """Return what encodes values as they are shown. The arguments and errors are those of `keys_of`."""
    return keys_of(schema, references).encode


class _Record:
    """Writes a record. It is made before its fields are."""

    def __init__(self, fields: list[tuple[str, Writer]]) -> None:
        self._fields = fields
        self._write = WRITERS.record(fields)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._fields)

    def __call__(self, value: Any, out: bytearray) -> None:
        self._write(value, out)


def _union(branches: list[tuple[str, Writer]]) -> Writer:
    def write(value: Any, out: bytearray) -> None:
        begin = len(out)
        for number, (_, branch) in enumerate(branches):
            _write_long(number, out)
            try:
                branch(value, out)
            except NotOfSchema:
                del out[begin:]
            else:
                return
        raise NotOfSchema(f"is not one of {', '.join(name for name, _ in branches)}"[:200])

    return write


def _decode_base64(value: Any) -> bytes:
    try:
        return base64.b64decode(value.encode(), validate=True)
    except (AttributeError, ValueError):
        raise NotOfSchema("is not base64") from None


def _fixed(schema: dict[str, Any], size: int) -> Writer:
    if (scale := decimal_scale(schema, size)) is not None:
        return partial(_write_decimal, scale, size)
    if schema.get("logicalType") == "uuid" and size == _UUID_BYTES:
        return _uuid
    return fixed(_decode_base64, size)


def _uuid(value: Any, out: bytearray) -> None:
    try:
        out += UUID(value).bytes
    except (AttributeError, TypeError, ValueError):
        raise NotOfSchema("is not a UUID") from None


def _write_decimal(scale: int, size: int | None, value: Any, out: bytearray) -> None:
    found = _DECIMAL.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise NotOfSchema("is not a string of decimal digits")
    fraction = found[3] or ""
    if len(fraction.rstrip("0")) > scale:
        raise NotOfSchema(f"has more than {scale} digits behind the point")
    digits = f"{found[2]}{fraction[:scale].ljust(scale, '0')}".lstrip("0") or "0"
    if len(digits) > _MOST_DIGITS:
        raise NotOfSchema(f"has more than {_MOST_DIGITS} digits")
    unscaled = int(found[1] + digits)
    # The shortest two's complement, as Java's BigInteger has it.
    length = size or ((unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1)
    try:
        data = unscaled.to_bytes(length, "big", signed=True)
    except OverflowError:
        raise NotOfSchema("is too large for its type") from None
    if size is None:
        _write_long(length, out)
    out += data


def _logical(schema: dict[str, Any], kind: str) -> Writer | None:
    logical = str(schema.get("logicalType"))
    if kind == "bytes" and (scale := decimal_scale(schema)) is not None:
        return partial(_write_decimal, scale, None)
    read = _LOGICAL.get((kind, logical))
    if read is None:
        return None
    base = WRITERS.primitives[kind]

    def write(value: Any, out: bytearray) -> None:
        base(read(value) if isinstance(value, str) else value, out)

    return write


def _read_date(text: str) -> int:
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH.toordinal()
    except ValueError:
        raise NotOfSchema("is not a date") from None


def _read_time(digits: int, text: str) -> int:
    found = _TIME.fullmatch(text)
    return _count("a time", f"1970-01-01T{found[1]}", found[2], digits) if found else _refuse("a time")


def _read_timestamp(digits: int, zone: str, text: str) -> int:
    found = _TIMESTAMP.fullmatch(text)
    if found is None or found[3] != zone:
        return _refuse(f"a time of ISO 8601 {'in' if zone else 'without'} UTC")
    return _count("a time", found[1], found[2], digits)


def _count(what: str, moment: str, fraction: str | None, digits: int) -> int:
    fraction = (fraction or "").ljust(digits, "0")
    if fraction[digits:].strip("0"):
        raise NotOfSchema(f"has more than {digits} digits of a second")
    try:
        since = datetime.fromisoformat(moment).replace(tzinfo=UTC) - _EPOCH
    except ValueError:
        return _refuse(what)
    seconds: int = since // timedelta(seconds=1)
    return int(seconds * 10**digits) + int(fraction[:digits])


def _refuse(what: str) -> int:
    raise NotOfSchema(f"is not {what}")


_LOGICAL: dict[tuple[str, str], Callable[[str], int]] = {
    ("int", "date"): _read_date,
    ("int", "time-millis"): partial(_read_time, 3),
    ("long", "time-micros"): partial(_read_time, 6),
    **{
        ("long", f"{local}timestamp-{unit}"): partial(_read_timestamp, digits, zone)
        for unit, digits in (("millis", 3), ("micros", 6), ("nanos", 9))
        for local, zone in (("", "Z"), ("local-", ""))
    },
}

_WRITERS: Makers[Writer] = replace(
    WRITERS,
    primitives={**WRITERS.primitives, "bytes": raw(_decode_base64)},
    logical=_logical,
    record=_Record,
    fixed=_fixed,
    union=_union,
)
