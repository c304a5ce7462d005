"""Values of fields as bytes in the order of the values, which is how indexes are sorted.

    text      its UTF-8, with 00 as 01 01 and 01 as 01 02; of more than 64 such bytes the first 64, then ff
    number    80                                     0
              81, exponent, digits                   above 0
              7f, exponent, digits, ff               below 0: each byte of exponent and digits is 255 minus it
    time      as the number of milliseconds since 1970
    boolean   66 (false), 74 (true)

A number is 0.d1d2d3... times 10 to the exponent, where d1 is not 0. The exponent + 32258 is written in base
254 as two bytes, each digit + 1. The decimal digits follow in pairs, each pair + 1, without zeros at the end.

No value contains the byte 00, so one 00 ends it: values of unequal lengths compare correctly, and several can
follow one another. A value has exactly one form, however it is rendered.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

TEXT_BYTES = 64
"""Longer texts are cut, and compared on the record where these bytes do not decide."""
MOST_DIGITS = 120
END = b"\0"
CUT = b"\xff"
ZERO, ABOVE, BELOW = b"\x80", b"\x81", b"\x7f"
"""How numbers begin."""
BASE, BIAS = 254, 32258
"""Of their exponents."""
_LONGEST_EXPONENT = 7
_COMPLEMENT = bytes(range(255, -1, -1))
_PAIRS = bytes(min(byte >> 4, 9) * 10 + min(byte & 15, 9) + 1 for byte in range(256))
"""Of two decimal digits, as of a hexadecimal byte: their number + 1."""
_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?", re.ASCII)
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
_LONGEST_KNOWN = 64
"""Characters of a text whose form is kept: a longer one comes from whoever wants the memory."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
LONGEST_TIME = 64


class NotOrdered(ValueError):
    """What is not a value of the type. `reason`: `type`, or `long` for one that no index can have."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


def encode_text(text: str) -> bytes:
    """Return a text's form. Raises NotOrdered for half a surrogate pair, which JSON can spell."""
    try:
        data = text.encode() if len(text) <= TEXT_BYTES else text[: TEXT_BYTES + 1].encode()
    except UnicodeEncodeError:
        raise NotOrdered("type", "is not valid Unicode") from None
    if b"\0" in data or b"\1" in data:
        data = data.replace(b"\1", b"\1\2").replace(b"\0", b"\1\1")
    return data if len(data) <= TEXT_BYTES else data[:TEXT_BYTES] + CUT


def is_cut(value: bytes) -> bool:
    """Return whether it is the form of texts that begin alike, and not of one text."""
    return value[-1:] == CUT and len(value) == TEXT_BYTES + 1


def encode_number(text: str) -> bytes:
    """Return a decimal number's form, as JSON writes numbers: exact, and one for 1, 1.0 and 10e-1."""
    return _known_number(text) if len(text) <= _LONGEST_KNOWN else _encode_number(text)


def _encode_number(text: str) -> bytes:
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise NotOrdered("type", "is not a number")
    sign, whole, fraction, exponent = found.groups()
    if exponent and len(exponent) > _LONGEST_EXPONENT:
        exponent = exponent[0].replace("+", "") + exponent[1:].lstrip("+0")
    digits = whole + (fraction or "")
    significant = digits.lstrip("0")
    first = len(whole) - (len(digits) - len(significant))
    significant = significant.rstrip("0")
    if not significant:
        return ZERO
    if len(significant) > MOST_DIGITS:
        raise NotOrdered("long", f"has more than {MOST_DIGITS} digits")
    if exponent and len(exponent) > _LONGEST_EXPONENT:
        raise NotOrdered("long", "has too large an exponent")
    biased = first + int(exponent or 0) + BIAS
    if not 0 <= biased < BASE * BASE:
        raise NotOrdered("long", "has too large an exponent")
    if len(significant) % 2:
        significant += "0"
    body = bytes((biased // BASE + 1, biased % BASE + 1)) + bytes.fromhex(significant).translate(_PAIRS)
    return BELOW + body.translate(_COMPLEMENT) + CUT if sign else ABOVE + body


_known_number = lru_cache(maxsize=4096)(_encode_number)


def encode_time(text: str) -> bytes:
    """Return the form of a time: ms since 1970, or ISO 8601 to the microsecond; without a zone it is UTC."""
    return _known_time(text) if len(text) <= _LONGEST_KNOWN else _encode_time(text)


def _encode_time(text: str) -> bytes:
    if _WHOLE.fullmatch(text) or _NUMBER.fullmatch(text):
        return encode_number(text)
    try:
        when = datetime.fromisoformat(text) if len(text) <= LONGEST_TIME else None
    except ValueError:
        when = None
    if when is None:
        raise NotOrdered("type", "is neither milliseconds since 1970 nor a time of ISO 8601")
    try:
        since = (when if when.tzinfo else when.replace(tzinfo=UTC)) - _EPOCH
    except OverflowError:
        raise NotOrdered("long", "is a time beyond the year 9999") from None
    return encode_number(f"{since // _MICROSECOND}e-3")


_known_time = lru_cache(maxsize=4096)(_encode_time)


def encode_boolean(text: str) -> bytes:
    """Return the form of `true` and `false`."""
    if text not in {"true", "false"}:
        raise NotOrdered("type", "is neither true nor false")
    return text[:1].encode()


class Interval(NamedTuple):
    """Forms from `low` on and below `high`; None: to the end."""

    low: bytes = b""
    high: bytes | None = None

    def has(self, value: bytes) -> bool:
        """Return whether a value's form is in it."""
        return self.low <= value and (self.high is None or value < self.high)


ALL = Interval()


def equal_to(value: bytes) -> Interval:
    """Return the interval of one form."""
    return Interval(value, up_to(value))


def up_to(value: bytes) -> bytes:
    """Return the `high` of an interval that has this form as its last.

    With 00 and whatever follows in an index, the form is below this; a longer form is not.
    """
    return value + b"\1"


def beginning_with(value: bytes) -> Interval:
    """Return the interval of all forms that begin with these bytes."""
    trimmed = value.rstrip(b"\xff")
    return Interval(value, trimmed[:-1] + bytes((trimmed[-1] + 1,)) if trimmed else None)
