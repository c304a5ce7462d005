"""Where changes come from: a key is read again and again; of a topic the watermarks are, then its log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from keylane.api.reads.changes import any_key, render_change, render_next_offsets
from keylane.api.reads.envelope import Envelopes
from keylane.errors import StateUnavailable
from keylane.model.changes import GAP, KEY, TOPIC, ChangeEvent
from keylane.ports import Deadline
from keylane.query.changes import find_changed_keys, read_changed, read_next_offsets
from keylane.query.latest import FIRST_POLL_PAUSE_S, LAST_POLL_PAUSE_S, Wait, read_latest

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from keylane.api.reads.changes import ChangesRequest
    from keylane.model.records import Answer, Position
    from keylane.query.changes import ChangedKeys, ChangeReader

PAUSE_OF_LANE_S = 0.0001
"""A topic with thousands of lanes is polled less often."""
LOG_TIMEOUT_MS = 5_000


class KeyChanges:
    """The changes of one key. Of several that come between two polls, the last one is reported."""

    kind = KEY

    def __init__(self, reader: ChangeReader, request: ChangesRequest) -> None:
        self.identity: Hashable = (KEY, *request[:-1])
        self.instead = "poll the key with If-None-Match and `Prefer: wait=20`"
        self._reader = reader
        self._request = request
        self._answer: Answer | None = None

    def start(self) -> None:
        """See `ChangeSource.start`."""
        self._answer = self._read(Wait())

    def wait(self, bound_s: float) -> Sequence[ChangeEvent]:
        """See `ChangeSource.wait`."""
        answer = self._read(Wait(is_known=self._is_known, change_ms=bound_s * 1000))
        if self._is_known(answer):
            return ()
        event = self._render(answer)
        # Last: whoever catches up until now does not have this answer, and gets the event.
        self._answer = answer
        return (event,)

    def catch_up(
        self,
        position: Position | Answer | None,
        is_wanted: Callable[[bytes], bool],  # noqa: ARG002 (of topics)
    ) -> tuple[Sequence[ChangeEvent], Answer | None]:
        """See `ChangeSource.catch_up`. A position is that of a record, or the answer that was reported."""
        answer = self._answer
        assert answer is not None  # noqa: S101 - for the type checker: it has started
        record = answer.record
        if position is answer or (record is not None and record.position == position):
            return (), None
        return (self._render(answer),), answer

    def _is_known(self, answer: Answer) -> bool:
        known = self._answer.record if self._answer else None
        return (answer.record and answer.record.position) == (known and known.position)

    def _read(self, wait: Wait) -> Answer:
        request = self._request
        return read_latest(self._reader.store, request.topic, request.key, request.terms, wait)

    def _render(self, answer: Answer) -> ChangeEvent:
        return render_change(self._request.key, answer, _envelopes(self._reader, self._request))


class TopicChanges:
    """The changes of a topic's keys. Of several changes of a key in one poll, the last one is reported."""

    kind = TOPIC

    def __init__(self, reader: ChangeReader, request: ChangesRequest) -> None:
        self.identity: Hashable = (TOPIC, request.topic, request.terms, request.fields)
        self.instead = "read its records by offset at /topics/{topic}/partitions/{partition}/records"
        self._reader = reader
        self._request = request
        self._next_offsets: Mapping[int, int] = {}

    def start(self) -> None:
        """See `ChangeSource.start`."""
        self._reader.log()
        self._next_offsets = self._read_next_offsets()

    def wait(self, bound_s: float) -> Sequence[ChangeEvent]:
        """See `ChangeSource.wait`."""
        clock = self._reader.store.clock
        until_s, pause_s = clock.monotonic_s() + bound_s, FIRST_POLL_PAUSE_S
        while True:
            ends = self._read_next_offsets()
            since = _within(self._next_offsets, ends)
            if any(since.get(partition, 0) < end for partition, end in ends.items()):
                events, reached = self._changes(since, ends, any_key)
                if reached != since:
                    self._next_offsets = reached
                    return events
            left_s = until_s - clock.monotonic_s()
            if left_s <= 0:
                return ()
            clock.pause_s(min(pause_s, left_s))
            pause_s = min(pause_s * 2, LAST_POLL_PAUSE_S + PAUSE_OF_LANE_S * len(ends))

    def catch_up(
        self, position: Mapping[int, int] | None, is_wanted: Callable[[bytes], bool]
    ) -> tuple[Sequence[ChangeEvent], Mapping[int, int] | None]:
        """See `ChangeSource.catch_up`. A position is the next offset of each partition; None: from now on."""
        ends = self._next_offsets
        since = ends if position is None else _within(position, ends)
        if since == ends:
            return (ChangeEvent(id=render_next_offsets(ends)),), None
        deadline = Deadline.after_ms(LOG_TIMEOUT_MS, self._reader.store.clock)
        while True:
            events, reached = self._changes(since, ends, is_wanted)
            if reached != since:
                return events, reached
            if not deadline.remaining_s:
                raise StateUnavailable("the replicas or brokers that answer are behind the changes")
            deadline.clock.pause_s(LAST_POLL_PAUSE_S)

    def _changes(
        self, since: Mapping[int, int], ends: Mapping[int, int], is_wanted: Callable[[bytes], bool]
    ) -> tuple[Sequence[ChangeEvent], Mapping[int, int]]:
        """Return changes and where they end, which is `since` if what answers is behind all of them."""
        reader, request = self._reader, self._request
        deadline = Deadline.after_ms(LOG_TIMEOUT_MS, reader.store.clock)
        found = find_changed_keys(reader.log(), request.topic, since, ends, deadline)
        found = found._replace(keys={key: of for key, of in found.keys.items() if is_wanted(key)})
        answers, missing = read_changed(reader.store, request.topic, found, request.terms)
        # What may be missing from the answers is read once more: the stream stays before it.
        reached = {
            partition: offset for partition, offset in found.next_offsets.items() if partition not in missing
        }
        reached |= {partition: since[partition] for partition in missing & since.keys()}
        envelopes = _envelopes(reader, request)
        events = [
            *_gaps(found),
            *(render_change(key, answer, envelopes)._replace(id="") for key, answer in answers.items()),
        ]
        return [*events, ChangeEvent(id=render_next_offsets(reached))], reached

    def _read_next_offsets(self) -> dict[int, int]:
        request = self._request
        return read_next_offsets(self._reader.store, request.topic, request.terms.timeout_ms)


def _envelopes(reader: ChangeReader, request: ChangesRequest) -> Envelopes:
    """Return what renders the records of one poll."""
    return Envelopes(reader.store.clock.now_ms(), request.fields, reader.decoder())


def _within(since: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
    """Return the offsets of partitions that there are, none after the state's, which may have gone back."""
    return {
        partition: min(offset, ends[partition]) for partition, offset in since.items() if partition in ends
    }


def _gaps(found: ChangedKeys) -> list[ChangeEvent]:
    lost: list[dict[str, Any]] = [
        {"partition": at.partition, "from": at.offset, "to": found.next_offsets[at.partition]}
        for at in found.lost
    ]
    return [ChangeEvent(GAP, json.dumps(each)) for each in lost]
