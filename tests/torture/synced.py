"""Mappings of whole topics that the Python client keeps current, by the server, while schedules run.

One of each topic is kept through all schedules. Another one begins again and again, so that snapshots are
taken in the midst of trouble. At rest each must be what the log comes to.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from tests.servers.own import CLOCK
from tests.torture.background import Background
from tests.torture.checks import EXPIRY_MS
from tests.torture.oracle import show
from tests.torture.streams import is_value

from keylane_client import Client, KeylaneError, SyncedTopic
from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.torture.checks import Facts
    from tests.torture.oracle import KeyLog, Logged
    from tests.torture.stack import TortureStack

    from keylane_client import Record

_STAYS_S = (0.0, 0.5, 2.0)
_PAUSE_S = 0.1
EQUAL_WITHIN_S = 90


class SyncedTopics(Background):
    """The mappings, and the thread that begins them."""

    def __init__(self, stack: TortureStack, seed: int) -> None:
        super().__init__("mappings")
        self._stack = stack
        self._source = random.Random(f"{seed}/synced")
        self._client = Client(f"http://{HOST}:{stack.hosts.server_port}")
        self._kept: dict[str, SyncedTopic[Any]] = {}
        self._fresh: tuple[str, SyncedTopic[Any]] | None = None

    def check_at_rest(self, facts: Facts) -> Iterator[str]:
        """Begin no more, and compare each mapping with the log, which has come to rest."""
        self.rest(EQUAL_WITHIN_S)
        if self.broken:
            return
        until_s = time.monotonic() + EQUAL_WITHIN_S
        for topic in self._stack.shapes:
            while topic not in self._kept and not self._begin_kept(topic):
                if time.monotonic() > until_s:
                    yield f"{topic}: at rest no mapping can begin"
                    return
                time.sleep(_PAUSE_S)
        fresh = [self._fresh] if self._fresh else []
        for topic, records in [*self._kept.items(), *fresh]:
            self._counts["mappings, compared"] += 1
            yield from compare(topic, records, facts)

    def close(self) -> None:
        super().close()
        for _, records in [*self._kept.items(), *([self._fresh] if self._fresh else [])]:
            records.__exit__(None, None, None)
        self._client.close()

    def _act(self) -> None:
        missing = [topic for topic in self._stack.shapes if topic not in self._kept]
        if missing:
            self._begin_kept(missing[0])
        else:
            self._begin_fresh(self._source.choice(list(self._stack.shapes)))
        self._stop.wait(self._source.choice(_STAYS_S) + _PAUSE_S)

    def _begin_kept(self, topic: str) -> bool:
        begun = self._begin(topic)
        if begun is not None:
            self._kept[topic] = begun
        return begun is not None

    def _begin_fresh(self, topic: str) -> None:
        if self._fresh is not None:
            self._fresh[1].__exit__(None, None, None)
            self._fresh = None
        begun = self._begin(topic)
        self._fresh = None if begun is None else (topic, begun)

    def _begin(self, topic: str) -> SyncedTopic[Any] | None:
        """Return a mapping that has all records; None where trouble is in the way."""
        records: SyncedTopic[Any] = self._client.topic(topic).sync()
        try:
            records.__enter__()
        except KeylaneError as error:
            self._counts[f"mappings, {type(error).__name__}"] += 1
            return None
        self._counts["mappings"] += 1
        return records


def compare(topic: str, records: SyncedTopic[Any], facts: Facts) -> Iterator[str]:
    """Wait until the mapping has all of the log and equals it; yields what is otherwise in the end."""
    ends = {partition: end for (name, partition), end in facts.log.next_offsets.items() if name == topic}
    until_s = time.monotonic() + EQUAL_WITHIN_S
    while True:
        try:
            reached = records.at.next_offsets
            behind = {each: end for each, end in ends.items() if reached.get(each, 0) < end}
            faults = [f"it is at {reached}, the log ends at {ends}"] if behind else []
            faults = faults or list(_differing(topic, records.copy(), facts))
        except KeylaneError as error:
            yield f"{topic}: a mapping is not kept current: {error!r} {error.__cause__!r}"
            return
        if not faults:
            return
        if time.monotonic() > until_s:
            trouble = f" (trouble: {records.trouble!r})" if records.trouble else ""
            yield from (
                f"{topic}: a mapping has not what the log comes to: {fault}{trouble}" for fault in faults
            )
            return
        time.sleep(_PAUSE_S)


def _differing(topic: str, records: Mapping[Any, Record[Any]], facts: Facts) -> Iterator[str]:
    now_ms = CLOCK.now_ms()
    by_key = {key.encode() if isinstance(key, str) else key: record for key, record in records.items()}
    for key in {*facts.log.keys_of(topic), *by_key}:
        key_log, record = facts.log.of(topic, key), by_key.get(key)
        due = key_log.newest()
        if _is_due(key_log, due, record, now_ms):
            continue
        yield f"{key.decode()} is {record and (record.position, record.value)}, the log has {show(due)}"


def _is_due(key_log: KeyLog, due: Logged | None, record: Record[Any] | None, now_ms: int) -> bool:
    """Whether a mapping has of a key what it must have."""
    if record is None:
        return due is None or key_log.is_gone(due, now_ms + EXPIRY_MS)
    if due is None:
        return False
    if key_log.is_gone(due, now_ms - EXPIRY_MS):
        # Where markers do not last, an older stray may bring a deleted key back.
        return key_log.shape.is_forgetful and due.value is None
    position = record.position.partition, record.position.offset
    document = {"value": record.value, "value_format": record.value_format}
    return position == (due.partition, due.offset) and due.value is not None and is_value(due.value, document)
