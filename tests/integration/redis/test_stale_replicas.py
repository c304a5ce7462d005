"""Streams of a topic over a real cluster whose replica has lost its primary, and answers all the same."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
import redis
from tests.servers.own import eventually, fill, hanging, primary_and_replica
from tests.support import lanes as t
from tests.support.builders import a_lane, a_layout, a_watermark, lane_of, value_entry, watermark_entry
from tests.support.fakes import FakeKafka

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.api.reads.change_sources import TopicChanges
from keylane.api.reads.changes import ChangesRequest
from keylane.config.functions import redis_settings
from keylane.errors import StateUnavailable
from keylane.model.changes import RECORD
from keylane.model.kafka import LogRecord
from keylane.ports import Clock, WaitBudget
from keylane.query.changes import ChangeReader
from keylane.query.decoding import ValueDecoder
from keylane.query.layouts import Layouts
from keylane.query.store import ReadTerms, Store
from keylane.state.lanes import lane_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keylane.model.changes import ChangeEvent
    from keylane.model.records import Layout
    from keylane_local.servers.redis_cluster import RedisCluster, RedisNode

KEY = b"k"
CLOCK = Clock()


@contextlib.contextmanager
def cut_off(primary: RedisNode, replica: RedisNode) -> Iterator[None]:
    """Keep what the primary takes from its replica."""
    with redis.Redis(port=replica.port) as behind, redis.Redis(port=primary.port) as ahead:
        behind.config_set("masteruser", "nobody")
        behind.config_set("masterauth", "wrong")
        ahead.client_kill_filter(_type="replica")
        eventually(lambda: behind.info("replication")["master_link_status"] == "down")
        try:
            yield
        finally:
            behind.config_set("masteruser", "")
            behind.config_set("masterauth", "")
            eventually(lambda: behind.info("replication")["master_link_status"] == "up")


def watermark(layout: Layout, partition: int, next_offset: int) -> dict[bytes, bytes]:
    now_ms = CLOCK.now_ms()
    return watermark_entry(layout, KEY, a_watermark(next_offset, complete_as_of_ms=now_ms), partition)


def changes(events: Sequence[ChangeEvent]) -> list[bool]:
    """Return of each record whether it is the new one."""
    return ['"new"' in event.data for event in events if event.name == RECORD]


@pytest.mark.parametrize("is_stray", [False, True])
def test_a_change_that_a_stale_replica_lacks_is_sent_once_the_primary_answers(
    breaking: RedisCluster, is_stray: bool
):
    layout, kafka = a_layout(partition_count=3), FakeKafka()
    own = lane_of(layout, KEY)[0]
    source = (own + 1) % 3 if is_stray else own
    log = kafka.create(layout.topic, 3)
    log[own].add(LogRecord(0, KEY, b'"old"'))
    old = a_lane(layout, KEY, b'"old"', offset=0)
    for partition in range(3):
        old |= watermark(layout, partition, log[partition].high)
    fill(breaking.addresses, old)
    offset = log[source].high
    log[source].add(LogRecord(offset, KEY, b'"new"'))
    stray_of = source if is_stray else None
    new = value_entry(layout, KEY, b'"new"', offset=offset, source_partition=stray_of)
    new |= watermark(layout, source, offset + 1)
    primary, replica = primary_and_replica(breaking, lane_at(layout, own, 0).slot)
    state = RedisState(Cluster(redis_settings({"KEYLANE_REDIS_NODES": breaking.addresses})))
    reader = ChangeReader(
        Store(state, Layouts(state, CLOCK, 30), CLOCK),
        lambda: kafka,
        lambda **_: ValueDecoder(lambda: None, WaitBudget(0, CLOCK)),
    )
    stream = TopicChanges(reader, ChangesRequest(layout.topic, b"", ReadTerms(900), None, None))
    with contextlib.closing(state), contextlib.ExitStack() as trouble:
        stream.start()
        trouble.enter_context(cut_off(primary, replica))
        with t.client(breaking.addresses) as client:
            for name, data in new.items():
                client.set(name, data)
        hang = contextlib.ExitStack()

        def begin() -> None:  # between the watermarks, which the primary gives, and the values
            kafka.before_read = lambda: None
            hang.enter_context(hanging(primary))

        kafka.before_read = begin
        events: Sequence[ChangeEvent] = ()
        with hang, contextlib.suppress(StateUnavailable):  # that says so, too
            events = stream.wait(0.3)
        assert kafka.reads
        assert changes(events) == []
        assert changes(stream.wait(60)) == [True]
