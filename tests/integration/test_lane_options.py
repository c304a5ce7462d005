"""What a lane keeps by its topic's options, whatever is repeated, in whatever chunks and order it comes."""

from __future__ import annotations

import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import lane_log as log
from tests import lanes as t
from tests.lane_log import HOME, Row

from keylane.adapters.redis_lanes import Lane, LaneWriter
from keylane.model import Layout, Options

NUMBERS = itertools.count()
KEYS = [b"a", b"b", b"c"]
HOUR_MS = 3_600_000


def new_lane(**options) -> Lane:
    return Lane.of(Layout(f"options-{next(NUMBERS)}", 9, options=Options(**options)), HOME, 0)


def opened(nodes: str, lane: Lane):
    lanes = t.writer(nodes, 1)
    lanes.open([(lane, 0)])
    return lanes


TIMES = st.sampled_from([-2 * HOUR_MS, -2 * HOUR_MS + 1, -2 * HOUR_MS + 2, -5, -4, -3, -2, -1])
VALUES = st.none() | st.binary(max_size=3)
SOURCES = st.sampled_from([HOME, 7, 8])
RECORDS = st.lists(st.tuples(SOURCES, st.sampled_from(KEYS), VALUES, TIMES), max_size=14)
TURNS = st.lists(st.tuples(SOURCES, st.integers(0, 99), st.integers(0, 99), st.booleans()), max_size=8)
OPTIONS = st.fixed_dictionaries(
    {
        "ttl_ms": st.sampled_from([None, HOUR_MS]),
        "history_count": st.sampled_from([None, 1, 2, 3]),
        "history_age_ms": st.sampled_from([None, HOUR_MS]),
        "index": st.booleans(),
    }
)
ON_SERVERS = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def read_logs(nodes: str, lane: Lane, logs: dict[int, list[Row]], turns) -> None:
    """Read parts of the logs, from anywhere that was reached, then the rest; look after each."""
    cluster = t.Cluster(t.settings(nodes))
    lanes = LaneWriter(cluster, t.CLOCK, 1)
    lanes.open([(lane, 0)])
    now_ms = log.server_time_ms(cluster, lane)
    logs = {source: [row._replace(time=now_ms + row.time) for row in rows] for source, rows in logs.items()}
    seen: dict[int, int] = dict.fromkeys(logs, 0)
    for source, first, count, is_folded in [*turns, *((source, None, None, False) for source in logs)]:
        begin = seen[source] if first is None else first % (seen[source] + 1)
        left = len(logs[source]) - begin
        end = begin + (left if count is None else count % (left + 1))
        if source == HOME or begin < end:
            log.send(lanes, lane, logs[source][begin:end], begin, end, fold=is_folded)
        seen[source] = max(seen[source], end)
        rows = [row for source, reached in seen.items() for row in logs[source][:reached]]
        assert log.held(cluster, lane, KEYS) == log.fold(rows, lane.options, now_ms)
    cluster.close()


@ON_SERVERS
@given(records=RECORDS, options=OPTIONS, turns=TURNS)
def test_state_history_and_index_are_the_fold_of_the_logs_however_they_are_read(
    redis_cluster, records, options, turns
):
    """Three partitions whose times go back, in chunks of any bounds, repeated from anywhere."""
    logs: dict[int, list[Row]] = {HOME: [], 7: [], 8: []}
    for source, key, value, time in records:
        logs[source].append(Row(source, len(logs[source]), key, value, time))
    has_history = options["history_count"] or options["history_age_ms"]
    turns = [
        (source, first, count, is_folded and not has_history) for source, first, count, is_folded in turns
    ]
    read_logs(redis_cluster, new_lane(guarded=True, **options), logs, turns)
