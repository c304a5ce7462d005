"""The states of a view's columns: how two are merged, in any order of batches, and the value that one shows.

States are JSON as they are stored; decimals are strings, so that no digit is lost:

    count            number
    sum, min, max    decimal; null: there was no number
    avg              [sum, count]
    latest           [by, partition, offset, the value as JSON text]; null: there was no value
"""

import json
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

from keylane.state.codec import CodecError
from keylane.state.windows import Column

_EXACT = Context(prec=100, rounding=ROUND_HALF_EVEN)
_PLACES = Decimal("1e-9")


def merge_states(columns: Sequence[Column], one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    """Return the states of all of a window's records from the states of two parts of them."""
    return [_MERGE[c.kind](a, b) for c, a, b in zip(columns, one, other, strict=True)]


def render_columns(columns: Sequence[Column], states: Sequence[Any]) -> str:
    """Return the columns by name as a JSON object. Raises CodecError where the states do not fit."""
    try:
        pairs = zip(columns, states, strict=True)
        return f"{{{', '.join(f'{json.dumps(c.name)}: {_SHOW[c.kind](state)}' for c, state in pairs)}}}"
    except (ValueError, TypeError, ArithmeticError, IndexError) as error:
        raise CodecError(f"the states do not fit the view's columns: {error!r}") from error


def decimal_text(number: Decimal) -> str:
    """Return a JSON number without exponent and needless zeros: equal numbers have equal texts."""
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def add_decimals(one: str | None, other: Decimal | None) -> str | None:
    """Return the sum as a state has it, or None without a number."""
    return _add(one, None if other is None else decimal_text(other))


def _add(one: str | None, other: str | None) -> str | None:
    if one is None or other is None:
        return other if one is None else one
    return decimal_text(_EXACT.add(Decimal(one), Decimal(other)))


def _least(one: str | None, other: str | None) -> str | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other, key=Decimal)


def _most(one: str | None, other: str | None) -> str | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other, key=Decimal)


def _average(one: list[Any], other: list[Any]) -> list[Any]:
    return [_add(one[0], other[0]), one[1] + other[1]]


def _newer(one: list[Any] | None, other: list[Any] | None) -> list[Any] | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other, key=lambda state: (Decimal(state[0]), state[1], state[2]))


def _count(one: int, other: int) -> int:
    return one + other


def _shown_decimal(state: str | None) -> str:
    return "null" if state is None else decimal_text(Decimal(state))


def _shown_average(state: list[Any]) -> str:
    total, count = state
    if not count:
        return "null"
    return decimal_text(_EXACT.divide(Decimal(total), Decimal(count)).quantize(_PLACES, context=_EXACT))


def _shown_latest(state: list[Any] | None) -> str:
    return "null" if state is None else str(state[3])


_MERGE: dict[str, Callable[[Any, Any], Any]] = {
    "count": _count,
    "sum": _add,
    "min": _least,
    "max": _most,
    "avg": _average,
    "latest": _newer,
}
_SHOW: dict[str, Callable[[Any], str]] = {
    "count": lambda state: str(int(state)),
    "sum": _shown_decimal,
    "min": _shown_decimal,
    "max": _shown_decimal,
    "avg": _shown_average,
    "latest": _shown_latest,
}
KINDS = tuple(_MERGE)
