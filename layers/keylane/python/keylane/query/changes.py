"""What changed in a topic: the state says how far it is, the log which keys its records are of.

A change is reported once the state has it, so whoever reads the key after that finds it, or a newer one. What
is reported is read after that, too: a replica that answers may be behind the watermark that was seen before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from keylane.errors import OffsetOutOfRange, StateUnavailable
from keylane.model.records import Answer, Position
from keylane.ports import Call, Deadline, LogReader
from keylane.query.decoding import ValueDecoder
from keylane.query.multi_get import LaneRecords, read_logged
from keylane.query.store import Reading, ReadTerms, Store, begin_reading, read_current
from keylane.query.strays import has_taken, parse_taken, read_given, read_taken
from keylane.state.lanes import Lane, decode_values, keys_by_lane, lanes_of_topic

if TYPE_CHECKING:
    from keylane.model.kafka import LogBatch

BATCH_RECORDS = 500
"""Of one partition: what a batch has of each is read from the state, too."""
BATCH_BYTES = 1 << 20
"""Of all partitions: what a node returns at once is bounded, and what is kept for listeners that are slow."""


class ChangeReader(NamedTuple):
    """What changes are read with. `log`: opens Kafka, which only changes of whole topics need."""

    store: Store
    log: Callable[[], LogReader]
    decoder: Callable[..., ValueDecoder]


class ChangedKeys(NamedTuple):
    """Keys that have new records, in the log's order within each partition.

    `keys`: each with the partitions that have its new records. `next_offsets`: where the next batch
    begins. `lost`: where records were removed before they were read. `repeated`: keys with several of them.
    """

    keys: dict[bytes, frozenset[int]]
    next_offsets: dict[int, int]
    lost: list[Position]
    repeated: frozenset[bytes] = frozenset()

    def is_only_change(self, key: bytes, answer: Answer) -> bool:
        """Return whether what was found under a key differs by one record from what was there before.

        Surely so, if it is: what was found may be newer than these records, and then it is not.
        """
        # A stray is in the lane before its own partition's watermark has it, so it may have come between.
        if key in self.repeated or answer.watermark.has_strays:
            return False
        if answer.record is not None:
            return answer.record.offset < self.next_offsets.get(answer.record.partition, 0)
        return answer.watermark.next_offset <= self.next_offsets.get(answer.partition, 0)


class TopicPosition(NamedTuple):
    """How far the state is, or a listener: of each partition the offset below which it has everything.

    `incarnation`: of the topic. The positions of another one are those of other records. `giving`: of the
    state: partitions of which other lanes have records.
    """

    incarnation: int
    next_offsets: Mapping[int, int]
    giving: frozenset[int] = frozenset()


def read_position(store: Store, topic: str, timeout_ms: float) -> TopicPosition:
    """Return how far the state of each partition is.

    Raises UnknownTopic, LaneBuilding for a lane that has not begun, StateUnavailable, CorruptState.
    """
    reading = read_watermarks(store, topic, timeout_ms)
    watermarks = reading.watermarks
    giving = frozenset(lane.partition for lane, each in watermarks.by_lane.items() if each.gave_strays)
    return TopicPosition(reading.layout.incarnation, watermarks.next_offsets, giving)


def read_watermarks(store: Store, topic: str, timeout_ms: float) -> Reading:
    """Return a reading with the watermarks of all lanes. Raises as `read_position`."""
    deadline = Deadline.after_ms(timeout_ms, store.clock)
    _, reading = read_current(begin_reading(store, topic, deadline), _read_watermarks)
    reading.watermarks.check_complete(partial=True)
    return reading


def _read_watermarks(reading: Reading) -> None:
    lanes = lanes_of_topic(reading.layout)
    replies = reading.run([Call(lane.slot, (b"GET", lane.watermark_key)) for lane in lanes])
    for lane, watermark in zip(lanes, replies, strict=True):
        reading.watermarks.note(lane, watermark)


def find_changed_keys(
    log: LogReader,
    topic: str,
    since: Mapping[int, int],
    until: Mapping[int, int],
    deadline: Deadline,
    share: int = 1,
) -> ChangedKeys:
    """Return the keys of the log's records from `since` on and below `until`, or of the first of them.

    A partition of which nothing was read stays where it is: the broker that answers is behind the state, does
    not answer in time, or the bounds were reached before. A partition that `since` lacks is read from its
    first record: it was added. Transactions that are not committed, or were aborted, are read too: the state
    knows what counts. `share`: what all bounds are divided by. Raises LogUnavailable, LogRefused,
    UnknownTopic.
    """
    keys: dict[bytes, frozenset[int]] = {}
    repeated: set[bytes] = set()
    next_offsets, lost = dict(since), []
    for partition, batch, is_lost in _read_parts(log, topic, since, until, deadline, share):
        if is_lost and partition in since:
            lost.append(Position(partition, since[partition]))
        # A record that is newer moves its key to the end: in this order they were written.
        for record in batch.records:
            if record.key is not None:
                if record.key in keys:
                    repeated.add(record.key)
                keys[record.key] = keys.pop(record.key, frozenset()) | {partition}
        next_offsets[partition] = min(batch.next_offset, until[partition])
    return ChangedKeys(keys, next_offsets, lost, frozenset(repeated))


def _read_parts(
    log: LogReader,
    topic: str,
    since: Mapping[int, int],
    until: Mapping[int, int],
    deadline: Deadline,
    share: int,
) -> Iterator[tuple[int, LogBatch, bool]]:
    """Yield partitions with what was read of each, and whether it begins behind what retention removed."""
    from keylane.model.kafka import READ_UNCOMMITTED, LogBatch, LogRange  # noqa: PLC0415 (only the server's)

    limit, max_bytes = max(1, BATCH_RECORDS // share), BATCH_BYTES // share
    wanted = {
        partition: LogRange(topic, partition, offset, end, limit, READ_UNCOMMITTED)
        for partition, end in until.items()
        if (offset := since.get(partition, 0)) < end
    }
    while wanted:
        try:
            batches = log.read(list(wanted.values()), max_bytes, deadline)
        except OffsetOutOfRange as error:
            lost = wanted.pop(error.partition)
            first = log.first_offset(topic, lost.partition, deadline)
            if first > lost.offset:
                yield lost.partition, LogBatch((), first), True
            continue
        for partition, batch in zip(wanted, batches, strict=True):
            yield partition, batch, False
        return


def read_changed(
    store: Store,
    topic: str,
    found: ChangedKeys,
    terms: ReadTerms,
    seen: dict[Lane, int],
    giving: frozenset[int] = frozenset(),
) -> tuple[dict[bytes, Answer], set[int]]:
    """Return what is under the keys, and the partitions whose changes may be missing from it.

    A partition's changes are in an answer if its lane's watermark is at the partition's next offset. A stray
    is in another lane, whose watermark says nothing of it: that lane's primary has it, unless a failover has
    taken it back. Then the lane has taken less than it was given by the partitions that are `giving`, as of
    `TopicPosition`, until the job has read it again. Till then older records would be taken for its newest.

    The primary is asked, too, where a replica is behind what was `seen` of its lane, or keys would go back to
    older records; `seen` gets the lanes' next offsets. A key without a partition that the answer covers is
    left out. Raises as `read_logged`.
    """
    if not found.keys:
        return {}, set()
    given = _given_below(store, topic, found, terms, giving) if giving else {}
    if given is None:
        return {}, set(found.next_offsets)
    lanes, _ = read_logged(store, topic, list(found.keys), terms)
    answers: dict[bytes, Answer] = {}
    unsure: dict[bytes, frozenset[int]] = {}
    for each in lanes:
        answers |= each.rows()
        is_outdated = each.watermark.next_offset < seen.get(each.lane, 0)
        is_mixed = each.lane in given
        reported = frozenset(() if is_outdated or is_mixed else (each.lane.partition,))
        unsure |= {key: rest for key in each.keys if (rest := found.keys[key] - reported)}
        if not is_outdated:
            seen[each.lane] = each.watermark.next_offset
    for each in _read_from_primaries(store, topic, list(unsure), terms, given):
        answers |= each.rows()
        for key in each.keys:
            del unsure[key]
        seen[each.lane] = each.watermark.next_offset
    shown: dict[bytes, Answer] = {}
    missing: set[int] = set()
    for key, partitions in found.keys.items():
        answer, behind = answers[key], unsure.get(key, frozenset())
        own = answer.partition
        if own in partitions and answer.watermark.next_offset < found.next_offsets[own]:
            behind |= {own}
        missing |= behind
        if partitions - behind:
            shown[key] = answer
    return shown, missing


def _given_below(
    store: Store, topic: str, found: ChangedKeys, terms: ReadTerms, giving: frozenset[int]
) -> dict[Lane, dict[int, int]] | None:
    """Return what lanes were given below the keys' changes; None where the state has gone back."""
    deadline = Deadline.after_ms(terms.timeout_ms, store.clock)
    begun = begin_reading(store, topic, deadline)
    try:
        given, reading = read_current(begun, _read_given_to, list(found.keys), giving)
    except StateUnavailable:
        return None
    reached = reading.watermarks.next_offsets
    is_behind = any(reached.get(each, 0) < found.next_offsets.get(each, 0) for each in giving)
    return None if is_behind else given


def _read_given_to(
    reading: Reading, keys: Sequence[bytes], giving: frozenset[int]
) -> dict[Lane, dict[int, int]]:
    return read_given(reading, giving, keys_by_lane(reading.layout, keys))


def _read_from_primaries(
    store: Store,
    topic: str,
    keys: Sequence[bytes],
    terms: ReadTerms,
    given: Mapping[Lane, Mapping[int, int]],
) -> list[LaneRecords]:
    """Return what the keys' primaries have.

    Lanes whose primary does not answer are left out, and those that lack strays that they were given.
    """
    deadline = Deadline.after_ms(terms.timeout_ms, store.clock)
    found, _ = read_current(begin_reading(store, topic, deadline), _read_primaries, keys, given)
    return found


def _read_primaries(
    reading: Reading, keys: Sequence[bytes], given: Mapping[Lane, Mapping[int, int]]
) -> list[LaneRecords]:
    found = []
    expand = reading.expander()
    for lane, own in keys_by_lane(reading.layout, keys).items():
        names = [*(lane.value_prefix + key for key in own), lane.watermark_key]
        # First: what is read after that has at least these strays.
        calls = [read_taken(reading.layout, lane), Call(lane.slot, (b"MGET", *names))]
        try:
            strays, (*values, watermark) = reading.store.state.run(calls, reading.deadline, primary_only=True)
        except StateUnavailable:
            continue
        reading.watermarks.note(lane, watermark)
        if watermark is not None and has_taken(parse_taken(strays), given.get(lane, {})):
            records = decode_values(lane, own, values, expand)
            found.append(LaneRecords(reading.layout, lane, reading.watermarks.by_lane[lane], own, records))
    return found
