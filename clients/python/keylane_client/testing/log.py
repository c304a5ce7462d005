"""Topics of the fake: a log with partitions, and what a reader finds in it."""

import base64
import json
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KEY_LIMIT_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class FakeRecord:
    """A record of the log; `value` is None for a tombstone."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes | None]] = ()

    def document(self, topic: "FakeTopic") -> dict[str, Any]:
        """Return it as answers of several records have it."""
        found = {
            "topic": topic.name,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp_ms,
            "position": f"{self.partition}:{self.offset}",
            "watermark": f"{self.partition}:{topic.end(self.partition)}",
            "age_ms": 0,
            **content("key", self.key, is_key=True),
        }
        found["headers"] = [{"name": name, **content("value", value)} for name, value in self.headers]
        if self.value is None:
            return {**found, "deleted": True, "value": None, "value_format": "null"}
        return found | content("value", self.value)


def content(name: str, data: bytes | None, *, is_key: bool = False) -> dict[str, Any]:
    """Return bytes as a document has them: as JSON, as text, or as base64."""
    if data is None:
        return {name: None, f"{name}_format": "null"}
    if not is_key and (parsed := parse_json(data)) is not NOT_JSON:
        return {name: parsed, f"{name}_format": "json"}
    try:
        return {name: data.decode(), f"{name}_format": "text"}
    except UnicodeDecodeError:
        return {name: base64.b64encode(data).decode(), f"{name}_format": "base64"}


NOT_JSON: Any = object()
"""What `parse_json` returns for bytes that are not JSON."""


def parse_json(data: bytes) -> Any:
    """Return bytes as JSON has them, or NOT_JSON."""
    try:
        return json.loads(data)
    except ValueError:
        return NOT_JSON


@dataclass(slots=True)
class FakeTopic:
    """A topic: what was written, in its order."""

    name: str
    partitions: int
    fields: Mapping[str, str] = field(default_factory=dict)
    records: list[FakeRecord] = field(default_factory=list)

    def end(self, partition: int) -> int:
        """Return the next offset of a partition."""
        return sum(each.partition == partition for each in self.records)

    def ends(self) -> dict[str, int]:
        """Return the next offset of each partition, as watermarks have it."""
        return {str(number): self.end(number) for number in range(self.partitions)}

    def partition_of(self, key: bytes) -> int:
        """Return the partition of a key; another one than Kafka's clients choose."""
        return zlib.crc32(key) % self.partitions

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        given: Mapping[str, Any] | None = None,
    ) -> FakeRecord:
        """Write a record; `given` may have its partition and timestamp."""
        given = given or {}
        partition = given.get("partition")
        if partition is None:
            partition = self.partition_of(key or b"")
        now_ms = given.get("timestamp") or time.time_ns() // 1_000_000
        record = FakeRecord(partition, self.end(partition), key, value, now_ms, headers)
        self.records.append(record)
        return record

    def history(self, key: bytes) -> list[FakeRecord]:
        """Return a key's records and tombstones, newest first."""
        return [each for each in reversed(self.records) if each.key == key]

    def latest(self, key: bytes, as_of: str = "") -> FakeRecord | None:
        """Return a key's record as of a moment: milliseconds since 1970, or a position; None if absent."""
        for each in self.history(key):
            if not as_of or _is_before(each, as_of):
                return None if each.value is None else each
        return None

    def latest_of_all(self, as_of: str = "") -> Iterator[FakeRecord]:
        """Give each key's record as of a moment, in the keys' bytewise order."""
        distinct = {each.key for each in self.records if each.key is not None}
        return (found for key in sorted(distinct) if (found := self.latest(key, as_of)))


def _is_before(record: FakeRecord, as_of: str) -> bool:
    partition, separator, offset = as_of.partition(":")
    if separator and partition.isdecimal() and offset.isdecimal():
        return record.partition == int(partition) and record.offset <= int(offset)
    return record.timestamp_ms <= int(as_of)
