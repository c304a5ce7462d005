"""What was written during a live upgrade, and what a read may therefore answer."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tests.support.replies import ABSENT

if TYPE_CHECKING:
    from tests.support.replies import Reply


class Written(NamedTuple):
    """A record: numbers rise with every record. `acked_ms`: when Kafka had acknowledged it, None: not yet."""

    number: int
    is_set: bool
    acked_ms: float | None


class Found(NamedTuple):
    """What a read has found. `number`: of the record; 0 if none has been. `fault`: "" if it may be so."""

    number: int
    fault: str = ""


class Book:
    """The log as its writers know it. Thread-safe.

    A key is written by one thread, with rising numbers and timestamps: its newest record has the highest one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._of_key: defaultdict[tuple[str, str], list[Written]] = defaultdict(list)
        self._at: dict[tuple[str, str], tuple[str, int]] = {}

    def begin(self, topic: str, key: str, *, is_set: bool) -> int:
        """Number a record that is about to be written."""
        with self._lock:
            self._number += 1
            self._of_key[topic, key].append(Written(self._number, is_set, None))
            return self._number

    def acknowledge(self, topic: str, key: str, number: int, position: str, now_ms: float) -> None:
        """Note where Kafka has put a record."""
        with self._lock:
            self._at[topic, position] = key, number
            records = self._of_key[topic, key]
            [place] = [place for place, each in enumerate(records) if each.number == number]
            records[place] = records[place]._replace(acked_ms=now_ms)

    @property
    def count(self) -> int:
        return self._number

    def fold(self, topic: str) -> dict[str, int | None]:
        """The number of each key's record, None where it is deleted. All records must be acknowledged."""
        with self._lock:
            last = {key: records[-1] for (of, key), records in self._of_key.items() if of == topic}
        assert all(each.acked_ms is not None for each in last.values())
        return {key: each.number if each.is_set else None for key, each in last.items()}

    def sets(self, topic: str) -> dict[str, int]:
        """How many records with a value each key has."""
        with self._lock:
            found = {
                key: sum(each.is_set for each in records)
                for (of, key), records in self._of_key.items()
                if of == topic
            }
        return {key: count for key, count in found.items() if count}

    def check(self, topic: str, key: str, reply: Reply, since: int, sent_ms: float) -> Found:
        """Judge the answer to a read of a key that was sent at `sent_ms`.

        `since`: the number that the same reader had seen before. Whatever was acknowledged before the time as
        of which the answer claims to be complete must be in it.
        """
        if reply.status not in {200, 404} or "keylane-age-ms" not in reply.headers:
            return Found(since, f"{reply.status} {reply.body[:300]!r}")
        bound_ms = sent_ms - int(reply.headers["keylane-age-ms"])
        with self._lock:
            records = self._of_key[topic, key]
            least = max(
                [each.number for each in records if (each.acked_ms or bound_ms) < bound_ms], default=0
            )
            least = max(least, since)
            if reply.status == 404:
                return self._absent(reply, least, records)
            number = int(reply.document["n"])
            at = self._at.get((topic, reply.headers["keylane-position"]), (key, number))
        if at != (key, number):
            return Found(number, f"at {reply.headers['keylane-position']} is {at}, not {number} of {key}")
        if number < least:
            return Found(number, f"{number} is older than {least} (seen before: {since})")
        return Found(number)

    @staticmethod
    def _absent(reply: Reply, least: int, records: list[Written]) -> Found:
        if reply.document.get("type") != ABSENT:
            return Found(least, f"404 {reply.body[:300]!r}")
        deleted = [each.number for each in records if not each.is_set and each.number >= least]
        if least and not deleted:
            return Found(least, f"absent, but {least} was not deleted since")
        return Found(min(deleted, default=0))
