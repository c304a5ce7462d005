"""What a lane keeps by its topic's options, whatever is repeated, in whatever chunks and order it comes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.servers.own import eventually
from tests.support import lane_log as log
from tests.support import lanes as t
from tests.support.builders import in_part
from tests.support.lane_log import OWN, Row

from keylane.errors import CorruptState
from keylane.model.records import Options
from keylane.state import codec
from keylane_spark.lanes.lane import LaneTarget, OffsetRange

if TYPE_CHECKING:
    from keylane.adapters.redis.cluster import Cluster
    from keylane_spark.lanes.lane_writer import LaneWriter

NUMBERS = itertools.count()
KEYS = [b"a", b"b", b"c"]
HOUR_MS = 3_600_000
SOON_MS = 2_000
"""For how long what is about to expire is still looked at: far more than a few commands take."""


@pytest.fixture(name="cluster_map")
def _cluster_map(redis_cluster):
    cluster = t.Cluster(t.settings(redis_cluster))
    yield cluster
    cluster.close()


def opened(cluster: Cluster, lane: LaneTarget) -> LaneWriter:
    lanes = t.writer_over(cluster, 1)
    lanes.open([(lane, 0)])
    return lanes


def opened_lane(cluster: Cluster, **options) -> tuple[LaneTarget, LaneWriter]:
    """A new lane, and a writer that has opened it."""
    lane = t.new_lane(**options)
    return lane, opened(cluster, lane)


def put(lanes: LaneWriter, lane: LaneTarget, *rows: Row) -> None:
    """One chunk of one partition's rows."""
    log.send(lanes, lane, rows, rows[0].offset, rows[-1].offset + 1)


def values(cluster: Cluster, lane: LaneTarget) -> dict[bytes, bytes]:
    return {key: value for key, (_, _, value) in log.held(cluster, lane, KEYS).values.items()}


def name_of(lane: LaneTarget, kind: bytes, name: bytes) -> bytes:
    return lane.key_prefix[:-2] + kind + b":" + name


def lane_name(lane: LaneTarget) -> bytes:
    return b"%d.%d" % (lane.partition, lane.stripe)


TIMES = st.sampled_from([-2 * HOUR_MS, -2 * HOUR_MS + 1, -2 * HOUR_MS + 2, -5, -4, -3, -2, -1])
VALUES = st.none() | st.binary(max_size=3)
SOURCES = st.sampled_from([OWN, 7, 8])
RECORDS = st.lists(st.tuples(SOURCES, st.sampled_from(KEYS), VALUES, TIMES), max_size=14)
TURNS = st.lists(st.tuples(SOURCES, st.integers(0, 99), st.integers(0, 99), st.booleans()), max_size=8)
OPTIONS = st.fixed_dictionaries(
    {
        "ttl_ms": st.sampled_from([None, HOUR_MS]),
        "history_count": st.sampled_from([None, 1, 2, 3]),
        "history_age_ms": st.sampled_from([None, HOUR_MS]),
        "index": st.sampled_from([0, 1, 3]),
        "fields": st.booleans(),
    }
).map(lambda options: options | {"fields": log.FIELDS if options["fields"] and options["index"] else ()})
ON_SERVERS = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def read_logs(cluster: Cluster, lane: LaneTarget, logs: dict[int, list[Row]], turns) -> None:
    """Read parts of the logs, from anywhere that was reached, then the rest; look after each."""
    lanes = opened(cluster, lane)
    now_ms = log.server_time_ms(cluster, lane)
    logs = {source: [row._replace(time=now_ms + row.time) for row in rows] for source, rows in logs.items()}
    seen: dict[int, int] = dict.fromkeys(logs, 0)
    for source, first, count, is_folded in [*turns, *((source, None, None, False) for source in logs)]:
        begin = seen[source] if first is None else first % (seen[source] + 1)
        left = len(logs[source]) - begin
        end = begin + (left if count is None else count % (left + 1))
        if source == OWN or begin < end:
            log.send(lanes, lane, logs[source][begin:end], begin, end, fold=is_folded)
        seen[source] = max(seen[source], end)
        rows = [row for source, reached in seen.items() for row in logs[source][:reached]]
        assert log.held(cluster, lane, KEYS) == log.fold(rows, lane.options, now_ms)


@ON_SERVERS
@given(records=RECORDS, options=OPTIONS, turns=TURNS)
def test_state_history_and_index_are_the_fold_of_the_logs_however_they_are_read(
    cluster_map, records, options, turns
):
    """Three partitions whose times go back, in chunks of any bounds, repeated from anywhere."""
    logs: dict[int, list[Row]] = {OWN: [], 7: [], 8: []}
    for source, key, value, time in records:
        logs[source].append(Row(source, len(logs[source]), key, value, time))
    has_history = options["history_count"] or options["history_age_ms"]
    turns = [
        (source, first, count, is_folded and not has_history) for source, first, count, is_folded in turns
    ]
    read_logs(cluster_map, t.new_lane(guarded=True, **options), logs, turns)


@ON_SERVERS
@given(
    records=st.lists(
        st.tuples(
            SOURCES,
            st.sampled_from(KEYS[:2]),
            st.sampled_from([None, b"x", b"xy", b"yz", b"xyz"]),
            st.sampled_from([-4, -3, -2, -1]),
        ),
        min_size=5,
        max_size=14,
    ),
    options=st.fixed_dictionaries(
        {"ttl_ms": st.sampled_from([None, HOUR_MS]), "index": st.sampled_from([1, 3])}
    ),
    turns=TURNS,
)
def test_indexes_of_fields_have_what_the_stored_records_have_and_no_more(
    cluster_map, records, options, turns
):
    """Values that replace one another share some fields; entries are shorter and longer than a head."""
    logs: dict[int, list[Row]] = {OWN: [], 7: [], 8: []}
    for source, key, value, time in records:
        logs[source].append(Row(source, len(logs[source]), key, value, time))
    read_logs(cluster_map, t.new_lane(guarded=True, fields=log.FIELDS, **options), logs, turns)


@ON_SERVERS
@given(records=RECORDS, options=OPTIONS, turns=TURNS)
def test_what_is_read_again_after_all_markers_are_gone_changes_nothing(cluster_map, records, options, turns):
    """Partitions that are read again, from anywhere: shards of other lanes have lost what they held."""
    lane, lanes = opened_lane(cluster_map, guarded=True, **options)
    now_ms = log.server_time_ms(cluster_map, lane)
    logs: dict[int, list[Row]] = {OWN: [], 7: [], 8: []}
    for source, key, value, time in records:
        logs[source].append(Row(source, len(logs[source]), key, value, now_ms + time))
    for rows in filter(None, logs.values()):
        log.send(lanes, lane, rows, 0, len(rows))
    state = log.held(cluster_map, lane, KEYS)
    for key in KEYS:
        if key not in state.values:
            log.ask(cluster_map, lane, (b"DEL", lane.key_prefix + key))
    for source, first, count, is_folded in [*turns, *((source, 0, 99, False) for source in logs)]:
        begin = first % (len(logs[source]) + 1)
        if rows := logs[source][begin : begin + count]:
            log.send(lanes, lane, rows, begin, begin + len(rows), fold=is_folded)
        assert log.held(cluster_map, lane, KEYS) == state


@ON_SERVERS
@given(
    records=st.lists(
        st.tuples(st.just(OWN), st.sampled_from(KEYS), VALUES, st.integers(-9, -1)), max_size=14
    ),
    index=st.booleans(),
    has_fields=st.booleans(),
    turns=st.lists(
        st.tuples(st.just(OWN), st.integers(0, 99), st.integers(0, 99), st.just(False)), max_size=6
    ),
)
def test_of_an_insert_once_topic_the_first_value_stays_until_a_tombstone(
    cluster_map, records, index, has_fields, turns
):
    fields = log.FIELDS if index and has_fields else ()
    rows = [Row(OWN, offset, key, value, time) for offset, (_, key, value, time) in enumerate(records)]
    read_logs(cluster_map, t.new_lane(insert_once=True, index=index, fields=fields), {OWN: rows}, turns)


LOGS_THAT_GO_BACK = [
    # a beats s, s beats b, b follows a: without the order timestamp the last of them to be read would stay
    [(OWN, 100), (OWN, 50), (7, 80)],
    [(OWN, 100), (OWN, 50), (7, 100), (7, 20), (8, 100)],
    [(OWN, 10), (OWN, 90), (7, 90), (7, 10), (8, 95)],
    [(7, 100), (7, 50), (8, 100), (8, 70), (OWN, 60)],
]


@pytest.mark.parametrize("steps", LOGS_THAT_GO_BACK)
@pytest.mark.parametrize("gone", [None, 1, 2])
def test_where_times_go_back_every_order_of_reading_leaves_the_same_record(cluster_map, steps, gone):
    """Record number `gone` is a tombstone."""
    sources = [source for source, _ in steps]
    rows = [
        Row(source, sources[:number].count(source), b"a", None if number == gone else b"%d" % number, time)
        for number, (source, time) in enumerate(steps)
    ]
    left = set()
    for order in set(itertools.permutations(sources)):
        lane, lanes = opened_lane(cluster_map, guarded=True)
        for number, source in enumerate(order):
            offset = order[:number].count(source)
            put(lanes, lane, next(row for row in rows if (row.source, row.offset) == (source, offset)))
        left.add(values(cluster_map, lane).get(b"a"))
    assert left == {log.fold(rows, Options(), 0).values.get(b"a", (0, 0, None))[2]}


@pytest.mark.parametrize("options", [{}, {"guarded": True}])
def test_a_tombstone_s_marker_keeps_the_order_of_the_records_that_its_chunk_left_out(cluster_map, options):
    lane, lanes = opened_lane(cluster_map, **options)
    rows = [Row(OWN, 0, b"a", b"x", 900), Row(OWN, 1, b"a", None, 500)]
    log.send(lanes, lane, rows, 0, 2, fold=True)
    put(lanes, lane, Row(7, 0, b"a", b"older", 899))
    assert values(cluster_map, lane) == {}
    put(lanes, lane, Row(7, 1, b"a", b"newer", 901))
    assert values(cluster_map, lane) == {b"a": b"newer"}


@pytest.mark.parametrize("options", [{}, {"guarded": True}, {"index": True}])
def test_a_tombstone_leaves_a_marker_in_every_lane(cluster_map, options):
    lane, lanes = opened_lane(cluster_map, marker_ms=HOUR_MS, **options)
    put(lanes, lane, Row(OWN, 0, b"a", b"x", 100), Row(OWN, 1, b"a", None, 500))
    put(lanes, lane, Row(OWN, 2, b"b", None, 500))
    for key in (b"a", b"b"):
        (left_ms,) = log.ask(cluster_map, lane, (b"PTTL", lane.key_prefix + key))
        assert HOUR_MS - 60_000 < left_ms <= HOUR_MS
    for key in (b"a", b"b"):
        put(lanes, lane, Row(7, 30, key, b"older", 499))
        assert values(cluster_map, lane) == {}
    put(lanes, lane, Row(7, 31, b"a", b"newer", 501))
    put(lanes, lane, Row(OWN, 3, b"b", b"newer", 10))
    assert values(cluster_map, lane) == {b"a": b"newer", b"b": b"newer"}
    assert log.ask(cluster_map, lane, *((b"PTTL", lane.key_prefix + key) for key in (b"a", b"b"))) == [-1, -1]


@pytest.mark.parametrize("options", [{}, {"guarded": True}, {"index": True}])
def test_without_markers_a_deleted_key_leaves_nothing(cluster_map, options):
    lane, lanes = opened_lane(cluster_map, marker_ms=0, **options)
    put(
        lanes,
        lane,
        Row(OWN, 0, b"a", b"x", 100),
        Row(OWN, 1, b"b", b"y", 100),
        Row(OWN, 2, b"a", None, 500),
    )
    assert log.ask(cluster_map, lane, (b"EXISTS", lane.key_prefix + b"a")) == [0]
    put(lanes, lane, Row(7, 0, b"b", None, 500))
    assert log.ask(cluster_map, lane, (b"EXISTS", lane.key_prefix + b"b")) == [0]


def test_a_record_is_gone_its_time_to_live_after_its_timestamp(cluster_map):
    lane, lanes = opened_lane(cluster_map, ttl_ms=HOUR_MS)
    now_ms = log.server_time_ms(cluster_map, lane)
    put(lanes, lane, Row(OWN, 0, b"a", b"x", now_ms - 1000), Row(OWN, 1, b"b", b"y", now_ms + HOUR_MS))
    ends = log.ask(cluster_map, lane, *((b"PEXPIRETIME", lane.key_prefix + key) for key in (b"a", b"b")))
    assert ends == [now_ms - 1000 + HOUR_MS, now_ms + 2 * HOUR_MS]


def test_a_record_that_has_expired_before_it_came_is_as_a_tombstone(cluster_map):
    lane, lanes = opened_lane(cluster_map, ttl_ms=HOUR_MS, index=True)
    now_ms = log.server_time_ms(cluster_map, lane)
    put(lanes, lane, Row(OWN, 0, b"a", b"x", now_ms), Row(OWN, 1, b"b", b"y", now_ms))
    put(lanes, lane, Row(OWN, 2, b"a", b"too old", now_ms - HOUR_MS))
    assert log.held(cluster_map, lane, KEYS) == log.Held({b"b": (OWN, 1, b"y")}, {}, [b"b"], [])
    put(lanes, lane, Row(7, 0, b"a", b"older by the order of time", now_ms - 1))
    assert values(cluster_map, lane) == {b"b": b"y"}
    (marker,) = log.ask(cluster_map, lane, (b"GET", lane.key_prefix + b"a"))
    assert len(marker) == codec.HEADER_BYTES + 8  # without the value, with its order timestamp


@pytest.mark.parametrize("parts", [1, 3])
def test_what_expires_leaves_the_index_at_the_next_write_or_heartbeat(cluster_map, parts):
    for count in (0, 1):
        lane, lanes = opened_lane(cluster_map, ttl_ms=HOUR_MS, index=parts, fields=log.FIELDS)
        soon = log.server_time_ms(cluster_map, lane) - HOUR_MS + SOON_MS
        rows = [
            Row(OWN, 0, b"a", b"x", soon),
            Row(OWN, 1, b"b", b"x", soon),
            Row(OWN, 2, b"c", b"x", soon),
        ]
        put(lanes, lane, *rows)
        put(lanes, lane, Row(OWN, 3, b"b", b"again", soon + HOUR_MS))
        put(lanes, lane, Row(OWN, 4, b"c", None, soon))
        assert log.held(cluster_map, lane, KEYS).index == [b"a", b"b"]
        eventually(lambda lane=lane: b"a" not in values(cluster_map, lane))
        rows = [Row(OWN, 5, b"c", b"new", soon + HOUR_MS)][:count]
        log.send(lanes, lane, rows, 5, 5 + count)
        assert log.held(cluster_map, lane, KEYS).index == [b"b", b"c"][: 1 + count]
        expiries = log.members(cluster_map, lane, name_of(lane, b"x", lane_name(lane)))
        assert expiries == [b"b", b"c"][: 1 + count]
        live = {b"b": b"again", b"c": b"new"}
        assert log.held(cluster_map, lane, KEYS).fields[1] == sorted(
            value.hex().encode() * 20 + b"\0" + key for key, value in list(live.items())[: 1 + count]
        )


def test_a_key_that_has_expired_and_is_set_again_stays_in_the_index(cluster_map):
    lane, lanes = opened_lane(cluster_map, ttl_ms=HOUR_MS, index=1, fields=log.FIELDS)
    soon = log.server_time_ms(cluster_map, lane) - HOUR_MS + 50
    put(lanes, lane, Row(OWN, 0, b"a", b"x", soon))
    eventually(lambda: values(cluster_map, lane) == {})
    again = Row(OWN, 1, b"a", b"again", soon + HOUR_MS)
    put(lanes, lane, again)
    assert log.held(cluster_map, lane, KEYS) == log.fold([again], lane.options, soon)


@pytest.mark.parametrize("parts", [1, 3])
def test_an_index_of_many_keys_that_expire_does_not_grow(cluster_map, parts):
    """Each chunk brings five hundred keys that live for a moment."""
    lane, lanes = opened_lane(cluster_map, ttl_ms=HOUR_MS, index=parts)
    index = name_of(lane, b"i", lane_name(lane))
    for turn in range(4):
        time = log.server_time_ms(cluster_map, lane) - HOUR_MS + 50
        put(lanes, lane, *(Row(OWN, turn * 500 + n, b"%d-%d" % (turn, n), b"x", time) for n in range(500)))
        last = lane.key_prefix + b"%d-499" % turn
        eventually(lambda last=last: log.ask(cluster_map, lane, (b"EXISTS", last)) == [0])
    assert len(log.members(cluster_map, lane, index)) <= 1000
    for _ in range(5):
        lanes.apply(lane, OffsetRange(2000, 2000))
        lanes.flush()
    assert log.members(cluster_map, lane, index) == []


def test_headers_and_sizes_pass_through_whatever_the_library_adds(cluster_map):
    """The second record takes the order timestamp of the first."""
    lane, lanes = opened_lane(cluster_map, guarded=True, history_count=5)
    headers = (("name", b"value"), ("none", None))
    payloads = [
        codec.encode_record(b"x", 0, 900, headers=headers),
        codec.encode_record(b"y", 1, 500, headers=headers),
        codec.encode_record(codec.LeftInKafka(7_000_000), 2, 600, headers=headers),
    ]
    expected = [(b"y", None, 1), (b"", 7_000_000, 2)]
    for offset, payload in enumerate(payloads):
        lanes.apply(lane, OffsetRange(offset, offset + 1), t.chunk_of(lane, (b"a", payload)))
        lanes.flush()
        if offset:
            (data,) = log.ask(cluster_map, lane, (b"GET", lane.key_prefix + b"a"))
            record = codec.decode_record(b"a", data, OWN)
            assert data[1] & codec.ORDER
            assert data[codec.HEADER_BYTES :][:8] == (900).to_bytes(8)
            assert (record.value, record.left_in_kafka_bytes, record.offset) == expected[offset - 1]
            assert record.headers == headers
    (members,) = log.ask(cluster_map, lane, (b"ZRANGE", name_of(lane, b"h", b"a"), b"0", b"-1"))
    by_time = [payloads[1], payloads[2], payloads[0]]
    assert members == [payload[2:10] + payload[:2] + payload[10:] for payload in by_time]


def test_a_history_holds_a_record_once_however_its_chunks_were_cut(cluster_map):
    """With the first record in its chunk the second has an order timestamp, alone it has none."""
    lane, lanes = opened_lane(cluster_map, history_count=5)
    rows = [Row(7, 0, b"a", b"x", 900), Row(7, 1, b"a", b"y", 500)]
    log.send(lanes, lane, rows, 0, 2, fold=True)
    put(lanes, lane, rows[1])
    assert log.held(cluster_map, lane, KEYS).histories == {b"a": [(500, log.member(rows[1]))]}


def test_a_history_ends_only_where_its_key_is_gone(cluster_map):
    """As of a time within the age, an untouched key's last record holds, however old it is."""
    lane, lanes = opened_lane(cluster_map, history_age_ms=HOUR_MS, marker_ms=1)
    now_ms = log.server_time_ms(cluster_map, lane)
    history = name_of(lane, b"h", b"a")
    put(
        lanes,
        lane,
        Row(OWN, 0, b"a", b"x", now_ms - 9 * HOUR_MS),
        Row(OWN, 1, b"a", b"y", now_ms - 8 * HOUR_MS),
    )
    assert log.ask(cluster_map, lane, (b"PTTL", history), (b"ZCARD", history)) == [-1, 1]
    put(lanes, lane, Row(OWN, 2, b"a", None, now_ms - 60_000))
    assert log.ask(cluster_map, lane, (b"PEXPIRETIME", history)) == [now_ms - 60_000 + HOUR_MS]
    put(lanes, lane, Row(OWN, 3, b"a", b"z", now_ms - 59_000))
    assert log.ask(cluster_map, lane, (b"PTTL", history), (b"ZCARD", history)) == [-1, 3]


@pytest.mark.parametrize("parts", [1, 3])
def test_a_key_is_in_the_index_of_histories_for_as_long_as_its_history_lasts(cluster_map, parts):
    lane, lanes = opened_lane(cluster_map, history_age_ms=SOON_MS, marker_ms=1, index=parts)
    now_ms = log.server_time_ms(cluster_map, lane)
    both = [Row(OWN, offset, key, b"x", now_ms) for offset, key in enumerate((b"a", b"b"))]
    put(lanes, lane, *both)
    put(lanes, lane, Row(OWN, 2, b"a", None, now_ms + 1))
    state = log.held(cluster_map, lane, KEYS)
    assert (state.index, state.past) == ([b"b"], [b"a", b"b"])

    def is_forgotten() -> bool:
        lanes.apply(lane, OffsetRange(3, 3))
        lanes.flush()
        state = log.held(cluster_map, lane, KEYS)
        assert (b"a" in state.histories) <= (b"a" in state.past)
        return (list(state.histories), state.past) == ([b"b"], [b"b"])

    eventually(is_forgotten)
    assert log.members(cluster_map, lane, name_of(lane, b"q", lane_name(lane))) == []
    put(lanes, lane, Row(OWN, 3, b"a", b"again", now_ms + 2))
    assert log.held(cluster_map, lane, KEYS).past == [b"a", b"b"]


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("kind", [b"h", b"i", b"x", b"p", b"q"])
def test_another_type_under_a_lane_s_key_is_an_error_before_anything_is_written(cluster_map, kind, parts):
    lane, lanes = opened_lane(
        cluster_map, ttl_ms=HOUR_MS, history_count=2, history_age_ms=HOUR_MS, index=parts
    )
    name = name_of(lane, kind, b"a" if kind == b"h" else lane_name(lane))
    name = name if kind == b"h" else in_part(name, b"b", parts)
    log.ask(cluster_map, lane, (b"SET", name, b"theirs"))
    now_ms = log.server_time_ms(cluster_map, lane)
    with pytest.raises(CorruptState, match="WRONGTYPE"):
        put(lanes, lane, Row(OWN, 0, b"a", b"x", now_ms), Row(OWN, 1, b"b", b"x", now_ms))
    log.ask(cluster_map, lane, (b"DEL", name))
    assert log.held(cluster_map, lane, KEYS) == log.Held({}, {}, [], [])


def test_a_stray_s_tombstone_deletes_an_insert_once_value_that_is_older_and_none_that_is_newer(cluster_map):
    lane, lanes = opened_lane(cluster_map, insert_once=True)
    put(lanes, lane, Row(OWN, 0, b"a", b"x", 100), Row(OWN, 1, b"b", b"x", 300))
    put(lanes, lane, Row(7, 0, b"a", b"second", 150), Row(7, 1, b"b", b"second", 400))
    assert values(cluster_map, lane) == {b"a": b"x", b"b": b"x"}
    put(lanes, lane, Row(7, 2, b"a", None, 200), Row(7, 3, b"c", None, 200))
    put(lanes, lane, Row(8, 0, b"b", None, 200))
    assert values(cluster_map, lane) == {b"b": b"x"}
    put(lanes, lane, Row(OWN, 2, b"a", b"older than the tombstone", 150))
    put(lanes, lane, Row(OWN, 3, b"c", b"newer", 201))
    assert values(cluster_map, lane) == {b"b": b"x", b"c": b"newer"}


def test_an_insert_once_value_that_was_left_out_stays_out_when_it_is_read_again(cluster_map):
    """The first value has expired meanwhile."""
    lane, lanes = opened_lane(cluster_map, insert_once=True, ttl_ms=HOUR_MS)
    now_ms = log.server_time_ms(cluster_map, lane)
    rows = [Row(OWN, 0, b"a", b"x", now_ms - HOUR_MS + SOON_MS), Row(OWN, 1, b"a", b"second", now_ms)]
    put(lanes, lane, *rows)
    assert values(cluster_map, lane) == {b"a": b"x"}
    eventually(lambda: values(cluster_map, lane) == {})
    put(lanes, lane, *rows, Row(OWN, 2, b"b", b"y", now_ms))
    assert values(cluster_map, lane) == {b"b": b"y"}
