"""Parquet, for whoever has installed pyarrow: its values as JSON has them.

Times and dates become ISO 8601, with nine digits of a second where they have nanoseconds; decimals their
digits, as a string; maps objects. Binary stays bytes, which are base64 in JSON.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from keylane_client.cli.errors import BadArgument

_MICROSECONDS = 6


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode()


quote = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_base64).encode
"""Renders a value; bytes as base64."""


def require_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its module of Parquet. Raises BadArgument if it is not installed."""
    try:
        import pyarrow as pa  # noqa: PLC0415 (its import takes long)
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise BadArgument("Parquet files need pyarrow: pip install pyarrow") from error
    return pa, parquet


class ArrowValues:
    """Makes Arrow's values those of Python for which JSON has types, and bytes."""

    def __init__(self, pa: Any) -> None:
        self._pa = pa

    def rows(self, batch: Any) -> Iterator[dict[str, Any] | str]:
        """Return the rows of a batch, or why one can't be read. A row has no field whose value is null."""
        names, columns = batch.schema.names, [self._column(each) for each in batch.columns]
        for values in zip(*columns, strict=True):
            found = {name: value for name, value in zip(names, values, strict=True) if value is not None}
            faults = [
                f"its {name!r} can't be read: {value}"
                for name, value in found.items()
                if isinstance(value, ValueError)
            ]
            yield faults[0] if faults else found

    def _column(self, column: Any) -> list[Any]:
        types, kind = self._pa.types, column.type
        if types.is_integer(kind) or types.is_floating(kind) or types.is_string(kind):
            values: list[Any] = column.to_pylist()
            return values
        return [self._value_or_fault(each) for each in column]

    def _value_or_fault(self, scalar: Any) -> Any:
        try:
            return self._value(scalar)
        except (ValueError, OverflowError) as error:
            return ValueError(str(error))

    def _value(self, scalar: Any) -> Any:
        types, kind = self._pa.types, scalar.type
        if not scalar.is_valid:
            return None
        if types.is_dictionary(kind):
            return self._value(scalar.value)
        if isinstance(scalar, self._pa.ExtensionScalar):
            known = scalar.as_py()
            return str(known) if isinstance(known, UUID) else self._value(scalar.value)
        if types.is_nested(kind):
            return self._nested(scalar)
        if types.is_temporal(kind):
            return self._time(scalar)
        value = scalar.as_py()
        if types.is_decimal(kind):
            value = f"{value:f}"
        return value if isinstance(value, (str, int, float, bytes)) else str(value)

    def _nested(self, scalar: Any) -> Any:
        types, kind = self._pa.types, scalar.type
        if types.is_struct(kind):
            return {name: self._value(each) for name, each in scalar.items()}
        return self._object(scalar.values) if types.is_map(kind) else list(map(self._value, scalar.values))

    def _object(self, entries: Any) -> dict[str, Any]:
        keys, values = ([self._value(each) for each in entries.field(number)] for number in (0, 1))
        names = [key if isinstance(key, str) else quote(key) for key in keys]
        found = dict(zip(names, values, strict=True))
        if len(found) < len(names):
            raise ValueError("a map has a key twice")
        return found

    def _time(self, scalar: Any) -> str:
        pa, kind = self._pa, scalar.type
        is_moment = pa.types.is_timestamp(kind)
        if not (is_moment or pa.types.is_time(kind)) or kind.unit != "ns" or not scalar.value % 1000:
            value = scalar.as_py()
            return str(value.isoformat() if hasattr(value, "isoformat") else value)
        # Python's times have microseconds, so that Arrow has none for what is between them.
        microseconds, rest = divmod(scalar.value, 1000)
        coarse = pa.timestamp("us", kind.tz) if is_moment else pa.time64("us")
        text = pa.scalar(microseconds, coarse).as_py().isoformat(timespec="microseconds")
        end = text.index(".") + 1 + _MICROSECONDS
        return f"{text[:end]}{rest:03}{text[end:]}"
