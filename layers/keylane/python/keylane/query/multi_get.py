"""Reads many keys of a topic: one command a lane, all shards at once."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from keylane.errors import BadRequest
from keylane.model.keys import check_key, printable
from keylane.model.records import Answer, Layout, Record, Watermark
from keylane.ports import Deadline
from keylane.query.fetch import read_records
from keylane.query.store import Reading, ReadTerms, Store, Watermarks, begin_reading, read_current
from keylane.state.lanes import Lane, keys_by_lane


class LaneRecords(NamedTuple):
    """What was found in one lane: the record of each key, None where it is absent."""

    layout: Layout
    lane: Lane
    watermark: Watermark
    keys: Sequence[bytes]
    records: Sequence[Record | None]

    def rows(self) -> list[tuple[bytes, Answer]]:
        """Return each key with its answer."""
        layout, lane, watermark, keys, records = self
        answers = [Answer(layout, lane.partition, record, watermark) for record in records]
        return list(zip(keys, answers, strict=True))


def read_many(
    store: Store, topic: str, keys: Sequence[bytes], terms: ReadTerms, *, atomic: bool = False
) -> tuple[list[LaneRecords], Watermarks]:
    """Read the latest record of each key, by lanes; an absent key is in its lane too, a repeated one once.

    The keys of one lane are read by one atomic command; with `atomic` all keys must be in one lane.
    Raises as `read_latest`, and BadRequest for an atomic read of several lanes.
    """
    for key in keys:
        check_key(key)
    return read_logged(store, topic, keys, terms, atomic=atomic)


def read_logged(
    store: Store, topic: str, keys: Sequence[bytes], terms: ReadTerms, *, atomic: bool = False
) -> tuple[list[LaneRecords], Watermarks]:
    """As `read_many`, of keys that the log has: one may be empty, or longer than a request can name."""
    distinct = list(dict.fromkeys(keys))
    deadline = Deadline.after_ms(terms.timeout_ms, store.clock)
    begun = begin_reading(store, topic, deadline)
    found, reading = read_current(begun, _read_lanes, distinct, atomic=atomic)
    reading.check(terms)
    by_lane = reading.watermarks.by_lane
    lanes = [LaneRecords(reading.layout, lane, by_lane[lane], keys, records) for lane, keys, records in found]
    return lanes, reading.watermarks


def _read_lanes(
    reading: Reading, keys: Sequence[bytes], *, atomic: bool
) -> list[tuple[Lane, Sequence[bytes], list[Record | None]]]:
    lanes = keys_by_lane(reading.layout, keys)
    if atomic:
        _check_one_lane(lanes)
    records = read_records(reading, lanes, atomic=atomic)
    return [(lane, keys, records[lane]) for lane, keys in lanes.items()]


def _check_one_lane(lanes: Mapping[Lane, Sequence[bytes]]) -> None:
    (lane, (first, *_)), *others = lanes.items()
    for other, (key, *_) in others:
        raise BadRequest(
            f"keys {printable(first)!r} and {printable(key)!r} are in different lanes "
            f"({lane} and {other}): they can't be read at one moment",
            "atomic",
        )
