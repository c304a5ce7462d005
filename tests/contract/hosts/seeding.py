"""Writes the topics into a Redis Cluster as the job does, and into Kafka; views and schemas, too."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.contract.hosts.topics import BASE_MS, CORRUPT_LAYOUT, FUTURE_MS, PREFIX, TOPICS, registered_topic
from tests.contract.hosts.views import VIEWS
from tests.servers.own import create_topic, eventually
from tests.support import lanes as t
from tests.support.builders import entries_of, lane_of, layout_entry

from keylane.adapters.redis.cluster import Cluster
from keylane.model.records import Layout, Options
from keylane.state import codec, redis_keys
from keylane.state.codec import LeftInKafka
from keylane.state.windows import Progress, encode_window, state_name, window_key
from keylane_spark.lanes.function_library import FunctionLibrary
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.lanes.view_lanes import Changes, ViewLanes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redis.cluster import RedisCluster
    from tests.contract.hosts.topics import Seed, SeedTopic
    from tests.contract.hosts.views import SeedView

EPOCH = 1
RAW, GONE, VOID = PREFIX + "raw", PREFIX + "gone", PREFIX + "void"
"""Topics of Kafka alone: odd records and transactions; records that retention removed; none."""
KEPT = {"retention.ms": "-1"}
"""Of topics whose records are years old."""
ANY_TIME = {**KEPT, "message.timestamp.after.max.ms": str(2**63 - 1)}
LONG = {"transaction.timeout.ms": 900_000}
"""The broker aborts a transaction after this time: longer than any use of it."""


def seed(redis_nodes: str, kafka: str, registered: Mapping[bytes, bytes]) -> Producer:
    """Write everything. `registered`: values with schemas, by key. Return what has a transaction open."""
    topics = [*TOPICS, registered_topic(registered)]
    with contextlib.closing(Cluster(t.settings(redis_nodes))) as cluster, t.client(redis_nodes) as client:
        for topic in topics:
            _seed_state(cluster, client, topic)
        _set(client, {redis_keys.layout_key(CORRUPT_LAYOUT): b"not a layout"})
        for view in VIEWS:
            _seed_view(cluster, client, view)
    for topic in topics:
        if topic.is_logged:
            create_topic(kafka, topic.name, topic.layout.partition_count, config=ANY_TIME)
    for name, partitions in ((RAW, 3), (GONE, 1), (VOID, 1)):
        create_topic(kafka, name, partitions, config=ANY_TIME)
    _seed_logs(kafka, [topic for topic in topics if topic.is_logged])
    _seed_raw(kafka)
    _remove_records(kafka)
    return _seed_transactions(kafka)


def _set(client: RedisCluster, entries: Mapping[bytes, bytes]) -> None:
    for key, value in entries.items():
        client.set(key, value)
        client.wait(1, 5_000, target_nodes=client.get_node_from_key(key.decode("latin-1")))


def _positions(topic: SeedTopic) -> Iterator[tuple[Seed, int, int, int]]:
    """Each record with its own partition, its offset there, and its timestamp."""
    next_offsets: defaultdict[int, int] = defaultdict(int)
    for number, record in enumerate(topic.records):
        partition = lane_of(topic.layout, record.key)[0] if record.partition is None else record.partition
        at_ms = BASE_MS + 1_000 * number if record.at_ms is None else record.at_ms
        yield record, partition, next_offsets[partition], at_ms
        next_offsets[partition] += 1


def _seed_state(cluster: Cluster, client: RedisCluster, topic: SeedTopic) -> None:
    layout = topic.layout
    _set(client, layout_entry(layout))
    client.zadd(redis_keys.topics_key(), {topic.name: 0})
    if not topic.has_lanes:
        return
    lanes = {
        (partition, stripe): LaneTarget.of(layout, partition, stripe)
        for partition in range(layout.partition_count)
        for stripe in range(layout.stripes)
    }
    writer = t.writer_over(cluster, EPOCH)
    writer.open([(lane, 0) for lane in lanes.values()])
    for record, partition, offset, at_ms in _positions(topic):
        own_partition, own_stripe, _ = lane_of(layout, record.key)
        source = partition if partition != own_partition else None
        headers = (record.headers or ()) if layout.options.headers else None
        fields = entries_of(record.value, layout.options)
        envelope = codec.encode_record(record.value, offset, at_ms, source, headers=headers, fields=fields)
        chunk = t.chunk_of(
            lanes[own_partition, own_stripe],
            (record.key, envelope),
            has_tombstones=record.value is None,
            newest_timestamp_ms=at_ms,
            end_offset=offset + 1,
        )
        if source is not None:
            writer.put_strays(lanes[own_partition, own_stripe], chunk, source)
            writer.flush()
        for stripe in range(layout.stripes):
            is_home = source is None and stripe == own_stripe
            covered = OffsetRange(offset, offset + 1)
            writer.apply(lanes[partition, stripe], covered, chunk if is_home else None)
    writer.flush()
    for lane in lanes.values():
        _mark(client, lane, topic)
        for key, data in topic.odd.items():
            if lane_of(layout, key)[:2] == (lane.partition, lane.stripe):
                _set(client, {lane.key_prefix + key: data})


def _mark(client: RedisCluster, lane: LaneTarget, topic: SeedTopic) -> None:
    """Give the lane's watermark what the topic says of its lanes."""
    if topic.has_odd_watermarks:
        _set(client, {lane.watermark_key: b"odd"})
        return
    watermark = codec.decode_watermark(client.get(lane.watermark_key))._replace(
        complete_as_of_ms=topic.complete_as_of_ms,
        incomplete=topic.incomplete,
        superseded=topic.superseded,
        log_end=topic.log_end,
    )
    _set(client, {lane.watermark_key: codec.encode_watermark(watermark)})


def _seed_view(cluster: Cluster, client: RedisCluster, view: SeedView) -> None:
    name = state_name(view.name)
    layout = Layout(name, view.partitions, options=Options(index=True, view=view.definition.to_json()))
    _set(client, layout_entry(layout))
    client.zadd(redis_keys.views_key(), {view.name: 0})
    if not view.has_lanes:
        return
    lanes = ViewLanes(layout, FunctionLibrary(cluster, t.CLOCK), EPOCH)
    for lane, state in lanes.open(Progress((0,), (None,))).items():
        own = {
            window_key(key, start_ms): encode_window(end_ms, states)
            for (key, start_ms, end_ms), states in view.windows.items()
            if lane_of(layout, window_key(key, start_ms))[0] == lane.partition
        }
        progress = Progress((7, 9), (BASE_MS, None), late=2, invalid=1)
        if view.watermark_ms is not None:
            lanes.commit(lane, state, progress, Changes(own), watermark_ms=view.watermark_ms)
        watermark = codec.decode_watermark(client.get(lane.watermark_key))
        watermark = watermark._replace(complete_as_of_ms=FUTURE_MS if view.is_complete else 0)
        _set(client, {lane.watermark_key: codec.encode_watermark(watermark)})


def _flush(producer: Producer, failed: list[object]) -> None:
    assert producer.flush(60) == 0
    assert not failed, failed


def _seed_logs(kafka: str, topics: list[SeedTopic]) -> None:
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": kafka,
            "linger.ms": 5,
            "on_delivery": lambda error, _: failed.append(error) if error else None,
        }
    )
    for topic in topics:
        for record, partition, _, at_ms in _positions(topic):
            value = None if isinstance(record.value, LeftInKafka) else record.value
            headers = list(record.headers or ())
            producer.produce(topic.name, value, record.key, partition, timestamp=at_ms, headers=headers)
    _flush(producer, failed)


def _seed_raw(kafka: str) -> None:
    """Partition 0: records of all kinds; 1: transactions, one aborted and one open; 2: large values."""
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": kafka,
            "compression.type": "gzip",
            "on_delivery": lambda error, _: failed.append(error) if error else None,
        }
    )
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, Any]]]] = [
        (None, b'{"a": 1}', []),
        (b"k", None, [("h", b"v"), ("h", None), ("b", b"\xff")]),
        (b"\xff\x00", b"\x00\xff", []),
        (b"", b"", []),
        (None, None, []),
        ("ü".encode(), "Zürich".encode(), [("ü", "ö".encode())]),
        *((b"n%d" % number, b"%d" % number, []) for number in range(30)),
    ]
    for number, (key, value, headers) in enumerate(rows):
        producer.produce(RAW, value, key, 0, timestamp=BASE_MS + 1_000 * (number % 17), headers=headers)
        _flush(producer, failed)
    for number in range(5):
        producer.produce(RAW, bytes([65 + number]) * 700_000, b"large", 2, timestamp=BASE_MS + number)
    for number in range(10):
        producer.produce(GONE, b"%d" % number, b"k", 0, timestamp=BASE_MS + number)
    _flush(producer, failed)


def _seed_transactions(kafka: str) -> Producer:
    """Write an aborted and a committed transaction, and begin one, whose producer is returned."""
    for ending in ("abort", "commit", "leave"):
        transaction = Producer({"bootstrap.servers": kafka, "transactional.id": f"{RAW}-{ending}", **LONG})
        transaction.init_transactions(60)
        transaction.begin_transaction()
        for number in range(2):
            transaction.produce(RAW, f"{ending}-{number}", b"t", 1, timestamp=BASE_MS + number)
        assert transaction.flush(60) == 0
        if ending == "abort":
            transaction.abort_transaction(60)
        if ending == "commit":
            transaction.commit_transaction(60)
    return transaction


def _remove_records(kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    for name, partition, offset in ((GONE, 0, 4), (f"{PREFIX}feed", 0, 3)):
        [removed] = admin.delete_records([TopicPartition(name, partition, offset)]).values()
        eventually(lambda removed=removed, offset=offset: removed.result(20).low_watermark == offset)
