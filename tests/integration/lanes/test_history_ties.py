"""Histories of records from several partitions with one timestamp and one offset, on a real Redis."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import lanes as t

from keylane.state import codec
from keylane_spark.lanes.lane import LaneTarget, OffsetRange

OWN = 4
KEY = b"k"
LONG_AGO_MS = 3_600_000
"""All records are older: a history of an age keeps the newest one alone."""


class Came(NamedTuple):
    """A record as it came. It has the next offset of its partition."""

    partition: int
    timestamp_ms: int
    value: bytes | None
    is_compressed: bool
    has_headers: bool


CAME = st.builds(
    Came,
    partition=st.sampled_from([OWN, 2, 7]),
    timestamp_ms=st.sampled_from([500, 501]),
    value=st.sampled_from([None, b"short", b"long" * 9]),
    is_compressed=st.booleans(),
    has_headers=st.booleans(),
)


def write(lanes, lane: LaneTarget, each: Came, offset: int) -> None:
    is_set = each.value is not None
    envelope = codec.encode_record(
        each.value,
        offset,
        each.timestamp_ms,
        None if each.partition == OWN else each.partition,
        headers=(("a", b"1"),) if each.has_headers and is_set else None,
        compressed=each.is_compressed and is_set,
    )
    chunk = t.chunk_of(lane, (KEY, envelope), end_offset=offset + 1, has_tombstones=not is_set)
    if each.partition == OWN:
        lanes.apply(lane, OffsetRange(offset, offset + 1), chunk)
    else:
        lanes.put_strays(lane, chunk, each.partition)
    lanes.flush()


def held(nodes: str, lane: LaneTarget) -> list[tuple[int, int, int, bool]]:
    """Timestamp, offset, partition and whether it is a tombstone of all in the history, newest first."""
    with t.client(nodes) as client:
        members = client.zrange(lane.key_prefix[:-2] + b"h:" + KEY, 0, -1)
    orders = [codec.history_order(member) for member in members]
    orders.sort(key=lambda order: codec.rank_of_order(order, OWN), reverse=True)
    entries = {codec.history_order(member): decoded(member) for member in members}
    return [
        (each.timestamp_ms, each.position.offset, each.position.partition, each.record is None)
        for each in map(entries.__getitem__, orders)
    ]


def decoded(member: bytes):
    return codec.decode_history_entry(KEY, member, OWN, lambda frame: frame)


@pytest.mark.parametrize("options", [{"history_count": 3}, {"history_age_ms": LONG_AGO_MS}], ids=str)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(came=st.lists(CAME, min_size=2, max_size=9))
def test_whatever_comes_first_and_is_compressed_the_newest_records_stay(redis_cluster, options, came):
    lane = t.new_lane(OWN, **options)
    lanes = t.opened(redis_cluster, lane)
    offsets = dict.fromkeys((OWN, 2, 7), 0)
    log = []
    for each in came:
        offset = offsets[each.partition]
        offsets[each.partition] += 1
        write(lanes, lane, each, offset)
        log.append((each.timestamp_ms, offset, each.partition, each.value is None))
    log.sort(key=lambda one: (*one[:2], one[2] == OWN, -one[2]), reverse=True)
    assert held(redis_cluster, lane) == log[: options.get("history_count", 1)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_many_partitions_tie_at_the_end_of_a_history(redis_cluster, count):
    lane = t.new_lane(OWN, history_count=count)
    lanes = t.opened(redis_cluster, lane)
    for partition in (7, OWN, 1, 8, 2):
        is_compressed = partition in (OWN, 2)
        write(lanes, lane, Came(partition, 500, b"v", is_compressed, has_headers=partition == 8), 0)
    assert [partition for _, _, partition, _ in held(redis_cluster, lane)] == [OWN, 1, 2][:count]


def test_the_history_of_a_key_whose_set_and_deletion_tie_expires_only_if_it_is_deleted(redis_cluster):
    for own_is_deleted in (False, True):
        lane = t.new_lane(OWN, history_age_ms=LONG_AGO_MS)
        lanes = t.opened(redis_cluster, lane)
        for partition in (7, OWN):
            value = None if (partition == OWN) == own_is_deleted else b"v"
            write(lanes, lane, Came(partition, 500, value, is_compressed=True, has_headers=False), 0)
        with t.client(redis_cluster) as client:
            assert (client.pttl(lane.key_prefix[:-2] + b"h:" + KEY) > 0) == own_is_deleted
