"""Counts the keys of a topic that has an index."""

from dataclasses import dataclass

from keylane.ports import Call
from keylane.query.kept import check_index, read_kept
from keylane.query.store import Reading, ReadTerms, Store, Watermarks
from keylane.state import redis_keys
from keylane.state.lanes import Lane, lanes_of_topic


@dataclass(frozen=True, slots=True)
class KeyCount:
    """How many keys have a record, as of the watermarks."""

    count: int
    watermarks: Watermarks


def read_key_count(store: Store, topic: str, terms: ReadTerms) -> KeyCount:
    """Count the keys that have a record: one round trip to each node, whatever the number of keys.

    Raises NoIndex, UnknownTopic, LaneBuilding, StateTooOld, StateUnavailable, CorruptState.
    """
    count, reading = read_kept(store, topic, terms, _count)
    return KeyCount(count, reading.watermarks)


def _count(reading: Reading) -> int:
    check_index(reading.layout)
    lanes = lanes_of_topic(reading.layout)
    calls: list[Call] = []
    for lane in lanes:
        # The watermark comes first: what is counted then is as new as it claims, or newer.
        calls += Call(lane.slot, (b"GET", lane.watermark_key)), Call(lane.slot, _command(reading, lane))
    replies = reading.run(calls)
    for lane, watermark in zip(lanes, replies[::2], strict=True):
        reading.watermarks.note(lane, watermark)
    return sum(replies[1::2])


def _command(reading: Reading, lane: Lane) -> tuple[bytes, ...]:
    """Return the command that counts a lane's keys."""
    name = lane.tag, reading.layout.topic, reading.layout.generation
    if not reading.layout.options.ttl_ms:
        return b"ZCARD", redis_keys.index_key(*name, lane.partition, lane.stripe)
    # The index may still have keys that have expired: a later write removes them. Their times tell.
    expiry_times = redis_keys.lane_key(*name, b"x", str(lane).encode())
    return b"ZCOUNT", expiry_times, b"%d" % reading.now_ms, b"+inf"
