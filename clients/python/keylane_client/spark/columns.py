"""Records as rows of Spark: the columns of a schema, from keys, values and positions.

    key         STRING; BINARY for keys that are not UTF-8
    value       STRUCT<...>: fields of JSON objects; STRING: texts, and JSON; BINARY: their bytes
    partition, offset, timestamp    the record's
    next_offset                     below it all records of the row's lane are in the table

A value that is not what its column says is an error, which names the record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from keylane_client.answers import Record
from keylane_client.errors import InvalidArgument, ValueMismatch
from keylane_client.json_text import render_exactly

Convert = Callable[[Any], Any]
_ARROW: dict[type[DataType], pa.DataType] = {
    StringType: pa.string(),
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", tz="UTC"),
}
_LONGS = 2**63
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_KEYS, _NUMBERS = (StringType, BinaryType), (IntegerType, LongType)
_OF_RECORD: dict[str, tuple[type[DataType], ...]] = {
    "key": _KEYS,
    "value": (*_KEYS, StructType),
    "partition": _NUMBERS,
    "offset": _NUMBERS,
    "next_offset": _NUMBERS,
    "timestamp": (TimestampType, LongType),
}
"""The columns of a table, and the types that each may have."""
_OF_DIGITS = ("decimal", "string", "binary")
"""Types whose values have the digits of JSON: floats would lose some."""
SHOWN = 100
"""Characters of a value in an error."""
MOST_FIELDS, MOST_CHARACTERS = 50, 200
"""Of the fields that one request asks for. With more of them the whole values are read."""


class TableColumns:
    """The columns of a schema. Raises InvalidArgument for one that records do not have."""

    def __init__(self, schema: StructType) -> None:
        for each in schema:
            _check(each.name, each.dataType)
        self._arrow = pa.schema([_arrow_field(each.name, each.dataType, each.nullable) for each in schema])
        self._columns = [(each.name, _converter_of_column(each.name, each.dataType)) for each in schema]
        value = schema["value"].dataType if "value" in schema.names else None
        self.fields = _paths_of(value) if isinstance(value, StructType) else []
        self.is_exact = value is not None and any(kind in value.simpleString() for kind in _OF_DIGITS)

    def batch(self, records: Sequence[Record], next_offset: int) -> pa.RecordBatch:
        """Return records of a lane as a batch. Raises ValueMismatch, which names column and record."""
        arrays = []
        for (name, convert), field in zip(self._columns, self._arrow, strict=True):
            if name == "next_offset":
                values = [next_offset] * len(records)
            else:
                values = [_converted(name, convert, each) for each in records]
            arrays.append(_array(name, values, field.type, records))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)


def _check(name: str, kind: DataType) -> None:
    """Raise InvalidArgument for a column that records do not have."""
    allowed = _OF_RECORD.get(name)
    if allowed is None:
        raise InvalidArgument(
            f"a record has no column {name!r}: its columns are {', '.join(_OF_RECORD)}, and fields are in"
            f" value, as in value STRUCT<{name}: STRING>"
        )
    if not isinstance(kind, allowed):
        raise InvalidArgument(f"the column {name} can't be {kind.simpleString().upper()}")


def _array(name: str, values: list[Any], kind: pa.DataType, records: Sequence[Record]) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):
        for value, record in zip(values, records, strict=True):
            _converted(name, lambda _: pa.array([value], kind), record)  # noqa: B023 (runs at once)
        raise


def _converted(name: str, convert: Convert, record: Record) -> Any:
    try:
        return convert(record)
    except (ValueError, TypeError, OverflowError) as error:  # Arrow's are the first two
        which = f"the {name} of the record {record.position} (key {record.key!r})"
        raise ValueMismatch(f"{which} does not fit its column: {error}") from error


def _arrow_field(name: str, kind: DataType, is_nullable: bool) -> pa.Field:
    return pa.field(name, _arrow_type(name, kind), nullable=is_nullable)


def _arrow_type(name: str, kind: DataType) -> pa.DataType:
    if isinstance(kind, StructType):
        return pa.struct([_arrow_field(each.name, each.dataType, each.nullable) for each in kind])
    if isinstance(kind, ArrayType):
        return pa.list_(_arrow_field("element", kind.elementType, kind.containsNull))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    found = _ARROW.get(type(kind))
    if found is None:
        raise InvalidArgument(f"{name} can't be {kind.simpleString().upper()}")
    return found


def _paths_of(value: StructType) -> list[str]:
    """Return the fields that a request asks for; none of them where it takes the whole values."""
    paths: list[tuple[str, ...]] = []
    left: list[tuple[tuple[str, ...], DataType]] = [((), value)]
    while left:
        path, kind = left.pop()
        while isinstance(kind, ArrayType):
            kind = kind.elementType
        if isinstance(kind, StructType) and kind.names:
            left += [((*path, each.name), each.dataType) for each in kind]
        else:
            paths.append(path)
    names = [name for path in paths for name in path]
    if any(not name.strip() or name != name.strip() or "," in name or "." in name for name in names):
        return []
    found = sorted(".".join(path) for path in paths)
    is_long = len(found) > MOST_FIELDS or any(len(each) > MOST_CHARACTERS for each in found)
    return [] if is_long else found


def _converter_of_column(name: str, kind: DataType) -> Convert:
    """Return what makes the column's value of a record."""
    if name == "key":
        to_key = _text_of_key if isinstance(kind, StringType) else _bytes_of_key
        return lambda record: to_key(record.key)
    if name == "value":
        to_value = _converter_of_value(kind)
        return lambda record: to_value(_readable(record))
    if name == "timestamp":
        is_number = isinstance(kind, LongType)
        return lambda record: record.timestamp_ms if is_number else _time_of_ms(record.timestamp_ms)
    return lambda record: getattr(record.position, name)


def _readable(record: Record) -> Record:
    if record.value_format == "left-in-kafka":
        raise ValueError(f"it is left in Kafka, as it has {record.value_bytes} bytes")
    return record


def _text_of_key(key: Any) -> str:
    if isinstance(key, bytes):
        raise ValueError("it is not UTF-8: read the key as BINARY")  # noqa: TRY004 (of what is read)
    return key if isinstance(key, str) else _json(key)


def _bytes_of_key(key: Any) -> bytes:
    return key if isinstance(key, bytes) else _text_of_key(key).encode()


def _converter_of_value(kind: DataType) -> Convert:
    if isinstance(kind, StructType):
        convert = _converter_of(kind)

        def fields_of(record: Record) -> Any:
            if not isinstance(record.value, dict):
                why = f", and could not be decoded: {record.undecoded}" if record.undecoded else ""
                raise ValueError(f"it is not a JSON object{why}: read the value as STRING")  # noqa: TRY004
            return convert(record.value)

        return fields_of
    return _text_of_value if isinstance(kind, StringType) else _bytes_of_value


def _text_of_value(record: Record) -> str:
    if isinstance(record.value, bytes):
        raise ValueError("it is not text: read the value as BINARY")  # noqa: TRY004
    return str(record.value) if record.value_format == "text" else _json(record.value)


def _bytes_of_value(record: Record) -> bytes:
    return record.value if isinstance(record.value, bytes) else _text_of_value(record).encode()


def _converter_of(kind: DataType) -> Convert:
    """Return what makes Arrow's value of one of JSON; it raises ValueError for another one."""
    if isinstance(kind, StructType):
        fields = [(each.name, _converter_of(each.dataType)) for each in kind]
        return _nullable((dict,), lambda found: {name: to(found.get(name)) for name, to in fields})
    if isinstance(kind, ArrayType):
        of_element = _converter_of(kind.elementType)
        return _nullable((list,), lambda found: [of_element(each) for each in found])
    found = _SCALARS.get(type(kind))
    if found is None:
        raise InvalidArgument(f"a field of a value can't be {kind.simpleString().upper()}")
    return _nullable(*found)


def _nullable(kinds: tuple[type, ...], convert: Convert) -> Convert:
    def checked(found: Any) -> Any:
        if found is None:
            return None
        # A bool is an int, too.
        if not isinstance(found, kinds) or (isinstance(found, bool) and int in kinds and bool not in kinds):
            raise ValueError(f"it has {_json(found)[:SHOWN]}, which is of another type")
        return convert(found)

    return checked


def _integer_of(found: Any) -> int:
    # First: of a Decimal with a large exponent `int` takes hours.
    if not -_LONGS <= found < _LONGS or found != int(found):
        raise ValueError(f"it has {_json(found)[:SHOWN]}, which is no integer of 64 bits")
    return int(found)


def _time_of_ms(time_ms: float | Decimal | None) -> datetime | None:
    return None if time_ms is None else _EPOCH + timedelta(milliseconds=float(time_ms))


def _time_of(found: Any) -> datetime | None:
    if not isinstance(found, str):
        return _time_of_ms(found)
    when = datetime.fromisoformat(found.replace("Z", "+00:00"))
    return when if when.tzinfo else when.replace(tzinfo=timezone.utc)


def _date_of(found: Any) -> date:
    return date.fromisoformat(str(found))


_json = render_exactly


def _string_of(found: Any) -> str:
    return found if isinstance(found, str) else _json(found)


_JSON_NUMBER = (int, float, Decimal)
_SCALARS: dict[type[DataType], tuple[tuple[type, ...], Convert]] = {
    StringType: ((object,), _string_of),
    BooleanType: ((bool,), bool),
    **dict.fromkeys((ByteType, ShortType, IntegerType, LongType), (_JSON_NUMBER, _integer_of)),
    **dict.fromkeys((FloatType, DoubleType), (_JSON_NUMBER, float)),
    DecimalType: (_JSON_NUMBER, lambda found: Decimal(str(found))),
    TimestampType: ((*_JSON_NUMBER, str), _time_of),
    DateType: ((str,), _date_of),
}
"""What JSON has for a field of each type, and what makes Arrow's value of it."""
