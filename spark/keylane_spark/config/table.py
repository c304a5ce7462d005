"""What all tables of `keylane.toml` have in common."""

import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import CoreSchema, core_schema

_DURATION = re.compile(r"(\d{1,9}) ?(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration_ms(text: object) -> int:
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError('a duration is a number and a unit (ms, s, m, h, d), as in "30d"')
    return int(match[1]) * _UNITS_MS[match[2]]


Milliseconds = Annotated[int, BeforeValidator(_duration_ms)]
SomeMilliseconds = Annotated[Milliseconds, Field(ge=1)]


class OneOf:
    """Of a text in a table: it is one of these choices, which are listed elsewhere."""

    def __init__(self, choices: Iterable[str]) -> None:
        self.choices = list(choices)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Return what pydantic makes of a `Literal` of the choices."""
        return core_schema.literal_schema(self.choices)


class ConfigTable(BaseModel):
    """A table: unknown fields and values of another type are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
