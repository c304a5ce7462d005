"""One job over topics of many kinds, between real servers: what is stored of each is what its options say."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import random
import re
from dataclasses import dataclass

import pytest
from tests.servers.own import create_topic, eventually, produce
from tests.support import jobs, lane_log
from tests.support import lanes as t
from tests.support.builders import a_topic
from tests.support.compressed import order

from keylane import routing
from keylane.adapters.kafka.options import Connection
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.errors import BadConfig
from keylane.model.kafka import NewTopic
from keylane.model.records import Layout, Options, Record
from keylane.query.conditions import EQUAL, PREFIX, RANGE, Asked, Order
from keylane.query.find import find as find_page
from keylane.query.finder import FindScan
from keylane.query.layouts import Layouts
from keylane.query.store import ReadTerms, Store
from keylane.state import codec, redis_keys
from keylane_spark.lanes.lane import LaneTarget
from keylane_spark.log.kafka_admin import JobKafka

NUMBERS = itertools.count()
PARTITIONS = 3
HOUR_MS = 3_600_000
TERMS = ReadTerms(timeout_ms=10_000)
TABLES = {
    "kept": "headers = true\nhistory_count = 3\nindex = true\nindex_parts = 4",
    "short": 'ttl = "1h"\nindex = true\nindex_parts = 2',
    "first": "insert_once = true\nindex = true",
    "large": "max_value_bytes = 100\nheaders = true",
    "found": 'fields = { amount = "number", placed = "time", status = "text", tags = "texts" }\n'
    'indexes = { by_status = ["status", "amount"] }',
    "compressed": 'compression = "zstd"\nheaders = true\nhistory_count = 3\nindex = true',
}
OPTIONS = {
    "kept": Options(headers=True, history_count=3, index=4),
    "short": Options(ttl_ms=HOUR_MS, index=2),
    "first": Options(insert_once=True, index=True),
    "large": Options(max_value_bytes=100, headers=True),
    "found": Options(
        index=1,
        fields=(("amount", "number"), ("placed", "time"), ("status", "text"), ("tags", "texts")),
        indexes=(("by_status", ("status", "amount")),),
    ),
    "compressed": Options(compression="zstd", headers=True, history_count=3, index=1),
}
CREATED = """[topics.{}]
[topics.{}]
partitions = 3
kafka = {{ "cleanup.policy" = "compact", "delete.retention.ms" = "7200000" }}
"""
HOSTILE: dict[bytes, list[bytes]] = {
    b"megabyte": [b'{"status": "%b"}' % (b"x" * 1_000_000)],
    b"megabyte-of-digits": [b'{"status": "open", "amount": %b}' % (b"7" * 1_000_000)],
    b"10^400": [b'{"status": "open", "amount": 1%b}' % (b"0" * 400)],
    b"-10^400": [b'{"status": "open", "amount": -1e400}'],
    b"10^99999": [b'{"status": "open", "amount": 1e99999}'],
    b"NaN": [b'{"status": "open", "amount": NaN}'],
    b"nested": [b'{"status": "open", "deep": %b}' % (b"[" * 499 + b"]" * 499)],
    b"nested-beyond": [b"[" * 100_000],
    b"not-utf-8": [b'{"status": "open\xff"}'],
    b"surrogate": [b'{"status": "\\ud800", "amount": 3}'],
    b"byte-0": [b'{"status": "open\\u0000"}'],
    b"key\0with-a-0": [b'{"status": "open", "amount": 4}'],
    b"other-type": [b'{"status": 7, "amount": {"is": 5}, "placed": true, "tags": {}}'],
    b"many-tags": [b'{"status": "open", "tags": [%b]}' % b",".join(b'"%d"' % each for each in range(65))],
    b"changes": [b'{"status": "open", "amount": 5}', b'{"status": "open", "amount": "five"}'],
    b"changes-back": [b'{"status": "open", "amount": []}', b'{"status": "open", "amount": 6}'],
    b"empty": [b""],
}
"""The values of keys, one after the other."""
FOUND_OPEN = [b"-10^400", b"10^400", b"10^99999", b"changes", b"changes-back", b"key\0with-a-0", b"many-tags"]
FOUND_OPEN += [b"megabyte-of-digits", b"nested"]
COUNTED = 8 + 4
"""Of megabyte-of-digits, 10^99999, NaN, nested-beyond, not-utf-8, surrogate, many-tags and changes one field,
or the value; of other-type four.
"""


@dataclass(frozen=True, slots=True)
class Event:
    """A record as it was produced; a value of None is a tombstone."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]

    def as_kept(self, *, headers: bool) -> Record:
        own = self.headers if headers else ()
        return Record(self.key, self.value, self.partition, self.offset, self.timestamp_ms, own)


@dataclass(slots=True)
class Written:
    """What a job was given and where it put it."""

    nodes: str
    job: jobs.RunningJob
    layouts: dict[str, Layout]
    logs: dict[str, list[Event]]
    created: tuple[str, str]
    """Topics that Kafka did not have, the second one compacted."""

    def by_key(self, kind: str) -> dict[bytes, list[Event]]:
        found: dict[bytes, list[Event]] = {}
        for event in sorted(self.logs[kind], key=lambda event: event.offset):
            found.setdefault(event.key, []).append(event)
        return found

    def lane(self, kind: str, key: bytes) -> LaneTarget:
        layout = self.layouts[kind]
        partition = routing.partition_for(key, layout.partition_count)
        return LaneTarget.of(layout, partition, routing.stripe_for(key, layout.stripes))

    def state(self, kind: str) -> dict[bytes, Record]:
        """All records of the topic, each looked up where routing says."""
        found = {}
        for lane, keys in self._lanes(kind).items():
            found |= t.held(self.nodes, lane, keys)[0]
        return found

    def histories(self, kind: str) -> dict[bytes, list[Record | None]]:
        found = {}
        with contextlib.closing(Cluster(t.settings(self.nodes))) as cluster:
            for lane, keys in self._lanes(kind).items():
                decode = functools.partial(
                    codec.decode_history_member, partition=lane.partition, expand=t.expand_of(cluster, lane)
                )
                for key, entries in self._held(lane, keys).histories.items():
                    found[key] = [decode(key, entry) for _, entry in entries]
        return found

    def sizes(self, kind: str) -> tuple[int, int]:
        """The bytes of all values as they were written, and as Redis has them."""
        written, stored = 0, 0
        with t.client(self.nodes) as client:
            for key, record in self.state(kind).items():
                written += len(record.value)
                envelope = client.get(self.lane(kind, key).key_prefix + key)
                head = codec.encode_record(
                    b"", record.offset, record.timestamp_ms, headers=record.headers or None
                )
                stored += len(envelope) - len(head)
        return written, stored

    def index(self, kind: str) -> list[bytes]:
        return sorted(key for lane, keys in self._lanes(kind).items() for key in self._held(lane, keys).index)

    def _lanes(self, kind: str) -> dict[LaneTarget, list[bytes]]:
        lanes: dict[LaneTarget, list[bytes]] = {}
        for key in self.by_key(kind):
            lanes.setdefault(self.lane(kind, key), []).append(key)
        return lanes

    def _held(self, lane: LaneTarget, keys: list[bytes]) -> lane_log.Held:
        with contextlib.closing(Cluster(t.settings(self.nodes))) as cluster:
            return lane_log.held(cluster, lane, keys)


@pytest.fixture(
    scope="module",
    params=[pytest.param(1_000_000, id="driver"), pytest.param(0, id="tasks", marks=pytest.mark.long)],
)
def written(request, kafka, redis_cluster, tmp_path_factory):
    """A job that has written all of its topics, in Arrow batches of 100 records."""
    folder = tmp_path_factory.mktemp("options")
    names = {kind: f"options-{kind}-{next(NUMBERS)}" for kind in TABLES}
    for name in names.values():
        create_topic(kafka, name, PARTITIONS)
    logs = {
        kind: write_hostile(kafka, name) if kind == "found" else write(kafka, name, seed)
        for seed, (kind, name) in enumerate(names.items())
    }
    tables = "".join(f"[topics.{names[kind]}]\n{text}\n" for kind, text in TABLES.items())
    created = a_topic(), a_topic()
    tables += CREATED.format(*created)
    config = f"[job]\ncreate_topics = true\nsmall_batch_records = {request.param}\nheartbeat_ms = 100\n"
    config += f'[spark]\n"spark.sql.execution.arrow.maxRecordsPerBatch" = 100\n{tables}'
    with jobs.running(kafka, redis_cluster, folder, config) as job:
        job.wait_for("keylane: ready")
        with t.client(redis_cluster) as client:
            records = {kind: client.get(redis_keys.layout_key(name)) for kind, name in names.items()}
        layouts = {kind: codec.decode_layout(record) for kind, record in records.items()}
        assert {kind: layout.options for kind, layout in layouts.items()} == OPTIONS
        for kind, log in logs.items():
            for partition in range(PARTITIONS):
                end = 1 + max(event.offset for event in log if event.partition == partition)
                for stripe in range(layouts[kind].stripes):
                    lane = LaneTarget.of(layouts[kind], partition, stripe)
                    eventually(lambda lane=lane, end=end: is_complete(redis_cluster, lane, end))
        yield Written(redis_cluster, job, layouts, logs, created)


def is_complete(nodes: str, lane: LaneTarget, end: int) -> bool:
    """Whether the lane has all below `end` and says so, which a topic with strays does a moment later."""
    watermark = t.held(nodes, lane, [])[1]
    return bool(watermark and watermark.next_offset >= end and watermark.complete_as_of_ms)


def write(kafka: str, topic: str, seed: int) -> list[Event]:
    """Sets and tombstones of 60 keys, times that go back and some two hours old, headers on most.

    Values of "compressed" resemble each other, the others do not, and there are more keys.
    """
    source, records = random.Random(seed), []
    is_compressed = "compressed" in topic
    now_ms = t.CLOCK.now_ms()
    for _ in range(2_000):
        key = b"key-%d" % source.randrange(600 if is_compressed else 60)
        value = None if source.random() < 0.2 else source.randbytes(source.randrange(150))
        if value and is_compressed:
            value = order(source.randrange(10**8))
        timestamp = now_ms - source.choice([0, 2 * HOUR_MS]) - source.randrange(1000)
        headers = source.choice([(), (("trace", b"%d" % source.randrange(9)), ("none", None), ("", b""))])
        records.append((key, value, -1, timestamp, list(headers)))
    return [
        Event(each.partition(), each.offset(), key, value, timestamp, tuple(headers))
        for (key, value, _, timestamp, headers), each in zip(
            records, produce(kafka, topic, records), strict=True
        )
    ]


def write_hostile(kafka: str, topic: str) -> list[Event]:
    """All values of HOSTILE."""
    records = [(key, value) for key, values in HOSTILE.items() for value in values]
    written = produce(kafka, topic, records, message_max_bytes=1_048_588)
    return [
        Event(each.partition(), each.offset(), key, value, each.timestamp()[1], ())
        for (key, value), each in zip(records, written, strict=True)
    ]


def test_headers_history_and_index_are_kept_together(written):
    by_key = written.by_key("kept")
    state = {
        key: events[-1].as_kept(headers=True)
        for key, events in by_key.items()
        if events[-1].value is not None
    }
    assert any(record.headers for record in state.values())
    assert written.state("kept") == state
    assert written.index("kept") == sorted(state)
    assert written.histories("kept") == {key: history(events)[-3:] for key, events in by_key.items()}


def history(events: list[Event]) -> list[Record | None]:
    ordered = sorted(events, key=lambda event: (event.timestamp_ms, event.offset))
    return [None if event.value is None else event.as_kept(headers=True) for event in ordered]


def test_values_that_are_compressed_take_less_and_are_the_same(written):
    by_key = written.by_key("compressed")
    state = {
        key: events[-1].as_kept(headers=True)
        for key, events in by_key.items()
        if events[-1].value is not None
    }
    assert written.state("compressed") == state
    assert written.index("compressed") == sorted(state)
    assert written.histories("compressed") == {key: history(events)[-3:] for key, events in by_key.items()}
    before, after = written.sizes("compressed")
    assert after < before / 2
    topic = written.layouts["compressed"].topic
    with t.client(written.nodes) as client:
        for tag in (redis_keys.RECORD_TAG, *redis_keys.COPY_TAGS):
            assert 1 <= client.hlen(redis_keys.dictionaries_key(topic, tag)) <= 2


def test_records_past_their_time_to_live_are_gone_from_values_and_index(written):
    lasts = [events[-1] for events in written.by_key("short").values()]
    live = {
        event.key: event.as_kept(headers=False)
        for event in lasts
        if event.value is not None and event.timestamp_ms > t.CLOCK.now_ms() - HOUR_MS
    }
    assert 0 < len(live) < len([event for event in lasts if event.value is not None])
    assert written.state("short") == live
    assert written.index("short") == sorted(live)


def test_the_first_value_stays_until_a_tombstone(written):
    firsts = {}
    for key, events in written.by_key("first").items():
        for event in events:
            if event.value is None:
                firsts.pop(key, None)
            else:
                firsts.setdefault(key, event.as_kept(headers=False))
    assert written.state("first") == firsts
    assert written.index("first") == sorted(firsts)


def test_a_value_over_the_limit_is_left_in_kafka_and_reported(written):
    expected = {}
    for key, events in written.by_key("large").items():
        last = events[-1]
        if last.value is not None:
            record = last.as_kept(headers=True)
            size = len(last.value)
            expected[key] = record if size <= 100 else record._replace(value=b"", left_in_kafka_bytes=size)
    sizes = [record.left_in_kafka_bytes for record in expected.values()]
    assert any(sizes)
    assert not all(sizes)
    assert written.state("large") == expected
    name = written.layouts["large"].topic
    written.job.wait_for(f"topic '{name}' has values over 100 bytes: they are left in Kafka")
    written.job.wait_for(" values left in Kafka")


def test_hostile_values_of_fields_stop_no_lane_and_find_says_what_the_page_about_it_says(written):
    """That every lane has all records is what `written` waits for."""
    state = written.state("found")
    assert {key: state[key].value for key in HOSTILE} == {key: values[-1] for key, values in HOSTILE.items()}

    def find(*asked: Asked, order: Order | None = None) -> list[bytes]:
        scan = FindScan(asked, order, 100)
        page = find_page(store, written.layouts["found"].topic, scan, TERMS, lambda _, record: record)
        assert page.next_after is None
        return [key for key, _ in page.rows]

    with contextlib.closing(RedisState(Cluster(t.settings(written.nodes)))) as redis_state:
        store = Store(redis_state, Layouts(redis_state, t.CLOCK, 60), t.CLOCK)
        assert sorted(find(Asked("status", EQUAL, "open"))) == sorted(FOUND_OPEN)
        in_order = [b"-10^400", b"surrogate", b"key\0with-a-0", b"changes-back", b"10^400"]
        assert find(order=Order("amount")) == in_order
        assert find(Asked("amount", EQUAL, "1e400")) == [b"10^400"]
        assert find(Asked("status", EQUAL, "x" * 1_000_000)) == [b"megabyte"]
        assert find(Asked("status", EQUAL, "x" * 999_999)) == []
        assert find(Asked("status", PREFIX, "x" * 70)) == [b"megabyte"]
        assert find(Asked("status", EQUAL, "open\0")) == [b"byte-0"]
        assert find(Asked("tags", RANGE)) == find(Asked("placed", RANGE)) == []
        both = find(Asked("status", EQUAL, "open"), order=Order("amount", is_descending=True))
        assert both == [b"10^400", b"changes-back", b"key\0with-a-0", b"-10^400"]


def test_what_no_index_can_have_is_counted(written):
    pattern = re.compile(r", ([\d,]+) values of fields that no index can have")
    counts = [int(found[1].replace(",", "")) for line in written.job.lines if (found := pattern.search(line))]
    # A value that is replaced within its chunk is not looked at.
    assert sum(counts) in {COUNTED, COUNTED + 1}


def test_topics_that_kafka_does_not_have_are_created_as_the_file_says(written, kafka):
    plain, compacted = written.created
    written.job.wait_for(f"topic {plain!r} is created with 9 partitions")
    written.job.wait_for(f"topic {compacted!r} is created with 3 partitions")
    broker = JobKafka(Connection(kafka))
    shapes = broker.describe([plain, compacted])
    assert (shapes[plain].partition_count, shapes[compacted].partition_count) == (9, 3)
    assert (broker.is_compacted(plain), broker.is_compacted(compacted)) == (False, True)
    lasts_ms = [broker.tombstones_last_ms(topic) for topic in (plain, compacted)]
    assert lasts_ms == [math.inf, 7_200_000]
    broker.create_topics({plain: NewTopic(1, {})})
    assert broker.describe([plain]) == {plain: shapes[plain]}
    refused = a_topic()
    with pytest.raises(BadConfig, match=f"topics {refused} can't be created: .*no.such"):
        broker.create_topics({refused: NewTopic(1, {"no.such.setting": "1"})})
