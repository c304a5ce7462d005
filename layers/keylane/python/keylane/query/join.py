"""Reads one key of several topics at one moment: it is in one hash slot where their layouts agree."""

from collections.abc import Sequence

from keylane.errors import BadRequest
from keylane.model.keys import check_key
from keylane.model.records import Answer, Layout, Record
from keylane.ports import Call, Deadline
from keylane.query.store import Reading, ReadTerms, Store, newer_layout
from keylane.state.lanes import Lane, decode_value, lane_of_key

_MUST_AGREE = ("partition_count", "stripes", "partitioner", "partition_by")


def read_joined(
    store: Store, topics: Sequence[str], key: bytes, terms: ReadTerms, *, atomic: bool = True
) -> list[Answer]:
    """Read the latest record of `key` in each topic, all by one command on one node.

    Without `atomic` the topics may be read one after the other while their slot moves to another node.
    Raises as `read_latest`, and BadRequest where the topics' layouts differ.
    """
    check_key(key)
    deadline = Deadline.after_ms(terms.timeout_ms, store.clock)
    layouts = [store.layouts.get(topic, deadline) for topic in topics]
    if _difference(layouts):
        layouts = [store.layouts.refresh(topic, deadline) for topic in topics]
    readings = [Reading(store, layout, deadline) for layout in layouts]
    found = _read(readings, key, atomic=atomic)
    newer = [newer_layout(each) if each.watermarks.is_stale else each.layout for each in readings]
    if newer != layouts:
        readings = [Reading(store, layout, deadline) for layout in newer]
        found = _read(readings, key, atomic=atomic)
    for reading in readings:
        reading.check(terms)
    return [reading.answer(lane, record) for reading, (lane, record) in zip(readings, found, strict=True)]


def _read(readings: Sequence[Reading], key: bytes, *, atomic: bool) -> list[tuple[Lane, Record | None]]:
    """Read all values and then all watermarks by one command."""
    difference = _difference([reading.layout for reading in readings])
    if difference:
        raise BadRequest(difference, "topics")
    lanes = [lane_of_key(reading.layout, key) for reading in readings]
    words = (b"MGET", *(lane.value_prefix + key for lane in lanes), *(lane.watermark_key for lane in lanes))
    (reply,) = readings[0].run([Call(lanes[0].slot, words, atomic)])
    values, watermarks = reply[: len(lanes)], reply[len(lanes) :]
    for reading, lane, watermark in zip(readings, lanes, watermarks, strict=True):
        reading.watermarks.note(lane, watermark)
    return [(lane, decode_value(lane, key, value)) for lane, value in zip(lanes, values, strict=True)]


def _difference(layouts: Sequence[Layout]) -> str | None:
    """Return which two layouts differ, and in what; None where all agree."""
    first = layouts[0]
    for other in layouts[1:]:
        for field in _MUST_AGREE:
            one, two = getattr(first, field), getattr(other, field)
            if one != two:
                return (
                    f"topics {first.topic!r} and {other.topic!r} can't be joined: "
                    f"they differ in {field} ({one!r} and {two!r})"
                )
    return None
