"""Views as they are stored: what a view computes, and the keys and bytes of its windows.

A view's windows are in lanes as a topic's records are, under the name `~view`, in the lane of their key:

    {tag}:~view:g:v:<window key>   envelope (codec; offset: the lane's commit that wrote it, timestamp: when
                                   it changed, ms) and JSON: {"end": ms or null, "states": [one a column]}, of
                                   a view of keys also "rows": see encode_window
    {tag}:~view:g:i:<lane>         the lane's window keys in order
    {tag}:~view:g:p:<lane>         JSON, see Progress
    {tag}:~view:g:c:<lane>         a list of JSON, see Closing: the newest ones, in their order
    {tag}:~view:g:r:<row key>      of a view of keys, as of a table's: what the row adds to which window, or
                                   the marker of one that is in none, see keylane_spark.views.row_states
    {tag}:~view:g:w:<lane>         as a topic's, but: next offset is the number of commits, and the newest
                                   timestamp is the event-time watermark: a window that ends by it is final

A window key is the key with each byte 00 followed by FF, then 00 01, then the window's start (ms since 1970,
i64 big-endian with its sign bit flipped): bytewise order is the order of keys, then of starts.
"""

import json
import struct
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from keylane.state.codec import ODD_JSON, CodecError

_START = struct.Struct(">Q")
_SIGN = 1 << 63
_END_OF_KEY = b"\x00\x01"

NAME_LIMIT = 240
"""Characters of a view's name: those that a topic's may have."""


def state_name(view: str) -> str:
    """Return the view's name in Redis, used like a topic's; no topic's name has a tilde."""
    return f"~{view}"


def view_of_state(name: str) -> str | None:
    """Return the name of the view whose name in Redis this is; None for that of a topic."""
    return name[1:] if name.startswith("~") else None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a view: `count`, `sum`, `min`, `max`, `avg` or `latest` of the field `path` (a.b.c).

    `by`: the field that orders `latest`; None: event time.
    """

    name: str
    kind: str
    path: str = ""
    by: str | None = None


LOG, KEYS = VIEWED = ("log", "keys")
"""What a view is of: of each record of the log, or of each key's latest one."""
_ROWS_VERSION = 2
"""Of the rows that lanes of a view of keys have (keylane_spark.views.row_states); such views name it."""
_LATER = {"value_format": "auto", "envelope": "none", "of": LOG}
"""Fields that views had not always, and their defaults, which are left out."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A view: which columns of which topic, by which key and time, in which windows.

    `key`, `time`: fields of the value; None: the record's own key and timestamp. `size_ms`: the size of a
    window, or the gap that ends a session; `every_ms`: how often a window begins. None for both: one window
    for all time. `ttl_ms`: a window is removed that long after its last change. `where`: a condition in SQL.
    `value_format`, `envelope`: the topic's, where they are "registry" and "debezium". `of`: one of VIEWED.
    """

    topic: str
    columns: tuple[Column, ...]
    key: str | None = None
    time: str | None = None
    size_ms: int | None = None
    every_ms: int | None = None
    is_session: bool = False
    lateness_ms: int = 0
    ttl_ms: int | None = None
    where: str | None = None
    value_format: str = "auto"
    envelope: str = "none"
    of: str = LOG

    @property
    def has_rows(self) -> bool:
        """Whether the windows are of rows, which change: those of a table, or each key's latest record.

        What a row was before a change leaves them.
        """
        return self.envelope != "none" or self.of == KEYS

    @property
    def window(self) -> str:
        """The kind of window: tumbling, hopping, session or none."""
        if self.size_ms is None:
            return "none"
        if self.is_session:
            return "session"
        return "tumbling" if self.every_ms in (None, self.size_ms) else "hopping"

    def closes_by(self, watermark_ms: int) -> int | None:
        """Return the last end of a window that an event-time watermark has reached, None for none.

        Watermarks with the same last end make the same records late. Sessions may end at any time: theirs
        count in steps of a 60th of the gap.
        """
        if self.size_ms is None or watermark_ms <= 0:
            return None
        if self.is_session:
            return watermark_ms - watermark_ms % max(1, self.size_ms // 60)
        return watermark_ms - (watermark_ms - self.size_ms) % (self.every_ms or self.size_ms)

    @property
    def windows_per_event(self) -> int:
        """The number of windows that an event may belong to."""
        return -(-(self.size_ms or 1) // (self.every_ms or self.size_ms or 1))

    def to_json(self) -> str:
        """Return JSON text; equal views have equal texts, those of earlier versions too."""
        fields = {
            name: each for name, each in asdict(self).items() if name not in _LATER or _LATER[name] != each
        }
        return json.dumps(fields | ({"rows": _ROWS_VERSION} if self.has_rows else {}), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the view. Raises CodecError."""
        try:
            fields = json.loads(text)
            columns = tuple(Column(**column) for column in fields.pop("columns"))
            fields.pop("rows", None)
            return cls(columns=columns, **fields)
        except ODD_JSON as error:
            raise CodecError(f"this is not a view: {error!r}") from error


def escaped(key: bytes) -> bytes:
    """Return the key's bytes as its window keys begin with them."""
    return key.replace(b"\x00", b"\x00\xff")


def window_key(key: bytes, start_ms: int) -> bytes:
    """Return the window key of the key's window that starts at a time."""
    return escaped(key) + _END_OF_KEY + _START.pack((start_ms + _SIGN) % (1 << 64))


def split(name: bytes) -> tuple[bytes, int]:
    """Return key and start of a window key. Raises CodecError."""
    body, end, start = name[:-10], name[-10:-8], name[-8:]
    if end != _END_OF_KEY or b"\x00" in body.replace(b"\x00\xff", b""):
        raise CodecError(f"{name[:100]!r} is not a window key")
    (number,) = _START.unpack(start)
    return body.replace(b"\x00\xff", b"\x00"), number - _SIGN


def is_final(end_ms: int | None, watermark_ms: int) -> bool:
    """Return whether a window changes no more: the event-time watermark (0: none yet) has reached its end."""
    return end_ms is not None and watermark_ms > 0 and end_ms <= watermark_ms


def encode_window(end_ms: int | None, states: list[Any], rows: list[int] | None = None) -> bytes:
    """Return a window's value; `states` as in `aggregates`.

    `rows`: of a view over a table, how many rows the window has, then how many of them each column counts.
    """
    fields = {"end": end_ms, "states": states} | ({} if rows is None else {"rows": rows})
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_window(value: bytes) -> tuple[int | None, list[Any]]:
    """Return end and states. Raises CodecError."""
    try:
        fields = json.loads(value)
        return fields["end"], list(fields["states"])
    except ODD_JSON as error:
        raise CodecError(f"this is not a window: {error!r}") from error


def decode_rows(value: bytes) -> tuple[list[int], list[Any]]:
    """Return rows and states of a window of a view over a table. Raises CodecError."""
    try:
        fields = json.loads(value)
        return list(map(int, fields["rows"])), list(fields["states"])
    except ODD_JSON as error:
        raise CodecError(f"this is not a window of rows: {error!r}") from error


_ALWAYS = frozenset({"offsets", "times_ms", "late", "invalid"})


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a lane of a view is.

    `offsets`: for each partition of the topic the next offset; all below is in the lane's windows.
    `times_ms`: the newest event time of each partition, None where there is none yet. `late`: how often a
    record came when a window of its was final. Counted by one lane: `invalid`, records without a key or time;
    `failed`, those that the view could not compute, and where the last one is. `stopped`: why the view has
    stopped, "" while it runs.
    """

    offsets: tuple[int, ...]
    times_ms: tuple[int | None, ...] = field(default=())
    late: int = 0
    invalid: int = 0
    failed: int = 0
    failed_at: str = ""
    stopped: str = ""

    def to_json(self) -> bytes:
        """Return JSON in UTF-8, without the fields of trouble that there is none of."""
        fields = {name: each for name, each in asdict(self).items() if name in _ALWAYS or each}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Return the progress. Raises CodecError."""
        try:
            fields = json.loads(data)
            times = tuple(None if time is None else int(time) for time in fields["times_ms"])
            return cls(
                tuple(map(int, fields["offsets"])),
                times,
                int(fields["late"]),
                int(fields["invalid"]),
                int(fields.get("failed", 0)),
                str(fields.get("failed_at", "")),
                str(fields.get("stopped", "")),
            )
        except ODD_JSON as error:
            raise CodecError(f"this is not the progress of a view: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Closing:
    """From these offsets on, records are late for windows that end by `watermark_ms`.

    `offsets`: one for each partition of the topic; partitions that were added later count from 0. Which
    records are late depends on when partitions were read, so it is stored: whoever reads the same records
    again decides the same.
    """

    offsets: tuple[int, ...]
    watermark_ms: int

    def to_json(self) -> bytes:
        """Return JSON in UTF-8."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Return the closing. Raises CodecError."""
        try:
            fields = json.loads(data)
            return cls(tuple(map(int, fields["offsets"])), int(fields["watermark_ms"]))
        except ODD_JSON as error:
            raise CodecError(f"this is not a closing of a view: {error!r}") from error
