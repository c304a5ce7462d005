"""Readers of Avro's primitive and logical types; each takes an `Input` and returns what json.dumps takes.

Source: the Avro 1.12 specification, "Binary Encoding" and "Logical Types". What JSON cannot express:

    bytes, fixed            base64
    NaN, Infinity           "NaN", "Infinity", "-Infinity", as in Protobuf's JSON mapping
    decimal                 its digits as a string: "12.50"
    date                    "2013-01-01"
    time-*                  "10:00:00.000", with 3 or 6 digits, as in the type
    timestamp-*             "2013-01-01T10:00:00.000Z", with 3, 6 or 9 digits
    local-timestamp-*       the same without Z
    uuid                    its usual form: "7d0cd9a8-..."

A date outside the years 1 to 9999, and a time outside the day, stays a number.
"""

import base64
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

Reader = Callable[["Input"], Any]

EMPTY_ITEMS_LIMIT = 10_000
FIELDS_PER_BYTE = 16
"""Records nest: a byte may lie in so many of them, on average."""
OUTPUT_LIMIT = 32 * 1024 * 1024
"""Characters that the schema adds to a value's JSON: names, symbols, zeros. An answer has 6 MB at most."""
CHEAP = 64
"""What a schema adds once, up to this length, is not counted."""
MOST_LEVELS = 400
"""Of records, arrays and maps: each takes two of Python's 1,000 frames, and whoever calls has some."""
_MOST_DECIMAL_BYTES = 1_785
"""Python makes texts of up to 4,300 digits."""
_LONGEST_VARINT_BITS = 70
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = _EPOCH.toordinal()
_DAY_S = 86_400
_DIGITS = {"millis": 3, "micros": 6, "nanos": 9}
_LARGEST_SINGLE = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


class Input:
    """The bytes of one value, read from the front. All methods raise ValueError for invalid bytes.

    `items`: how many items all arrays and maps may have; an item takes at least a byte, unless it is empty.
    `fields`: how many fields all records may have. `output`: what the schema may add to the JSON, as a small
    schema can make gigabytes of a value without bytes.
    """

    __slots__ = ("at", "data", "fields", "items", "levels", "output")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.items = len(data) + EMPTY_ITEMS_LIMIT
        self.fields = FIELDS_PER_BYTE * len(data) + EMPTY_ITEMS_LIMIT
        self.output = OUTPUT_LIMIT
        self.levels = 0

    def enter(self) -> None:
        """Count a level; whoever leaves it subtracts it. Raises RecursionError for one too many."""
        self.levels += 1
        if self.levels > MOST_LEVELS:
            raise RecursionError

    def spend(self, fields: int, output: int) -> None:
        """Count a record's fields, and what the schema adds to the JSON. Raises ValueError over a limit."""
        self.fields -= fields
        self.output -= output
        if self.fields < 0:
            raise ValueError(
                f"the records before byte {self.at} have far more fields than the value has bytes"
            )
        if self.output < 0:
            raise ValueError(f"the value's JSON is over {OUTPUT_LIMIT} characters at byte {self.at}")

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        end = self.at + count
        if count < 0 or end > len(self.data):
            left = len(self.data) - self.at
            raise ValueError(f"{count} bytes are expected at byte {self.at}, {left} are left")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def long(self) -> int:
        """A zigzag varint."""
        data, at, shift, found = self.data, self.at, 0, 0
        try:
            while (byte := data[at]) & 0x80:
                found |= (byte & 0x7F) << shift
                at, shift = at + 1, shift + 7
                if shift >= _LONGEST_VARINT_BITS:
                    raise ValueError(f"the integer at byte {self.at} has more than 64 bits")
        except IndexError:
            raise ValueError(f"the value ends within the integer at byte {self.at}") from None
        found |= byte << shift
        if found >> 64:
            raise ValueError(f"the integer at byte {self.at} has more than 64 bits")
        self.at = at + 1
        return found >> 1 ^ -(found & 1)

    def block(self) -> int:
        """The item count of the next block of an array or map, 0 at its end."""
        count = self.long()
        if count < 0:
            count = -count
            self.long()  # the block's size in bytes, for readers that skip it
        self.items -= count
        if self.items < 0:
            raise ValueError(f"an array before byte {self.at} claims more items than the value has bytes")
        return count


def null(_: Input) -> None:
    """No bytes at all."""


def boolean(source: Input) -> bool:
    """One byte, 0 or 1."""
    byte = source.take(1)[0]
    if byte > 1:
        raise ValueError(f"{byte} is not a boolean")
    return byte == 1


def double(source: Input) -> float | str:
    """Eight bytes."""
    return _number(struct.unpack("<d", source.take(8))[0])


def single(source: Input) -> float | str:
    """Four bytes, as the number with the fewest digits that encodes to them."""
    packed = source.take(4)
    (found,) = struct.unpack("<f", packed)
    for digits in (6, 7, 8):
        short = float(f"{found:.{digits}g}")
        if abs(short) <= _LARGEST_SINGLE and struct.pack("<f", short) == packed:
            return short
    return _number(found)


def _number(found: float) -> float | str:
    if found - found == 0:
        return found
    return "NaN" if found != found else "Infinity" if found > 0 else "-Infinity"  # noqa: PLR0124 (that is NaN)


def raw(source: Input) -> bytes:
    """A length, then that many bytes."""
    return source.take(source.long())


def string(source: Input) -> str:
    """UTF-8."""
    return raw(source).decode()


def as_base64(read: Reader) -> Reader:
    """What `read` returns, in base64."""
    return lambda source: base64.b64encode(read(source)).decode()


def as_decimal(read: Reader, scale: int) -> Reader:
    """The digits of a big-endian integer, the last `scale` of them after the decimal point."""

    def decimal(source: Input) -> str:
        if scale > CHEAP:
            source.spend(0, scale)
        data = read(source)
        if len(data) > _MOST_DECIMAL_BYTES:
            raise ValueError(f"a decimal of {len(data)} bytes has too many digits")
        unscaled = int.from_bytes(data, "big", signed=True)
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        point = f".{digits[-scale:]}" if scale else ""
        return f"{'-' if unscaled < 0 else ''}{digits[: len(digits) - scale]}{point}"

    return decimal


def as_uuid(read: Reader) -> Reader:
    """Sixteen bytes as a UUID."""
    return lambda source: str(UUID(bytes=read(source)))


def _date(source: Input) -> str | int:
    days = source.long()
    try:
        return date.fromordinal(_EPOCH_DAY + days).isoformat()
    except (ValueError, OverflowError):
        return days


def _time(source: Input, digits: int) -> str | int:
    count = source.long()
    seconds, fraction = divmod(count, 10**digits)
    if not 0 <= seconds < _DAY_S:
        return count
    hours, rest = divmod(seconds, 3600)
    return f"{hours:02}:{rest // 60:02}:{rest % 60:02}.{fraction:0{digits}}"


def _timestamp(source: Input, digits: int, zone: str) -> str | int:
    count = source.long()
    seconds, fraction = divmod(count, 10**digits)
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return count
    return f"{moment.isoformat()[:19]}.{fraction:0{digits}}{zone}"


LOGICAL: dict[tuple[str, str], Reader] = {
    ("int", "date"): _date,
    ("int", "time-millis"): partial(_time, digits=3),
    ("long", "time-micros"): partial(_time, digits=6),
    **{
        ("long", f"{local}timestamp-{unit}"): partial(_timestamp, digits=digits, zone=zone)
        for unit, digits in _DIGITS.items()
        for local, zone in (("", "Z"), ("local-", ""))
    },
}
"""By type and logical type. A logical type that is neither here nor in `avro_reader` is read as its type."""
