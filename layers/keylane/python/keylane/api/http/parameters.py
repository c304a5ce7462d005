"""Parameters of requests: each is parsed, bounded and described (for OpenAPI) in one place."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from keylane.errors import BadRequest
from keylane.model.records import Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.api.http.request import Request

SHOWN_CHARACTERS = 50
LAST_MS = 253_402_300_799_999
"""The end of the year 9999."""
FIELDS_LIMIT = 50
FIELD_CHARACTERS = 200

LONGEST_TIME = 64
"""Characters; the pattern below would take the square of the length."""
TIME_PATTERN = rf"[0-9].{{0,{LONGEST_TIME - 1}}}"
"""What every time matches: ISO 8601 has more forms than a pattern should list."""
_FIELD = r"\s*[^,.\s][^,.]*((\.[^,.]+)*\.\s*[^,.\s][^,.]*)?"
FIELDS_PATTERN = rf"{_FIELD}(,{_FIELD}){{0,{FIELDS_LIMIT - 1}}}"
_SPACED_ZONE = re.compile(r"(.*T.*\d) (\d\d:?\d\d)")
_POSITION = re.compile(r"\d+:\d+")
_LANE_DIGITS = 6


QUERY, HEADER = "query", "header"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `read` returns its value or raises ValueError, whose sentence says the bound.

    `place`: QUERY or HEADER.
    """

    name: str
    description: str
    schema: dict[str, Any]
    read: Callable[[str], Any]
    default: Any = None
    place: str = QUERY
    required: bool = False
    key: str = field(init=False)
    """Its name in a request: that of a header in lower case."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.name.lower() if self.place == HEADER else self.name)

    def of(self, request: Request) -> Any:
        """Return its value in a request; of one that is repeated in the query the last. Raises BadRequest."""
        if self.place == HEADER:
            text = request.headers.get(self.key)
            return self.default if text is None else self.parse(text)
        values = request.query.get(self.key)
        if values:
            return self.parse(values[-1])
        if self.required:
            raise BadRequest(f"{self.name} is missing: it is {self.description}", self.name)
        return self.default

    def parse(self, text: str) -> Any:
        """Return the value of a text. Raises BadRequest."""
        try:
            return self.read(text)
        except ValueError as error:
            raise BadRequest(f"{self.name} is {text[:SHOWN_CHARACTERS]!r}, {error}", self.name) from error


def matching(name: str, description: str, pattern: str, fault: str, *, place: str = QUERY) -> Parameter:
    """Make a parameter that is a text of a pattern. `fault`: what another text is."""
    compiled = re.compile(pattern)

    def read(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(fault)
        return text

    return Parameter(name, description, {"type": "string", "pattern": f"^{pattern}$"}, read, place=place)


def integer(name: str, description: str, least: int, most: int, default: int | None = None) -> Parameter:
    """Make a parameter that is an integer within bounds."""
    fault = f"not an integer from {least} to {most}"

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) + 1):
            raise ValueError(fault)
        if not least <= int(text) <= most:
            raise ValueError(fault)
        return int(text)

    schema: dict[str, Any] = {"type": "integer", "minimum": least, "maximum": most}
    if default is not None:
        schema["default"] = default
    return Parameter(name, description, schema, read, default)


def switch(name: str, description: str, *, default: bool = False) -> Parameter:
    """Make a parameter that is true or false."""

    def read(text: str) -> bool:
        if text not in {"true", "false"}:
            raise ValueError("neither true nor false")
        return text == "true"

    return Parameter(name, description, {"type": "boolean", "default": default}, read, default)


def choice(name: str, description: str, values: tuple[str, ...]) -> Parameter:
    """Make a parameter that is one of some words, the first by default."""

    def read(given: str) -> str:
        if given not in values:
            raise ValueError(f"neither {' nor '.join(values)}")
        return given

    schema = {"type": "string", "enum": list(values), "default": values[0]}
    return Parameter(name, description, schema, read, values[0])


def text(name: str, description: str, longest: int, pattern: str = "", **more: Any) -> Parameter:
    """Make a parameter of up to `longest` characters; the request's parser checks `pattern`."""

    def read(given: str) -> str:
        if len(given) > longest:
            raise ValueError(f"which has {len(given)} characters: {longest} at most are accepted")
        return given

    schema: dict[str, Any] = {"type": "string", "maxLength": longest}
    if pattern:
        schema["pattern"] = f"^{pattern}$"
    return Parameter(name, description, schema, read, **more)


def header(name: str, description: str) -> Parameter:
    """Make a header of any text and length."""
    return Parameter(name, description, {"type": "string"}, str, place=HEADER)


def position(name: str, description: str, **more: Any) -> Parameter:
    """Make a parameter that is a position, as in 3:1042."""

    def read(given: str) -> Position:
        try:
            return Position.parse(given.strip())
        except ValueError as error:
            raise ValueError("not a position: it looks like partition:offset, as in 3:1042") from error

    schema = {"type": "string", "pattern": r"^[0-9]{1,18}:[0-9]{1,18}$", "examples": ["3:1042"]}
    return Parameter(name, description, schema, read, **more)


def lane_range(name: str, description: str) -> Parameter:
    """Make a parameter that is a range of lanes by their numbers, both included, as in 0-3."""

    def read(given: str) -> tuple[int, int]:
        first, _, last = given.partition("-")
        if not all(each.isascii() and each.isdigit() and len(each) <= _LANE_DIGITS for each in (first, last)):
            raise ValueError("not a range of lanes: it looks like 0-3")
        if int(first) > int(last):
            raise ValueError("a range that ends before it begins")
        return int(first), int(last)

    digits = f"[0-9]{{1,{_LANE_DIGITS}}}"
    return Parameter(
        name, description, {"type": "string", "pattern": f"^{digits}-{digits}$", "examples": ["0-3"]}, read
    )


def moment(name: str, description: str) -> Parameter:
    """Make a parameter that is a time: ms since 1970, or ISO 8601; a time without a zone is UTC."""
    schema = {"type": "string", "pattern": f"^{TIME_PATTERN}$", "examples": ["2026-11-21T10:00:00Z"]}
    return Parameter(name, description, schema, read_moment)


def read_moment(given: str) -> int:
    """Return a time in ms since 1970. Raises ValueError."""
    from datetime import UTC, datetime  # noqa: PLC0415 (few requests have one, and every cold start is short)

    fault = "neither milliseconds since 1970 nor a time of ISO 8601 up to the year 9999"
    if given.isascii() and given.isdigit() and len(given) <= len(str(LAST_MS)):
        milliseconds = int(given)
    else:
        # A plus that is not percent-encoded is a space in a query.
        spaced = _SPACED_ZONE.fullmatch(given) if len(given) <= LONGEST_TIME else None
        try:
            when = datetime.fromisoformat(f"{spaced[1]}+{spaced[2]}" if spaced else given)
            milliseconds = _milliseconds(when if when.tzinfo else when.replace(tzinfo=UTC))
        except (ValueError, OverflowError) as error:
            raise ValueError(fault) from error
    if not 0 <= milliseconds <= LAST_MS:
        raise ValueError(fault)
    return milliseconds


def _milliseconds(when: Any) -> int:
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415 (as above)

    since: timedelta = when - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(milliseconds=1)


def read_as_of(given: str) -> int | Position:
    """Return a time in ms since 1970, or a position. Raises ValueError."""
    if _POSITION.fullmatch(given):
        try:
            return Position.parse(given)
        except ValueError as error:
            raise ValueError(f"not a position: {error}") from error
    try:
        return read_moment(given)
    except ValueError as error:
        raise ValueError(f"{error}, nor a position as 3:1042") from error


def read_fields(given: str) -> tuple[tuple[str, ...], ...]:
    """Return `a,b.c` as (("a",), ("b", "c")). Raises ValueError."""
    names = given.split(",")
    if len(names) > FIELDS_LIMIT:
        raise ValueError(f"which names {len(names)} fields: {FIELDS_LIMIT} at most are accepted")
    paths = tuple(tuple(name.strip().split(".")) for name in names)
    if not all(part for path in paths for part in path):
        raise ValueError("which names an empty field: it looks like a,b.c")
    if any(len(name) > FIELD_CHARACTERS for name in names):
        raise ValueError(f"which names a field of more than {FIELD_CHARACTERS} characters")
    return paths
