"""Whether two readers of Avro read the same."""

from __future__ import annotations

import base64
import datetime as dt
import math
import struct
from decimal import Decimal
from typing import Any


def same(ours: Any, theirs: Any) -> bool:
    """Whether Keylane's JSON has the value that fastavro read."""
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[name], theirs[name]) for name in theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, float):
        return same_number(float(ours), theirs)
    return ours == as_json(theirs)


def same_number(ours: float, theirs: float) -> bool:
    if math.isnan(theirs):
        return math.isnan(ours)
    return ours == theirs or struct.pack("<f", ours) == struct.pack("<f", theirs)


def as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value if isinstance(value, bool | int | str | None) else str(value)


def with_times(ours: Any, theirs: Any) -> Any:
    """Texts of times as times, where fastavro has one."""
    if isinstance(theirs, dict):
        return {name: with_times(ours[name], each) for name, each in theirs.items()}
    if isinstance(theirs, list):
        return [with_times(one, other) for one, other in zip(ours, theirs, strict=True)]
    return dt.datetime.fromisoformat(ours) if isinstance(theirs, dt.datetime) else ours
