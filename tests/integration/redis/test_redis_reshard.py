"""`redis-cli --cluster reshard` takes a lane's slot to another shard while it is read and written."""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING

import pytest
from tests.servers.own import eventually, fill, own_cluster, primary_and_replica
from tests.support import lanes as t
from tests.support.builders import TERMS, a_topic, layout_entry
from tests.support.steady import SteadyReads

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.model.records import Layout
from keylane.query.latest import read_latest
from keylane.query.layouts import Layouts
from keylane.query.store import Store
from keylane_spark.lanes.lane import LaneTarget, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from keylane_local.servers.redis_cluster import RedisCluster
    from keylane_spark.lanes.lane_writer import LaneWriter

KEYS = 8_000
STEP = 20
"""Records between two positions of the watermark while the slot moves."""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisCluster]:
    with own_cluster(tmp_path) as cluster:
        yield cluster


class Log:
    """What was written, as a lane's only source: every key in turn, one record of five a tombstone."""

    def __init__(self, lane: LaneTarget, writer: LaneWriter) -> None:
        self.lane = lane
        self.writer = writer
        self.end = 0
        self.writer.open([(lane, 0)])

    def key(self, number: int) -> bytes:
        return b"key-%d" % (number % KEYS)

    def write(self, count: int) -> None:
        events = [self._event(offset) for offset in range(self.end, self.end + count)]
        t.write(self.writer, self.lane, self.end, events, self.end + count)
        self.end += count
        self.writer.apply(self.lane, OffsetRange(self.end, self.end, t.CLOCK.now_ms()))
        self.writer.flush()

    def last(self, key_number: int, below: int) -> t.Event | None:
        """The key's last record below an offset."""
        offset = (below - 1 - key_number) // KEYS * KEYS + key_number
        return self._event(offset) if offset >= 0 else None

    def _event(self, offset: int) -> t.Event:
        return t.Event(
            offset, self.key(offset), None if (offset + offset // KEYS) % 5 == 4 else b"%d" % offset
        )


class Reader:
    """Reads keys as the query function does; what it sees must be the log up to the watermark or further."""

    def __init__(self, nodes: str, log: Log) -> None:
        self.state = RedisState(Cluster(t.settings(nodes)))
        self.store = Store(self.state, Layouts(self.state, t.CLOCK, 300), t.CLOCK)
        self.log = log
        self.seen: dict[int, int] = {}

    def __call__(self, number: int) -> None:
        key_number = number * 7_919 % 500
        answer = read_latest(self.store, self.log.lane.topic, self.log.key(key_number), TERMS)
        claimed = self.log.last(key_number, answer.watermark.next_offset)
        assert claimed is not None
        if answer.record is None:
            next_one = self.log.last(key_number, answer.watermark.next_offset + KEYS)
            assert next_one is not None
            assert None in (claimed.value, next_one.value)
            offset = claimed.offset
        else:
            offset = answer.record.offset
            assert answer.record.value == b"%d" % offset
        assert offset >= max(claimed.offset, self.seen.get(key_number, 0))
        self.seen[key_number] = offset


def reshard(cluster: RedisCluster, slot: int) -> subprocess.Popen[bytes]:
    """Begin to move one slot, which must be the first of its primary."""
    source, _ = primary_and_replica(cluster, slot)
    target, _ = primary_and_replica(cluster, slot + 8_192)
    ids = [str(node.command("CLUSTER", "MYID")) for node in (source, target)]
    ends = ["--cluster-from", ids[0], "--cluster-to", ids[1], "--cluster-slots", "1"]
    # Ten keys at a time take long enough for many reads and writes.
    command = ["redis-cli", "--cluster", "reshard", source.address, *ends, "--cluster-pipeline", "10"]
    return subprocess.Popen([*command, "--cluster-yes"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_lane_is_read_all_the_time_and_written_again_once_its_slot_has_moved(own: RedisCluster):
    layout = Layout(a_topic(), 1, centered=False)  # in the first slot of all
    lane = LaneTarget.of(layout, 0, 0)
    fill(own.addresses, layout_entry(layout))
    reported: list[str] = []
    log = Log(lane, t.writer(own.addresses, 1, notify=reported.append))
    log.write(KEYS)
    readers = [Reader(own.addresses, log) for _ in range(4)]
    over = threading.Event()

    def write_on() -> None:
        while not over.is_set():
            log.write(STEP)

    writing = threading.Thread(target=write_on)
    with SteadyReads(readers) as reads:
        eventually(lambda: len(reads.done) > 50)
        writing.start()
        moving = reshard(own, lane.slot)
        output, _ = moving.communicate(timeout=60)
        assert moving.returncode == 0, output.decode()
        moved_at = log.end
        eventually(lambda: log.end > moved_at + KEYS // 20)
    over.set()
    writing.join(60)
    assert reads.failures == []
    assert reported  # writes were delayed: keys did leave meanwhile
    records, watermark = t.held(own.addresses, lane, [log.key(number) for number in range(KEYS)])
    assert watermark
    assert watermark.next_offset == log.end
    expected = [log.last(number, log.end) for number in range(KEYS)]
    assert {key: record.offset for key, record in records.items()} == {
        event.key: event.offset for event in expected if event and event.value is not None
    }
    for reader in readers:
        reader.state.close()
