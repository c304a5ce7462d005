"""Looking into Kafka: the cluster, topics and their partitions, offsets, raw records, and health."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from keylane import routing
from keylane.errors import (
    CorruptState,
    KeylaneError,
    OffsetOutOfRange,
    StateUnavailable,
    UnknownPartition,
    UnknownTopic,
)
from keylane.model.clusters import DEFAULT
from keylane.model.kafka import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, Batch
from keylane.model.records import MAX_LANES
from keylane.ports import Call, Deadline
from keylane.state import lanes, redis_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from keylane.model.kafka import At, KafkaCluster, KafkaTopic, OffsetFound, Wanted
    from keylane.ports import Clock, LogReader, Metadata, State
    from keylane.query.layouts import Layouts

KEPT, NOT_KEPT, UNAVAILABLE, NOT_CONFIGURED = "kept", "not-kept", "unavailable", "not-configured"


@dataclass(frozen=True, slots=True)
class Places:
    """A topic's partitions, and where Keylane's state has them: one slot and shard for each, in order.

    `state`: KEPT; NOT_KEPT, a topic that has no layout; UNAVAILABLE, Redis did not answer; NOT_CONFIGURED.
    `slots`: that of a partition's first stripe; but for KEPT, as a topic of one stripe would have it. None
    where a topic has more partitions than there are slots. `shards`: "host:port", None but for KEPT.
    """

    topic: KafkaTopic
    state: str
    slots: Sequence[int | None]
    shards: Sequence[str | None]


@dataclass(frozen=True, slots=True)
class Page:
    """Records, and the offsets that the partition has: `low` is its first, `high` the one after its last."""

    batch: Batch
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the service: whether it answered within its time, how long that took, and why not."""

    took_ms: int
    why: str | None = None


def clusters(
    metadata: Mapping[str, Metadata], clock: Clock, *, timeout_ms: float
) -> dict[str, KafkaCluster | KeylaneError]:
    """Each cluster and its brokers by name, or why it can't be told.

    Raises LogUnavailable, LogRefused where that is so of all.
    """
    end = Deadline.after_ms(timeout_ms, clock)
    found: dict[str, KafkaCluster | KeylaneError] = {}
    for place, (name, each) in enumerate(metadata.items()):
        # One that is away leaves their share of the time to the others.
        share = Deadline.after_ms(end.remaining_s * 1000 / (len(metadata) - place), clock)
        try:
            found[name] = each.cluster(share)
        except KeylaneError as error:
            found[name] = error
    errors = [each for each in found.values() if isinstance(each, KeylaneError)]
    if len(errors) == len(found):
        raise errors[0]
    return found


def topics(
    metadata: Metadata, clock: Clock, *, prefix: str, after: str, limit: int, timeout_ms: float
) -> tuple[list[tuple[str, int]], str | None]:
    """At most `limit` names with partition counts, in order, those that begin with `prefix` after `after`.

    And the name to go on after, None at the end. Raises LogUnavailable, LogRefused.
    """
    found = metadata.topics(Deadline.after_ms(timeout_ms, clock))
    names = sorted(name for name in found if name.startswith(prefix) and name > after)
    page = [(name, found[name]) for name in names[:limit]]
    return page, page[-1][0] if len(names) > limit else None


def places(
    metadata: Metadata,
    state: State | None,
    layouts: Layouts | None,
    clock: Clock,
    topic: str,
    *,
    timeout_ms: float,
    state_timeout_ms: float,
) -> Places:
    """A topic's partitions; Kafka's answer is given without Redis's too.

    Raises UnknownTopic, LogUnavailable, LogRefused.
    """
    found = metadata.topic(topic, Deadline.after_ms(timeout_ms, clock))
    count = len(found.partitions)
    slots = [routing.slot_for(number, 0, count, 1) if count <= MAX_LANES else None for number in range(count)]
    unplaced = Places(found, NOT_CONFIGURED, slots, [None] * count)
    if state is None or layouts is None:
        return unplaced
    deadline = Deadline.after_ms(state_timeout_ms, clock)
    try:
        layout = layouts.refresh(topic, deadline)
        kept = [lanes.lane_at(layout, number, 0).slot for number in range(count)]
        return Places(found, KEPT, kept, state.hosts(kept, deadline))
    except UnknownTopic:
        return replace(unplaced, state=NOT_KEPT)
    except (StateUnavailable, CorruptState):
        return replace(unplaced, state=UNAVAILABLE)


def offset(
    metadata: Metadata,
    reader: LogReader,
    clock: Clock,
    topic: str,
    partition: int,
    *,
    at: At,
    isolation: str,
    timeout_ms: float,
) -> OffsetFound | None:
    """The offset at a place or time, None where there is no record.

    Raises UnknownTopic, UnknownPartition, LogUnavailable, LogRefused.
    """
    deadline = Deadline.after_ms(timeout_ms, clock)
    check_partition(metadata.topic(topic, deadline), partition)
    (found,) = reader.offsets(topic, partition, (at,), isolation, deadline)
    return found


def records(
    metadata: Metadata,
    reader: LogReader,
    clock: Clock,
    wanted: Wanted,
    *,
    begin: str | None = None,
    timeout_ms: float,
) -> Page:
    """Records from `wanted.offset` on, or from `begin` (EARLIEST or LATEST), as far as there are any.

    `wanted.end` is found out here. Nothing is waited for: at the end of the partition the page is empty.
    Raises UnknownTopic, UnknownPartition, OffsetOutOfRange, LogUnavailable, LogRefused.
    """
    deadline = Deadline.after_ms(timeout_ms, clock)
    check_partition(metadata.topic(wanted.topic, deadline), wanted.partition)
    low, high = _span(reader, wanted, wanted.isolation, deadline)
    first = {EARLIEST: low, LATEST: high}.get(begin or "", wanted.offset)
    wanted = replace(wanted, offset=first, end=high)
    if low <= first < high:
        try:
            batch = reader.read(wanted, deadline)
        except OffsetOutOfRange:
            # Retention removed it a moment ago.
            raise _out_of_range(wanted, *_span(reader, wanted, wanted.isolation, deadline)) from None
        return Page(batch, low, max(high, batch.next_offset))
    if first == high or _is_open(reader, wanted, deadline):
        return Page(Batch((), first), low, high)
    raise _out_of_range(wanted, low, high)


def health(
    metadata: Mapping[str, Metadata],
    state: State | None,
    clock: Clock,
    *,
    timeout_ms: float,
    state_timeout_ms: float,
) -> dict[str, Part]:
    """Ask each part that is configured, one after the other.

    `kafka` is the default cluster, `kafka.NAME` another one; `redis` is asked shard by shard.
    """
    parts = {
        "kafka" if name == DEFAULT else f"kafka.{name}": _asked(each.cluster, clock, timeout_ms)
        for name, each in metadata.items()
    }
    if state is not None:
        parts["redis"] = _asked(lambda deadline: _ask_shards(state, deadline), clock, state_timeout_ms)
    return parts


def check_partition(topic: KafkaTopic, partition: int) -> None:
    """Raise UnknownPartition for one that the topic does not have."""
    if partition >= len(topic.partitions):
        raise UnknownPartition(topic.name, partition)


def _span(reader: LogReader, wanted: Wanted, isolation: str, deadline: Deadline) -> tuple[int, int]:
    """The first offset and the one after the last, as a reader of that isolation sees them."""
    ends = (EARLIEST, LATEST)
    low, high = reader.offsets(wanted.topic, wanted.partition, ends, isolation, deadline)
    return (low.offset if low else 0), (high.offset if high else 0)


def _is_open(reader: LogReader, wanted: Wanted, deadline: Deadline) -> bool:
    """Whether the offset is there, and what it holds belongs to a transaction that has not ended."""
    if wanted.isolation != READ_COMMITTED or wanted.offset < wanted.end:
        return False
    return wanted.offset <= _span(reader, wanted, READ_UNCOMMITTED, deadline)[1]


def _out_of_range(wanted: Wanted, low: int, high: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(wanted.topic, wanted.partition, wanted.offset, low, high)


def _asked(ask: Callable[[Deadline], object], clock: Clock, timeout_ms: float) -> Part:
    began_s = clock.monotonic_s()
    why = None
    try:
        ask(Deadline.after_ms(timeout_ms, clock))
    except KeylaneError as error:
        why = str(error)
    return Part(round((clock.monotonic_s() - began_s) * 1000), why)


def _ask_shards(state: State, deadline: Deadline) -> None:
    """Read where the layouts lie, and one slot of each shard. Raises StateUnavailable."""
    asked = {routing.key_slot(redis_keys.layout_key("")): redis_keys.layout_key("")}
    slots = range(0, routing.SLOTS, routing.SLOTS // 256)
    firsts = dict(zip(reversed(state.hosts(slots, deadline)), reversed(slots), strict=True))
    asked |= {slot: b"{%b}" % routing.hash_tag(slot) for slot in firsts.values()}
    state.run([Call(slot, (b"GET", key)) for slot, key in asked.items()], deadline)
