"""Keylane's own terms as values: positions, layouts, records, watermarks. Nothing here knows a server."""

import re
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, NamedTuple, Self, TypeAlias

_TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_LONGEST_TOPIC = 249


def is_topic_name(name: str) -> bool:
    """Return whether Kafka accepts it as a topic's name."""
    return len(name) <= _LONGEST_TOPIC and _is_topic_name(name)


@lru_cache(1_000)
def _is_topic_name(name: str) -> bool:
    return _TOPIC_NAME.fullmatch(name) is not None


MAX_LANES = 16384
"""The most lanes of one topic: each has a hash slot at least."""

WHOLE_KEY = "key"
"""`partition_by` of a topic whose partitions are computed from the whole key."""

TRACEPARENT = "traceparent"
"""The header of a record, as of a request, that names its trace."""

_MAX_DIGITS = 18  # always below 2**63


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A partition and an offset of a topic: what a write returns, and what a read can wait for."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `"3:1042"`. Raises ValueError, which says what is wrong."""
        partition, separator, offset = text.partition(":")
        if not separator or not _is_u63(partition) or not _is_u63(offset):
            raise ValueError(f"{text!r} is not a position: it looks like partition:offset, as in 3:1042")
        return cls(int(partition), int(offset))


def _is_u63(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


VALUE_FORMATS = ("auto", "json", "text", "bytes", "registry")
"""`auto`: the bytes decide; `registry`: Confluent's wire format, by a Schema Registry."""
NOT_JSON = frozenset({"text", "bytes"})
"""Those that never are JSON, so that they have no fields, rows or change events."""

ENVELOPES = ("none", "debezium")
"""What values are: `none`: the value itself; `debezium`: a change event of a row, see `change_events`."""

KEY_FORMATS = ("text", "registry")
"""What keys are: `text`: their bytes; `registry`: Confluent's wire format, by the topic's schemas of keys."""

COMPRESSIONS = ("none", "zstd")
"""How values are compressed in Redis: `zstd`: by a dictionary of their topic's, see `state.compression`."""

KEY_KINDS = ("integer", "string", "boolean")
KeyFields: TypeAlias = tuple[tuple[str, str], ...]
"""The fields of keys that are JSON objects, in their order there: names and KEY_KINDS."""

MOST_INDEXES, MOST_TOGETHER = 32, 3
"""Fields and indexes of a topic, and fields of one index."""

UNSTORED = frozenset({"marker_ms", "value_format", "key_fields", "key_schema", "key_format"})
"""Options that can change without a new generation: stored records stay as they are."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a topic's state keeps of its records. All but the `UNSTORED` ones decide what is stored.

    `ttl_ms`: a record is removed that long after its timestamp. `history_count`, `history_age_ms`: how many
    records of a key its history keeps, and for how long; with neither there is no history. `index`: in how
    many parts lanes keep their live keys in order, 0: they do not. `insert_once`: a key's first value stays
    until a tombstone. `headers`: are kept. `guarded`: strays are expected from the first record on.
    `max_value_bytes`: a larger value is left in Kafka, and the state keeps its position. `marker_ms`: how
    long a tombstone leaves a marker, so that no older record comes back from another partition; 0: not at
    all. `value_format`: how readers decode values, one of VALUE_FORMATS. `envelope`: what they are then, one
    of ENVELOPES. `key_fields`: of keys that clients ask for by the values in them; `key_schema`: the same,
    where Connect's converter writes a schema into each key; `key_format`: one of KEY_FORMATS. `fields`: of
    values, by which records are found: names, as in a.b, and FIELD_TYPES, in the order of the names.
    `indexes`: names, and the fields that are indexed together. `view`: the definition of a view whose windows
    are stored, as JSON. `transform`: what values become before they are stored, as JSON that only the writer
    reads. `compression`: how values are compressed, one of COMPRESSIONS.
    """

    ttl_ms: int | None = None
    history_count: int | None = None
    history_age_ms: int | None = None
    index: int = 0
    insert_once: bool = False
    headers: bool = False
    guarded: bool = False
    max_value_bytes: int = 4 * 1024 * 1024
    marker_ms: int = 24 * 3600 * 1000
    value_format: str = "auto"
    envelope: str = "none"
    key_fields: KeyFields = ()
    key_schema: str = ""
    key_format: str = "text"
    fields: tuple[tuple[str, str], ...] = ()
    indexes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    view: str | None = None
    transform: str | None = None
    compression: str = "none"

    @property
    def has_typed_keys(self) -> bool:
        """Whether clients ask for keys by the values in them."""
        return bool(self.key_fields or self.key_schema) or self.key_format == "registry"

    @property
    def has_history(self) -> bool:
        """Whether a key's earlier records are kept."""
        return self.history_count is not None or self.history_age_ms is not None

    @property
    def compared(self) -> bool:
        """Whether every record is compared with the stored one, and not only where a lane has met strays."""
        has_expiry = self.ttl_ms is not None
        return self.guarded or self.insert_once or self.index > 0 or self.has_history or has_expiry

    @property
    def in_log_order(self) -> bool:
        """Whether a lane without strays takes records as they come, without a look at what is stored."""
        expires = self.ttl_ms is not None or self.history_age_ms is not None
        return not (self.guarded or self.insert_once or expires)

    def to_dict(self) -> dict[str, Any]:
        """Return the options that differ from the defaults, for JSON.

        An index in several parts has its own name: a reader that does not know it finds no index, not an
        empty one.
        """
        changed = {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        }
        if self.index:
            index = changed.pop("index")
            changed |= {"index": True} if index == 1 else {"index_parts": index}
        return changed

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Self:
        """Return options from `to_dict`'s fields. Unknown names are a newer writer's: they are ignored."""
        known = {field.name for field in fields(cls)}
        index = int(given.get("index_parts", given.get("index", 0)))
        own = {name: value for name, value in given.items() if name in known} | {"index": index}
        if "key_fields" in own:
            own["key_fields"] = tuple((str(name), str(kind)) for name, kind in own["key_fields"])
        if "fields" in own:
            own["fields"] = tuple((str(name), str(kind)) for name, kind in own["fields"])
        if "indexes" in own:
            own["indexes"] = tuple((str(name), tuple(map(str, parts))) for name, parts in own["indexes"])
        return cls(**own)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a topic is laid out in the cluster: what a reader must know to find a key.

    `partition_by`: the part of a key that determines partition and stripe, see `routing.partition_key`.
    `centered`: lanes are in the middle of their shares of the slots, see `routing.slot_for`.
    `incarnation`: the epoch of the writer that began to read this log; a topic that is created again, whose
    log was truncated, or whose state missed deletions, gets another one. 0: an older writer stored none.
    """

    topic: str
    partition_count: int
    stripes: int = 1
    partitioner: str = "murmur2"
    generation: int = 1
    options: Options = Options()
    partition_by: str = WHOLE_KEY
    incarnation: int = 0
    centered: bool = True


@dataclass(frozen=True, slots=True)
class ValueForm:
    """The format of a record's value, where it is known and not guessed from the bytes.

    `name`: `json`, `text` or `base64` (for bytes). `schema_id`, `schema_type`: the schema by which the value
    was decoded, or should have been. `undecoded`: why it is shown as bytes instead.
    """

    name: str
    schema_id: int | None = None
    schema_type: str | None = None
    undecoded: str | None = None


class Record(NamedTuple):
    """The latest record of a key as its lane stores it.

    A tuple, like Answer: a page has up to a thousand, and a frozen dataclass takes three times as long.

    `partition` is the source partition: the key's own, unless the record is a stray.
    `timestamp_ms`: 0 where it has none, as of a `HistoryEntry` (docs/http/README.md#times).
    `left_in_kafka_bytes`: the size of a value over the topic's limit; `value` is empty then.
    `form`: the format of the value; a decoded value is JSON text in UTF-8.
    `entries`: what indexes of fields have of the record, as of `state.field_index`.
    """

    key: bytes
    value: bytes
    partition: int
    offset: int
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
    left_in_kafka_bytes: int | None = None
    form: ValueForm | None = None
    entries: bytes = b""

    @property
    def position(self) -> Position:
        """The record's position in the topic."""
        return Position(self.partition, self.offset)


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to write. `value` None: a tombstone; `key` None: a record without a key.

    `partition` None: the topic's partitioner chooses it; `timestamp_ms` None: the time of writing.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Queued:
    """A record in the write-ahead log; in Kafka it will have the id in its header `keylane-id`."""

    id: str


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One record of a key's history; `record` is None for a tombstone."""

    position: Position
    timestamp_ms: int
    record: Record | None


class Watermark(NamedTuple):
    """What a lane reports of itself.

    `next_offset`: everything below it is in the state.
    `newest_timestamp_ms`: the newest record's timestamp, 0 where there is none.
    `complete_as_of_ms`: a wall-clock time at which the lane held all that the broker had, 0 for never.
    `log_end`: the partition's end when the writer last looked, 0 where it never did.
    `superseded`: a newer generation has taken over. `incomplete`: retention removed records before the lane
    saw them. `has_strays`: the lane has met records of other partitions, and compares before it writes.
    `missed_deletions`: compaction may have removed tombstones before the lane saw them; it is incomplete too.
    `gave_strays`: of a partition's first lane: other lanes have records of the partition.
    """

    next_offset: int
    epoch: int
    newest_timestamp_ms: int = 0
    complete_as_of_ms: int = 0
    superseded: bool = False
    incomplete: bool = False
    has_strays: bool = False
    log_end: int = 0
    missed_deletions: bool = False
    gave_strays: bool = False

    @property
    def lag(self) -> int:
        """How many offsets the lane is behind the partition's end."""
        return max(0, self.log_end - self.next_offset)

    def least(self, other: "Watermark") -> "Watermark":
        """Return what both claim: all that may be said of data that was read under either of them."""
        return self._replace(
            next_offset=min(self.next_offset, other.next_offset),
            newest_timestamp_ms=min(self.newest_timestamp_ms, other.newest_timestamp_ms),
            complete_as_of_ms=min(self.complete_as_of_ms, other.complete_as_of_ms),
            superseded=self.superseded or other.superseded,
            incomplete=self.incomplete or other.incomplete,
        )


class Answer(NamedTuple):
    """What a read of one key found, and the watermark of its lane. `record` None: the key is absent."""

    layout: Layout
    partition: int
    record: Record | None
    watermark: Watermark

    @property
    def is_building(self) -> bool:
        """Whether the lane was never complete: it has no age, and what it lacks may still come."""
        return not self.watermark.complete_as_of_ms

    def age_ms(self, now_ms: int) -> int:
        """Return a bound on staleness: nothing that was acknowledged longer ago is missing."""
        return max(0, now_ms - self.watermark.complete_as_of_ms)
