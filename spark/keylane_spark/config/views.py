"""A view's table in `keylane.toml`: docs/configuration/topics.md says what each option does."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from keylane.model.records import COMPRESSIONS, MAX_LANES
from keylane.state.aggregates import KINDS
from keylane.state.windows import LOG, VIEWED, Column, Definition
from keylane_spark.config.table import ConfigTable, Milliseconds, OneOf, SomeMilliseconds

MAX_WINDOWS = 1000
"""The most windows that one event may fall into."""
LONGEST_SESSION_MS = 100_000_000 * 86_400_000
"""Spark has microseconds in 64 bits: it has no sessions, and no records, where a longer one ends."""
_KINDS_OF_ROWS = ("count", "sum", "avg")
_NOT_OF_ROWS = ("time", "window", "every", "session", "lateness")
_OF_TABLE = "the view's topic has an envelope, so its records are changes of rows", "row"
_OF_KEYS = "the view is of keys", "key"
_PATH = r'[^\s,()."\']+(?:\.[^\s,()."\']+)*'
_COLUMN = re.compile(rf"(?P<kind>[a-z]+)\(\s*(?P<path>{_PATH})?\s*(?:,\s*by\s+(?P<by>{_PATH})\s*)?\)")


def _column(text: object) -> Any:
    match = _COLUMN.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or match["kind"] not in KINDS:
        raise ValueError(f'a column is one of {", ".join(KINDS)} and a field, as in "sum(amount)"')
    kind, path, by = match["kind"], match["path"], match["by"]
    if path is None and kind not in ("count", "latest"):
        raise ValueError(f'{kind} needs a field, as in "{kind}(amount)"')
    if by and kind != "latest":
        raise ValueError('only latest takes another field, as in "latest(state, by version)"')
    return Column("", kind, path or "", by)


ColumnText = Annotated[Column, BeforeValidator(_column)]
Path = Annotated[str, Field(pattern=f"^{_PATH}$")]


class ViewConfig(ConfigTable):
    """One view."""

    topic: str
    of: Annotated[str, OneOf(VIEWED)] | None = None
    key: Path | None = None
    time: Path | None = None
    window: SomeMilliseconds | None = None
    every: SomeMilliseconds | None = None
    session: SomeMilliseconds | None = None
    lateness: Milliseconds = 0
    ttl: SomeMilliseconds | None = None
    where: str | None = None
    partitions: Annotated[int, Field(ge=1, le=MAX_LANES)] | None = None
    compression: Annotated[str, OneOf(COMPRESSIONS)] = "none"
    columns: Annotated[dict[str, ColumnText], Field(min_length=1, max_length=100)]

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.session and (self.window or self.every):
            raise ValueError("session replaces window and every: remove these")
        if self.session and self.session > LONGEST_SESSION_MS:
            raise ValueError('a session is at most "100000000d": without session there is one total')
        if self.every and not self.window:
            raise ValueError("every needs a window, which says how long each one lasts")
        if self.window and self.every and self.every > self.window:
            raise ValueError("every is longer than the window: events between two windows would be lost")
        if self.window and self.every and self.window > MAX_WINDOWS * self.every:
            raise ValueError(f"an event would be in more than {MAX_WINDOWS} windows")
        if self.lateness and not (self.window or self.session):
            raise ValueError("lateness needs a window or session: without one no window is ever final")
        needed = (self.window or self.session or 0) + self.lateness
        if self.ttl is not None and self.ttl < needed:
            raise ValueError(
                "ttl is shorter than window and lateness: a window would expire before it is final"
            )
        return self

    def refusals_of_rows(self, *, of_table: bool) -> Iterator[tuple[list[str], str]]:
        """What a view of keys can't have, or one `of_table`'s change events: the fields, and the reasons."""
        why, row = _OF_TABLE if of_table else _OF_KEYS
        if of_table and self.of == LOG:
            yield ["of"], f'{why}: a view of it is of "keys"'
        for name in _NOT_OF_ROWS:
            if getattr(self, name):
                yield [name], f"{why}, and a {row} may change at any time: no window of {row}s is ever final"
        if self.ttl is not None:
            yield ["ttl"], f"{why}: a group that expired would lack the {row}s that it still has"
        for name, column in self.columns.items():
            if column.kind not in _KINDS_OF_ROWS:
                yield (
                    ["columns", name],
                    f"{why}: {column.kind} does not say what is left once a {row} is gone",
                )

    @property
    def definition(self) -> Definition:
        """The part of this table that is stored in the layout."""
        return Definition(
            topic=self.topic,
            columns=tuple(Column(name, c.kind, c.path, c.by) for name, c in self.columns.items()),
            key=self.key,
            time=self.time,
            size_ms=self.session or self.window,
            every_ms=self.every,
            is_session=self.session is not None,
            lateness_ms=self.lateness,
            ttl_ms=self.ttl,
            where=self.where,
        )
