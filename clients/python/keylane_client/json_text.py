"""JSON of any topic: whoever may write chooses its numbers, and none of them stops whoever reads.

Python's parser refuses integers of more than 4,300 digits, Decimal exponents of more than 18. A page, a
snapshot or a mapping that has one such value would not be there at all.
"""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any


class HugeNumber(float):
    """A number whose exponent is beyond Decimal's: 0 or an infinity. `digits`: as it is written."""

    digits: str

    def __new__(cls, digits: str) -> "HugeNumber":  # noqa: PYI034 (typing has no Self in Python 3.10)
        """Keep how the number is written."""
        number = super().__new__(cls, digits)
        number.digits = digits
        return number


def parse_json(text: str | bytes, *, parse_float: Callable[[str], Any] | None = None) -> Any:
    """Parse JSON as `json.loads`; an integer of more digits than Python converts is a Decimal."""
    try:
        return json.loads(text, parse_float=parse_float)
    except json.JSONDecodeError:
        raise
    except ValueError:  # of an integer of more than sys.get_int_max_str_digits()
        return json.loads(text, parse_float=parse_float, parse_int=_integer)


def _integer(digits: str) -> int | Decimal:
    try:
        return int(digits)
    except ValueError:
        return Decimal(digits)


def exact_number(digits: str) -> Decimal | HugeNumber:
    """Return a number with all of its digits, as `parse_float` of a parser of JSON."""
    try:
        return Decimal(digits)
    except InvalidOperation:
        return HugeNumber(digits)


parse_exactly = partial(parse_json, parse_float=exact_number)
"""Parses JSON without losing a digit of a number."""


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def render_exactly(value: Any, quote: Callable[[Any], str] = _plain, space: str = " ") -> str:
    """Return JSON with the numbers that `parse_exactly` has made.

    `quote`: renders all else. `space`: what stands behind commas and colons. Raises RecursionError.
    """
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, HugeNumber):
        return value.digits
    # Loops, not comprehensions: one call for each level, of which the service shows 500.
    parts: list[str] = []
    if isinstance(value, Mapping):
        for name, each in value.items():
            parts.append(f"{quote(str(name))}:{space}{render_exactly(each, quote, space)}")
        return f"{{{f',{space}'.join(parts)}}}"
    if isinstance(value, (list, tuple)):
        for each in value:
            parts.append(render_exactly(each, quote, space))  # noqa: PERF401
        return f"[{f',{space}'.join(parts)}]"
    return quote(value)
