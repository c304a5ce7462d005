"""Where changes come from: a key is read again and again; of a topic the watermarks are, then its log."""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence

from keylane.api.reads.changes import ChangesRequest, any_key, render_change, render_key_id, render_topic_id
from keylane.api.reads.envelope import Envelopes
from keylane.errors import StateUnavailable, TooLarge
from keylane.model.changes import GAP, KEY, TOPIC, ChangeEvent
from keylane.model.records import Answer
from keylane.ports import Deadline
from keylane.query.changes import ChangeReader, TopicPosition, find_changed_keys, read_changed, read_position
from keylane.query.latest import FIRST_POLL_PAUSE_S, LAST_POLL_PAUSE_S, Wait
from keylane.query.newest import read_newest
from keylane.query.store import begin_reading
from keylane.state.lanes import Lane

PAUSE_OF_LANE_S = 0.0001
"""A topic with thousands of lanes is polled less often."""
LOG_TIMEOUT_MS = 5_000
_HELD_UP = "the replicas or brokers that answer are behind the changes, or a failover has taken some back"


class KeyChanges:
    """The changes of one key. Of several that come between two polls, the last one is reported."""

    kind = KEY

    def __init__(self, reader: ChangeReader, request: ChangesRequest) -> None:
        own = request.topic, request.keys or request.key, request.terms, request.fields, request.raw_keys
        # What a scope shows of the key is another feed.
        scopes = reader.store.scopes
        self.identity: Hashable = (KEY, *own, scopes and scopes.scope)
        self.instead = "poll the key with If-None-Match and `Prefer: wait=20`"
        self._reader = reader
        self._request = request
        self._decoder = reader.decoder()
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
        position: str | Answer | None,
        is_wanted: Callable[[bytes], bool],  # noqa: ARG002 (of topics)
    ) -> tuple[Sequence[ChangeEvent], Answer | None]:
        """See `ChangeSource.catch_up`. A position is an id, or the answer that was reported."""
        answer = self._answer
        assert answer is not None  # noqa: S101 - for the type checker: it has started
        if position is answer or position == render_key_id(answer, self._decoder):
            return (), None
        return (self._render(answer),), answer

    def _is_known(self, answer: Answer) -> bool:
        known = self._answer
        return known is not None and render_key_id(answer, self._decoder) == render_key_id(
            known, self._decoder
        )

    def _read(self, wait: Wait) -> Answer:
        request = self._request
        keys = request.keys or (request.key,)
        store = self._reader.store
        deadline = Deadline.after_ms(request.terms.timeout_ms, store.clock)
        return read_newest(begin_reading(store, request.topic, deadline), keys, request.terms, wait)

    def _render(self, answer: Answer) -> ChangeEvent:
        key = self._request.keys[0] if self._request.keys else self._request.key
        return render_change(key, answer, _envelopes(self._reader, self._request))


class TopicChanges:
    """The changes of a topic's keys. Of several changes of a key in one poll, the last one is reported."""

    kind = TOPIC

    def __init__(self, reader: ChangeReader, request: ChangesRequest) -> None:
        self.identity: Hashable = (TOPIC, request.topic, request.terms, request.fields, request.raw_keys)
        self.instead = "read its records by offset at /topics/{topic}/partitions/{partition}/records"
        self._reader = reader
        self._request = request
        self._position = TopicPosition(0, {})
        self._seen: dict[Lane, int] = {}

    def start(self) -> None:
        """See `ChangeSource.start`."""
        self._reader.log()
        self._position = self._read_position()

    def wait(self, bound_s: float) -> Sequence[ChangeEvent]:
        """See `ChangeSource.wait`. Raises StateUnavailable, too, where changes are held up until its end."""
        clock = self._reader.store.clock
        until_s, pause_s = clock.monotonic_s() + bound_s, FIRST_POLL_PAUSE_S
        held_s = until_s
        while True:
            ends = self._read_position()
            since = _within(self._position, ends)
            if _is_behind(since, ends):
                held_s = min(held_s, clock.monotonic_s())
                events, reached = self._changes(since, ends, any_key)
                if reached != since:
                    self._position = reached
                    return events
            else:
                held_s = until_s
            left_s = until_s - clock.monotonic_s()
            if left_s <= 0:
                if until_s - held_s >= LOG_TIMEOUT_MS / 1000:
                    raise StateUnavailable(_HELD_UP)
                return ()
            clock.await_s(min(pause_s, left_s))
            pause_s = min(pause_s * 2, LAST_POLL_PAUSE_S + PAUSE_OF_LANE_S * len(ends.next_offsets))

    def catch_up(
        self, position: TopicPosition | None, is_wanted: Callable[[bytes], bool]
    ) -> tuple[Sequence[ChangeEvent], TopicPosition | None]:
        """See `ChangeSource.catch_up`. Without a position it is from now on."""
        ends, store = self._position, self._reader.store
        since = ends if position is None else _within(position, ends)
        if not _is_behind(since, ends):
            return (ChangeEvent(id=render_topic_id(ends)),), None
        deadline = Deadline.after_ms(LOG_TIMEOUT_MS, store.clock)
        if since.incarnation != ends.incarnation:
            # What serves the listener's snapshots may know a newer layout: one gap would follow another.
            store.layouts.refresh(self._request.topic, deadline)
        while True:
            events, reached = self._changes(since, ends, is_wanted)
            if reached != since:
                return events, reached
            if not deadline.remaining_s:
                raise StateUnavailable(_HELD_UP)
            deadline.clock.pause_s(LAST_POLL_PAUSE_S)

    def _changes(
        self, since: TopicPosition, ends: TopicPosition, is_wanted: Callable[[bytes], bool]
    ) -> tuple[Sequence[ChangeEvent], TopicPosition]:
        """Return changes and where they end, which is `since` if what answers is behind all of them."""
        if since.incarnation != ends.incarnation:
            return _begin_again(since, ends)
        reader, request = self._reader, self._request
        deadline = Deadline.after_ms(LOG_TIMEOUT_MS, reader.store.clock)
        before, share = since.next_offsets, 1
        # Those that are behind the most come first: a batch may end before it has some of each.
        until = dict(sorted(ends.next_offsets.items(), key=lambda each: before.get(each[0], 0) - each[1]))
        while True:
            found = find_changed_keys(reader.log(), request.topic, before, until, deadline, share)
            found = found._replace(keys={key: of for key, of in found.keys.items() if is_wanted(key)})
            try:
                answers, missing = read_changed(
                    reader.store, request.topic, found, request.terms, self._seen, ends.giving
                )
                break
            except TooLarge:  # their present values may be far larger than those records
                if len(found.keys) == 1:
                    raise
                share *= 4
        # What may be missing from the answers is read once more: the stream stays before it.
        next_offsets = {
            partition: offset for partition, offset in found.next_offsets.items() if partition not in missing
        }
        next_offsets |= {partition: before[partition] for partition in missing & before.keys()}
        reached = TopicPosition(since.incarnation, next_offsets)
        envelopes = _envelopes(reader, request)
        events = [
            *_gaps({at.partition: at.offset for at in found.lost}, found.next_offsets),
            *(
                render_change(key, answer, envelopes)._replace(
                    id="", answer=answer, is_only_change=found.is_only_change(key, answer)
                )
                for key, answer in answers.items()
            ),
        ]
        return [*events, ChangeEvent(id=render_topic_id(reached))], reached

    def _read_position(self) -> TopicPosition:
        request = self._request
        return read_position(self._reader.store, request.topic, request.terms.timeout_ms)


def _envelopes(reader: ChangeReader, request: ChangesRequest) -> Envelopes:
    """Return what renders the records of one poll."""
    return Envelopes(reader.store.clock.now_ms(), request.fields, reader.decoder(raw_keys=request.raw_keys))


def _within(since: TopicPosition, ends: TopicPosition) -> TopicPosition:
    """Return the offsets of partitions that there are, none after the state's, which may have gone back."""
    if since.incarnation != ends.incarnation:
        return since
    least = {
        partition: min(offset, ends.next_offsets[partition])
        for partition, offset in since.next_offsets.items()
        if partition in ends.next_offsets
    }
    return TopicPosition(since.incarnation, least)


def _is_behind(since: TopicPosition, ends: TopicPosition) -> bool:
    if since.incarnation != ends.incarnation:
        return True
    return any(since.next_offsets.get(partition, 0) < end for partition, end in ends.next_offsets.items())


def _begin_again(since: TopicPosition, ends: TopicPosition) -> tuple[Sequence[ChangeEvent], TopicPosition]:
    """Return gaps, and the beginning of a topic that was created again: it has other records."""
    begin = TopicPosition(ends.incarnation, dict.fromkeys(ends.next_offsets, 0))
    gaps = _gaps(since.next_offsets, dict.fromkeys(since.next_offsets, 0))
    return [*gaps, ChangeEvent(id=render_topic_id(begin))], begin


def _gaps(lost: Mapping[int, int], next_offsets: Mapping[int, int]) -> list[ChangeEvent]:
    """Return an event for each partition, which says where records were lost and where the stream goes on."""
    return [
        ChangeEvent(GAP, json.dumps({"partition": partition, "from": offset, "to": next_offsets[partition]}))
        for partition, offset in lost.items()
    ]
