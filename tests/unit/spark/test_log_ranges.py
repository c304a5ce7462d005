"""Ranges that tasks read themselves: a batch is written only if all of each was, or its rest was left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from keylane.adapters.kafka.options import Connection
from keylane.adapters.redis.connections import RedisSettings
from keylane.errors import LogUnavailable
from keylane.model.records import Layout
from keylane_spark.config.transforms import Transform
from keylane_spark.lanes.function_library import DEFAULTS
from keylane_spark.lanes.lane import OffsetRange
from keylane_spark.log.fetches import PlannedRange
from keylane_spark.log.log_reader import LeaderAway
from keylane_spark.rows.transforms import TopicTransform
from keylane_spark.stream import log_ranges
from keylane_spark.stream.driver_share import PlannedBatch
from keylane_spark.stream.log_ranges import DirectReader, grouped
from keylane_spark.stream.openings import WriterSpec
from keylane_spark.stream.partition_chunks import NOWHERE

END = 7


def a_row(**fields: Any) -> SimpleNamespace:
    row = {"topic": "t", "partition": 0, "newer_epoch": 0, "reached": END, "left": "", "stopped_at": NOWHERE}
    return SimpleNamespace(**row | fields)


@pytest.mark.parametrize(
    ("rows", "is_believed"),
    [
        ([a_row()], True),
        ([], False),
        # As of a worker that Spark ended in the middle, without an error.
        ([a_row(reached=END - 1)], False),
        ([a_row(reached=END - 1, left="its leader is away")], True),
        ([a_row(reached=END - 1, stopped_at=END - 1)], True),
        ([a_row(reached=END - 1, newer_epoch=5)], True),
    ],
)
def test_a_task_that_ended_before_its_range_did_is_not_believed(monkeypatch, rows, is_believed):
    spec = WriterSpec(RedisSettings((("127.0.0.1", 1),)), {"t": Layout("t", 1)}, 1, DEFAULTS)
    reader = DirectReader(spec, Connection("127.0.0.1:1"), {}, {}, committed=True, headers_here=False)
    monkeypatch.setattr(DirectReader, "_write_ranges", lambda *_, **__: rows)
    batch = PlannedBatch(SimpleNamespace(), {("t", 0): OffsetRange(0, END)})
    if is_believed:
        assert reader.write_in_tasks(batch, {}) == rows
    else:
        with pytest.raises(LogUnavailable, match="ended before it had read the batch's range"):
            reader.write_in_tasks(batch, {})


def test_ranges_are_shared_out_by_their_lengths():
    lengths = [100, 1, 60, 50, 2, 0, 45]
    ranges = [
        PlannedRange("t", number, 500 * number, 500 * number + length)
        for number, length in enumerate(lengths)
    ]
    groups = grouped(ranges, 3)
    sizes = [sum(each.end - each.begin for each in group) for group in groups]
    assert max(sizes) - min(sizes) < 40
    assert sorted(each.partition for group in groups for each in group) == list(range(7))
    assert len(grouped(ranges, 20)) == len(ranges)


def test_topics_whose_rows_pass_through_the_jvm_are_read_by_tasks_of_their_own(monkeypatch):
    topics = ("plain", "by sql")
    layouts = {topic: Layout(topic, 1) for topic in topics}
    sql = {"by sql": TopicTransform(Transform(where="true"), "stop")}
    spec = WriterSpec(RedisSettings((("127.0.0.1", 1),)), layouts, 1, DEFAULTS, transforms=sql)
    sources = {(topic, 0): 5 for topic in topics}, {topic: f"id of {topic}" for topic in topics}
    reader = DirectReader(spec, Connection("127.0.0.1:1"), *sources, committed=True, headers_here=False)
    planned = []

    def write(self, batch, parked, ranges, *, has_sql):
        planned.append((ranges, has_sql))
        return [a_row(topic=each.topic) for each in ranges]

    monkeypatch.setattr(DirectReader, "_write_ranges", write)
    batch = PlannedBatch(SimpleNamespace(), dict.fromkeys(sources[0], OffsetRange(0, END)))
    assert [row.topic for row in reader.write_in_tasks(batch, {})] == list(topics)
    assert planned == [
        ([PlannedRange(topic, 0, 0, END, 5, f"id of {topic}")], has_sql)
        for topic, has_sql in zip(topics, (False, True), strict=True)
    ]


class ReaderWithoutLeaders:
    """A double of `LogRangeReader`: the leaders of these partitions are away once a row of each was read."""

    def __init__(self, _: Connection, *, away_s: float, timeout_s: float) -> None:
        self.away_s, self.timeout_s = away_s, timeout_s
        self.away: set[int] = set()

    def read_each(self, ranges, **options):
        self.options = options
        return [(each, self._rows(each.partition)) for each in ranges]

    def _rows(self, partition: int):
        yield f"row of {partition}"
        if partition in self.away:
            raise LeaderAway(f"that of {partition} is away")


def test_the_driver_leaves_what_has_no_leader_and_waits_longer_for_it_while_it_stays_away(monkeypatch):
    monkeypatch.setattr(log_ranges, "LogRangeReader", ReaderWithoutLeaders)
    reader = DirectReader(Any, Connection("127.0.0.1:1"), {}, {}, committed=True, headers_here=False)
    batch = PlannedBatch(SimpleNamespace(), {("t", each): OffsetRange(0, END) for each in range(3)})
    driver: Any = reader._reader
    assert (driver.away_s, driver.timeout_s) == (0.3, 1)
    for away, timeout_s in (({1}, 2), ({0, 1}, 4), ({2}, 8), ({1}, 10), ({1}, 10), (set(), 1)):
        driver.away, left = away, {}
        rows = list(reader.read_here(batch, left.__setitem__))
        assert rows == [(("t", each), f"row of {each}") for each in range(3)]
        assert left == {("t", each): f"that of {each} is away" for each in away}
        assert driver.timeout_s == timeout_s
    assert driver.options == {"committed": True, "with_headers": False}
