"""Reads many keys of a topic: one command a lane, all shards at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.errors import BadRequest
from keylane.model.keys import check_key, printable
from keylane.ports import Deadline
from keylane.query.fetch import read_records
from keylane.query.store import ANY, readings
from keylane.state.lanes import lanes_by_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from keylane.model.records import Answer
    from keylane.query.store import ReadTerms, Store, Watermarks
    from keylane.state.lanes import Lane


def read_many(
    store: Store, topic: str, keys: Sequence[bytes], terms: ReadTerms = ANY, *, atomic: bool = False
) -> tuple[list[tuple[bytes, Answer]], Watermarks]:
    """Read the latest record of each key, in the order of `keys`; an absent key has an answer too.

    The keys of one lane are read by one atomic command; with `atomic` all keys must be in one lane.
    Raises as `read_latest`, and BadRequest for an atomic read of several lanes.
    """
    for key in keys:
        check_key(key)
    for reading in readings(store, topic, Deadline.after_ms(terms.timeout_ms, store.clock)):
        lanes = lanes_by_key(reading.layout, keys)
        if atomic:
            _check_one_lane(lanes)
        records = read_records(reading, lanes, atomic=atomic)
    reading.check(terms)
    return [(key, reading.answer(lanes[key], records[key])) for key in keys], reading.watermarks


def _check_one_lane(lanes: Mapping[bytes, Lane]) -> None:
    first, *others = lanes
    for key in others:
        if lanes[key] != lanes[first]:
            raise BadRequest(
                f"keys {printable(first)!r} and {printable(key)!r} are in different lanes "
                f"({lanes[first]} and {lanes[key]}): they can't be read at one moment",
                "atomic",
            )
