"""JSON by RFC 8259, which has no NaN and no Infinity."""

from __future__ import annotations

import json
import math


def no_constant(name: str) -> None:
    """Raise ValueError, as `parse_constant` of a JSON decoder."""
    raise ValueError(f"{name} is not JSON")


def finite(text: str) -> float:
    """The number, as `parse_float` of a JSON decoder. Raises ValueError for one beyond a double's range."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


# Numbers are not converted: however many digits they have, only validity matters.
_json = json.JSONDecoder(parse_float=len, parse_int=len, parse_constant=no_constant)


def is_json(text: str) -> bool:
    """Whether the text is valid JSON, nested no deeper than Python can parse."""
    try:
        # Most values are objects without surrounding white space: this takes half the time of `decode`.
        if text[:1] == "{" and _json.raw_decode(text)[1] == len(text):
            return True
        _json.decode(text)
    except (ValueError, RecursionError):
        return False
    return True
