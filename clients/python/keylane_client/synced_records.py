"""The records of a topic in memory, as a snapshot and the changes since then have them.

One thread, or task, writes, and reports what has changed; any may read. Readers see no record that has
expired; it is removed, and reported, by the writer, so that the reports of a key are in their order.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from keylane_client.answers import Absent, Record, TopicVector
from keylane_client.wire import Key, normal_key

OnChange = Callable[[Record | Absent], object]
_SPARE_EXPIRIES = 1000
"""So many entries of replaced records are kept besides one for each record."""


class SyncedRecords:
    """The records, by key. `at`: where they are, at least; None until they are there.

    `confirmed_s`: when the service last said that this is all, by the monotonic clock. `failure`: why they
    are not kept current any more. `trouble`: why they are not just now.
    """

    def __init__(self, topic: str, on_change: OnChange | None) -> None:
        self.at: TopicVector | None = None
        self.confirmed_s = 0.0
        self.failure: BaseException | None = None
        self.trouble: BaseException | None = None
        self._topic = topic
        self._on_change = on_change
        self._records: dict[Key, Record] = {}
        self._ttl_ms: int | None = None
        self._expiries: list[tuple[int, str, Key]] = []
        self._lock = threading.Lock()

    def begin(self, records: dict[Key, Record], at: TopicVector, ttl_ms: int | None) -> None:
        """Replace all records by those of a snapshot, and report what differs, unless it is the first one."""
        with self._lock:
            before, was_at = self._records, self.at
            self._records, self._ttl_ms = records, ttl_ms
            self._order_expiries()
            self.at = at
        if was_at is None:
            return
        is_same_topic = was_at.incarnation == at.incarnation
        for key, record in before.items():
            if key not in records:
                self._report(Absent(self._topic, record.key, None, None))
        for key, record in list(records.items()):
            if key not in before or not (is_same_topic and _is_same(record, before[key])):
                self._report(record)

    def confirm(self, at_s: float) -> None:
        """Note that the records were all there was at this time of the monotonic clock."""
        self.confirmed_s, self.trouble = at_s, None

    def put(self, record: Record) -> None:
        """Take a key's record."""
        key = normal_key(record.key)
        with self._lock:
            before = self._records.get(key)
            self._records[key] = record
            self._note_expiry(key, record)
        if before is None or not _is_same(record, before):
            self._report(record)

    def remove(self, absent: Absent) -> None:
        """Remove a key's record, if there is one."""
        with self._lock:
            before = self._records.pop(normal_key(absent.key), None)
        if before is not None:
            self._report(absent)

    def get(self, key: Key) -> Record | None:
        """Return a key's record; None if there is none."""
        record = self._records.get(key)
        return None if record is None or self._has_expired(record, _now_ms()) else record

    def count(self) -> int:
        """Return how many records there are."""
        return len(self._records) if self._ttl_ms is None else len(self.copy())

    def copy(self) -> dict[Key, Record]:
        """Return all records as they are at this moment."""
        with self._lock:
            found = self._records.copy()
        if self._ttl_ms is None:
            return found
        now_ms = _now_ms()
        return {key: record for key, record in found.items() if not self._has_expired(record, now_ms)}

    def expire(self) -> None:
        """Remove what has expired."""
        now_ms = _now_ms()
        while self._expiries and self._expiries[0][0] <= now_ms:
            _, position, key = heapq.heappop(self._expiries)
            record = self._records.get(key)
            if record is not None and str(record.position) == position:
                self.remove(Absent(self._topic, record.key, None, None))

    def _has_expired(self, record: Record, now_ms: int) -> bool:
        if self._ttl_ms is None or record.timestamp_ms is None:
            return False
        return record.timestamp_ms + self._ttl_ms <= now_ms

    def _report(self, change: Record | Absent) -> None:
        if self._on_change is not None:
            self._on_change(change)

    def _note_expiry(self, key: Key, record: Record) -> None:
        if self._ttl_ms is None or record.timestamp_ms is None:
            return
        # The position tells this record from the key's next one; as a text, so that entries have an order.
        heapq.heappush(self._expiries, (record.timestamp_ms + self._ttl_ms, str(record.position), key))
        if len(self._expiries) > 2 * len(self._records) + _SPARE_EXPIRIES:
            self._order_expiries()

    def _order_expiries(self) -> None:
        ttl_ms = self._ttl_ms
        self._expiries = (
            []
            if ttl_ms is None
            else [
                (record.timestamp_ms + ttl_ms, str(record.position), key)
                for key, record in self._records.items()
                if record.timestamp_ms is not None
            ]
        )
        heapq.heapify(self._expiries)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def records_by_key(records: Iterable[Record]) -> dict[Key, Record]:
    """Return records by what their keys are in a mapping."""
    return {normal_key(each.key): each for each in records}


def _is_same(record: Record, other: Record) -> bool:
    """Return whether the key has the same record: a topic that is built again may have made another value."""
    return _identity(record) == _identity(other)


def _identity(record: Record) -> tuple[Any, ...]:
    return record.position, record.value_format, record.value
