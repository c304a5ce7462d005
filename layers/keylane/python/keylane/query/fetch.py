"""Reads the records of several keys, or which keys have one: one command a lane, all shards at once."""

from collections.abc import Mapping, Sequence

from keylane.model.records import Record
from keylane.ports import Call
from keylane.query.store import Reading
from keylane.state import codec
from keylane.state.lanes import Lane, decode_values


def read_records(
    reading: Reading, keys_by_lane: Mapping[Lane, Sequence[bytes]], *, atomic: bool = False
) -> dict[Lane, list[Record | None]]:
    """Return the records of each lane's keys, in their order; None where one is absent, or not permitted."""
    scope = reading.scope
    asked = keys_by_lane
    if scope is not None:  # keys that no rule names are not asked for
        asked = {lane: [key for key in keys if scope.has_key(key)] for lane, keys in keys_by_lane.items()}
    calls = []
    for lane, keys in asked.items():
        prefix = lane.value_prefix
        words = (b"MGET", *[prefix + key for key in keys], lane.watermark_key)
        calls.append(Call(lane.slot, words, atomic))
    records = {}
    expand = reading.expander()
    for (lane, keys), reply in zip(asked.items(), reading.run(calls), strict=True):
        reading.watermarks.note(lane, reply[-1])
        found = decode_values(lane, keys, reply[:-1], expand)
        if scope is not None:
            permitted = dict(zip(keys, map(reading.permitted, found), strict=True))
            found = [permitted.get(key) for key in keys_by_lane[lane]]
        records[lane] = found
    return records


def find_present(reading: Reading, lanes: Mapping[bytes, Lane]) -> set[bytes]:
    """Return the keys of `lanes` (key -> its lane) that have a record, by the first bytes of their values."""
    distinct = list(dict.fromkeys(lanes.values()))
    calls = [Call(lane.slot, (b"GET", lane.watermark_key)) for lane in distinct]
    calls += [
        Call(lane.slot, (b"GETRANGE", lane.value_prefix + key, b"0", b"1")) for key, lane in lanes.items()
    ]
    replies = reading.run(calls)
    for lane, watermark in zip(distinct, replies, strict=False):
        reading.watermarks.note(lane, watermark)
    heads = zip(lanes, replies[len(distinct) :], strict=True)
    return {key for key, head in heads if head and not codec.is_tombstone(head)}
