"""What was written to a side topic: what the state must be, whatever Kafka forgets.

The oracle folds the log, which is right where a log only grows. A log that compaction or retention has been
at says less: its fold lacks what was removed, and may even have a key whose tombstone is gone. What a topic
with such a log must be, its journal says: every record in the order in which it was written, which is that of
their timestamps, for each has a later one than those before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keylane.model.records import Answer


@dataclass(slots=True)
class Written:
    """One record. `acknowledged_ms`: by when Kafka's acknowledgement had come, None before that."""

    value: bytes | None
    acknowledged_ms: int | None = None


@dataclass(slots=True)
class Journal:
    """The records of a topic since it was created, by key, each key's in their order.

    `floors`: of keys the number of the record that readers have seen, or a later one.
    `deleted_in_state_alone`: keys that the log has an old record of, and no tombstone. `may_come_back`: keys
    of which nothing is promised any more.
    """

    written: dict[bytes, list[Written]] = field(default_factory=dict)
    floors: dict[bytes, int] = field(default_factory=dict)
    deleted_in_state_alone: set[bytes] = field(default_factory=set)
    may_come_back: set[bytes] = field(default_factory=set)
    forgets_since_s: float = 0.0
    last_acknowledged_ms: int = 0
    last_timestamp_ms: int = 0

    def begin_again(self) -> None:
        """The topic was created again: nothing of it is left."""
        self.written, self.floors = {}, {}
        self.deleted_in_state_alone, self.may_come_back = set(), set()

    def lose_state(self) -> None:
        """A shard has lost its data: what is filled from the log lacks deletions that are not in it."""
        self.may_come_back |= self.deleted_in_state_alone

    def next_timestamp_ms(self, now_ms: int) -> int:
        """A timestamp later than all before it."""
        self.last_timestamp_ms = max(now_ms, self.last_timestamp_ms + 1)
        return self.last_timestamp_ms

    def note(self, key: bytes, value: bytes | None) -> Written:
        """Add a record that is being written."""
        written = Written(value)
        self.written.setdefault(key, []).append(written)
        return written

    def acknowledge(self, written: Written, now_ms: int) -> None:
        """Note that a record has been acknowledged by now."""
        written.acknowledged_ms = now_ms
        self.last_acknowledged_ms = max(now_ms, self.last_acknowledged_ms)

    def fault_of(self, key: bytes, answer: Answer) -> str | None:
        """What is wrong with an answer by what it claims itself; None: it keeps its promise.

        It has every record that was acknowledged before the time as of which it is complete, unless it says
        that it is incomplete.
        """
        records, watermark = self.written.get(key, []), answer.watermark
        found = None if answer.record is None else self.number_of(key, answer.record.value)
        if answer.record is not None and found is None:
            return f"a read returned {answer.record.value!r}, which nobody wrote"
        claimed_ms = watermark.complete_as_of_ms
        due = max((at for at, one in enumerate(records) if _is_due(one, claimed_ms)), default=-1)
        if watermark.incomplete or key in self.may_come_back or not self._is_before(key, found, due):
            return None
        return (
            f"a read returned {_shown(records, found)}, and {_shown(records, due)} was acknowledged before "
            f"the time as of which the answer claims to be complete"
        )

    def note_seen(self, key: bytes, answer: Answer) -> None:
        """No later answer may be older than this one. Absence is that of the last tombstone."""
        records = self.written.get(key, [])
        found = self.number_of(key, answer.record.value) if answer.record else None
        if found is None:
            found = max((at for at, one in enumerate(records) if one.value is None), default=-1)
        self.floors[key] = max(found, self.floors.get(key, -1))

    def went_back(self, key: bytes, answer: Answer) -> str | None:
        """What is wrong with an answer after what was seen before; None: nothing."""
        found = self.number_of(key, answer.record.value) if answer.record else None
        floor = self.floors.get(key, -1)
        if key in self.may_come_back or not self._is_before(key, found, floor):
            return None
        records = self.written[key]
        was_deleted = records[floor].value is None
        what = "a deleted key is back" if was_deleted and found is not None else "the key went back"
        return f"{what}: {_shown(records, floor)}, then {_shown(records, found)}"

    def number_of(self, key: bytes, value: bytes | None) -> int | None:
        """Which of the key's records has this value; None: none. Values are unique."""
        records = self.written.get(key, [])
        return next((at for at, one in enumerate(records) if one.value == value), None)

    def _is_before(self, key: bytes, found: int | None, due: int) -> bool:
        """Whether what was found is older than record `due`; a tombstone from there on explains absence."""
        if found is not None:
            return found < due
        return due >= 0 and all(one.value is not None for one in self.written[key][due:])


def _is_due(written: Written, complete_as_of_ms: int) -> bool:
    return written.acknowledged_ms is not None and written.acknowledged_ms < complete_as_of_ms


def _shown(records: list[Written], number: int | None) -> str:
    if number is None:
        return "nothing"
    value = records[number].value
    return f"{value!r}" if value is not None else f"a tombstone, the key's record {number}"
