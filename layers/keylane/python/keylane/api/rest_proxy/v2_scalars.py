"""Scalars as Jackson reads them, the JSON parser of Confluent's REST Proxy.

an integer     5, 5.0, "5", " 5 "; an empty string is null. 5.7, which Jackson cuts off, is rejected
a string       "a", and 7, 1.5 and true by their JSON texts
"""

import json
import re
from typing import Any

from keylane.api.writes.record_bodies import kind_of

INT32_LEAST, INT32_MOST = -(2**31), 2**31 - 1
_SPACE = " \t\r\n"
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
INTEGER_TEXT = f"^[{_SPACE}]*({_INTEGER.pattern})?[{_SPACE}]*$"
"""The strings that may be integers; an empty one is null."""


def read_integer(found: Any) -> int | None:
    """Return a 32-bit integer, None for null. Raises ValueError, whose sentence follows the field's name."""
    if found is None:
        return None
    if isinstance(found, str) and not found.strip(_SPACE):
        return None
    number = _integer_of(found)
    if number is None or not INT32_LEAST <= number <= INT32_MOST:
        raise ValueError("is not an integer of 32 bits")
    return number


def _integer_of(found: Any) -> int | None:
    if isinstance(found, bool):
        return None
    if isinstance(found, str):
        return int(found) if _INTEGER.fullmatch(found.strip(_SPACE)) else None
    if isinstance(found, float):
        return int(found) if found.is_integer() else None
    return found if isinstance(found, int) else None


def read_string(found: Any) -> str | None:
    """Return a string, None for null. Raises ValueError, whose sentence follows the field's name."""
    if found is None or isinstance(found, str):
        return found
    if isinstance(found, bool | int | float):
        return json.dumps(found)
    raise ValueError(f"is {kind_of(found)}, not a string")
