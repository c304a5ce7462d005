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
    return [_AGGREGATES[c.kind][0](a, b) for c, a, b in zip(columns, one, other, strict=True)]


def render_columns(columns: Sequence[Column], states: Sequence[Any]) -> str:
    """Return the columns by name as a JSON object. Raises CodecError where the states do not fit."""
    try:
        pairs = zip(columns, states, strict=True)
        return (
            f"{{{', '.join(f'{json.dumps(c.name)}: {_AGGREGATES[c.kind][1](state)}' for c, state in pairs)}}}"
        )
    except (ValueError, TypeError, ArithmeticError, IndexError) as error:
        raise CodecError(f"the states do not fit the view's columns: {error!r}") from error


def decimal_text(number: Decimal) -> str:
    """Return a JSON number without exponent and needless zeros: equal numbers have equal texts."""
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def add_decimals(one: str | None, other: Decimal | None) -> str | None:
    """Return the sum as a state has it, or None without a number."""
    added: str | None = _add(one, None if other is None else decimal_text(other))
    return added


def _of_both(merge: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return what merges two states where there was something in both parts, else is that of the other."""

    def merged(one: Any, other: Any) -> Any:
        if one is None or other is None:
            return other if one is None else one
        return merge(one, other)

    return merged


_add = _of_both(lambda one, other: decimal_text(_EXACT.add(Decimal(one), Decimal(other))))


def _average(one: list[Any], other: list[Any]) -> list[Any]:
    return [_add(one[0], other[0]), one[1] + other[1]]


def _age(state: list[Any]) -> tuple[Decimal, int, int]:
    return Decimal(state[0]), state[1], state[2]


def _shown_decimal(state: str | None) -> str:
    return "null" if state is None else decimal_text(Decimal(state))


def _shown_average(state: list[Any]) -> str:
    total, count = state
    if not count:
        return "null"
    return decimal_text(_EXACT.divide(Decimal(total), Decimal(count)).quantize(_PLACES, context=_EXACT))


def _shown_latest(state: list[Any] | None) -> str:
    return "null" if state is None else str(state[3])


_Aggregate = tuple[Callable[[Any, Any], Any], Callable[[Any], str]]
_AGGREGATES: dict[str, _Aggregate] = {
    "count": (lambda one, other: one + other, lambda state: str(int(state))),
    "sum": (_add, _shown_decimal),
    "min": (_of_both(lambda one, other: min(one, other, key=Decimal)), _shown_decimal),
    "max": (_of_both(lambda one, other: max(one, other, key=Decimal)), _shown_decimal),
    "avg": (_average, _shown_average),
    "latest": (_of_both(lambda one, other: max(one, other, key=_age)), _shown_latest),
}
"""What merges two states, and what shows one."""
KINDS = tuple(_AGGREGATES)
