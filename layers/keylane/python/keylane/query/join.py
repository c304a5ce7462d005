"""Reads one key of several topics at one moment: it is in one hash slot where their layouts agree."""

from collections import defaultdict
from collections.abc import Sequence

from keylane.errors import BadRequest
from keylane.model.keys import check_key
from keylane.model.records import Answer, Layout, Record
from keylane.ports import Call, Deadline
from keylane.query.store import Reading, ReadTerms, Store, begin_reading, newer_layout
from keylane.state.lanes import Lane, decode_value, lane_of_key

_MUST_AGREE = ("partition_count", "stripes", "partitioner", "partition_by")
_OTHER_SLOTS = (
    "the lanes of one are in other slots, as an older version placed them, until its state is built again:"
    " atomic=false reads one after the other"
)
_MOVED = (
    "lanes are in other slots since one of them was built, or is being built again:"
    " atomic=false reads one topic after the other"
)


def read_joined(
    store: Store, topics: Sequence[str], key: bytes, terms: ReadTerms, *, atomic: bool = True
) -> list[Answer]:
    """Read the latest record of `key` in each topic, all by one command on one node.

    Without `atomic` the topics may be read one after the other: while their slot moves to another node, and
    where an older version has placed the lanes of one.
    Raises as `read_latest`, and BadRequest where the topics' layouts differ.
    """
    check_key(key)
    deadline = Deadline.after_ms(terms.timeout_ms, store.clock)
    # As every read begins: a scope may need a newer layout.
    layouts = [begin_reading(store, topic, deadline).layout for topic in topics]
    if _difference(layouts, atomic=atomic):
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
    """Read the values and then the watermarks, by one command where all are in one slot."""
    difference = _difference([reading.layout for reading in readings], atomic=atomic)
    if difference:
        raise BadRequest(difference, "topics")
    lanes = [lane_of_key(reading.layout, key) for reading in readings]
    by_slot: defaultdict[int, list[Lane]] = defaultdict(list)
    for lane in lanes:
        by_slot[lane.slot].append(lane)
    # A key that no rule of the caller names is not asked for.
    unasked = {
        lane
        for reading, lane in zip(readings, lanes, strict=True)
        if reading.scope is not None and not reading.scope.has_key(key)
    }
    asked = [[lane for lane in own if lane not in unasked] for own in by_slot.values()]
    calls = [
        Call(slot, _get(of_values, own, key), atomic)
        for (slot, own), of_values in zip(by_slot.items(), asked, strict=True)
    ]
    values: dict[Lane, bytes | None] = dict.fromkeys(unasked)
    watermarks: dict[Lane, bytes | None] = {}
    for own, of_values, reply in zip(by_slot.values(), asked, readings[0].run(calls), strict=True):
        values.update(zip(of_values, reply[: len(of_values)], strict=True))
        watermarks.update(zip(own, reply[len(of_values) :], strict=True))
    for reading, lane in zip(readings, lanes, strict=True):
        reading.watermarks.note(lane, watermarks[lane])
    return [
        (lane, reading.permitted(decode_value(lane, key, values[lane], reading.expander())))
        for reading, lane in zip(readings, lanes, strict=True)
    ]


def _get(of_values: Sequence[Lane], lanes: Sequence[Lane], key: bytes) -> tuple[bytes, ...]:
    names = (lane.value_prefix + key for lane in of_values)
    return (b"MGET", *names, *(lane.watermark_key for lane in lanes))


def _difference(layouts: Sequence[Layout], *, atomic: bool) -> str | None:
    """Return which two layouts differ, and in what; None where all agree."""
    first = layouts[0]
    for other in layouts[1:]:
        both = f"topics {first.topic!r} and {other.topic!r} can't be joined"
        for field in _MUST_AGREE:
            one, two = getattr(first, field), getattr(other, field)
            if one != two:
                return f"{both}: they differ in {field} ({one!r} and {two!r})"
        if atomic and first.centered != other.centered:
            return f"{both} at one moment: {_OTHER_SLOTS}"
    return None
