"""A job is killed in the middle of a switch between generations: what readers find, on a real cluster."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support import lanes as t
from tests.support.begun import Run
from tests.support.jobs import State
from tests.support.queries import FakeQuery

from keylane import routing
from keylane.model.records import Layout
from keylane_spark.lanes.function_library import WriteOptions
from keylane_spark.lanes.lane import OffsetRange, lanes_of
from keylane_spark.log.kafka_admin import TopicShape
from keylane_spark.rows.records import Rows
from keylane_spark.serving import switch
from keylane_spark.stream.batch_writer import BatchWriter
from keylane_spark.stream.openings import Opening, Openings, WriterSpec
from keylane_spark.telemetry.metrics import JobMetrics

if TYPE_CHECKING:
    from keylane.adapters.redis.cluster import RedisSettings

NUMBERS = itertools.count()
PARTITIONS = 3
KEYS = 5
"""In each partition."""


class Killed(BaseException):
    """The job's process ends."""


def switch_generations(
    run: Run, redis: RedisSettings, old: Layout, new: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Switch as the job does, once both generations have everything."""
    ends = {(run.topic, partition): KEYS for partition in range(PARTITIONS)}
    now_ms = t.CLOCK.now_ms()
    monkeypatch.setattr(
        switch,
        "TopicQuery",
        lambda *_, building=False, **__: FakeQuery([], "next" if building else "old", ends, now_ms),
    )
    openings = [
        Opening(WriterSpec(redis, {run.topic: layout}, run.epoch, WriteOptions()), ends, [], frozenset())
        for layout in (old, new)
    ]
    context: Any = SimpleNamespace(clock=t.CLOCK, claim_clock=t.CLOCK, say=run.said.append, redis=redis)
    totals: Any = None
    shapes = {run.topic: TopicShape("id", PARTITIONS)}
    serving = switch.Serving(context, run.ownership, Openings(*openings, shapes), totals, JobMetrics(t.CLOCK))
    serving.until_stopped(threading.Event())


@pytest.mark.parametrize("is_switched", [False, True])
def test_a_switch_that_a_kill_interrupts_leaves_no_reader_with_the_generation_before(
    redis_cluster, monkeypatch, is_switched
):
    """It is killed just before or after readers are directed to the next one; their layouts are cached."""
    topic, redis = f"switch-{next(NUMBERS)}", t.settings(redis_cluster)
    state, run = State(redis_cluster, topic), Run(redis_cluster, topic)
    old = run.begin(Layout(topic, PARTITIONS)).plan.serving
    keys = run.write(old, KEYS)
    run.close()
    run = Run(redis_cluster, topic)
    wanted = replace(old, stripes=2)
    new = run.begin(wanted).plan.building
    run.writer.open([(lane, 0) for lane in lanes_of(new)])
    reader = state.reader(layout_ttl_s=3600)
    assert [reader.value(key) for key in keys] == keys

    change = run.ownership.switch

    def and_is_killed(*arguments: Any) -> None:
        if is_switched:
            change(*arguments)
        raise Killed

    monkeypatch.setattr(run.ownership, "switch", and_is_killed)
    with pytest.raises(Killed):
        switch_generations(run, redis, old, new, monkeypatch)
    run.close()
    assert state.layout == (new if is_switched else old)

    run = Run(redis_cluster, topic)
    serving = run.begin(wanted).plan.serving
    write_again(run, serving, keys)
    newest = [b"newest"] * len(keys)
    for each in (state.reader(), reader):
        assert [each.value(key) for key in keys] == newest
        each.close()
    run.close()
    state.close()


def write_again(run: Run, layout: Layout, keys: list[bytes]) -> None:
    """Write a newer value of each key; the lanes are complete then."""
    begin = KEYS if layout.generation == 1 else 0
    offsets = np.arange(KEYS, 2 * KEYS)
    covered = OffsetRange(begin, 2 * KEYS, t.CLOCK.now_ms(), 2 * KEYS)
    sources = [(run.topic, partition) for partition in range(PARTITIONS)]
    batch = BatchWriter(run.writer, {run.topic: layout}, dict.fromkeys(sources, covered))
    for source in sources:
        own = [key for key in keys if routing.partition_for(key, PARTITIONS) == source[1]]
        batch.write(source, Rows(offsets, t.BASE_MS + offsets, pa.array(own), pa.array([b"newest"] * KEYS)))
    batch.finish(sources)
