"""One batch into its lanes, against a double that records its calls."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import hiredis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keylane import routing
from keylane.errors import RegistryUnavailable
from keylane.model.kafka import TopicPartition
from keylane.model.records import Layout, Options
from keylane.state import codec
from keylane_spark.config.transforms import Transform
from keylane_spark.lanes import lane as lane_module
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.rows.fields import Decoded
from keylane_spark.rows.headers import HEADERS
from keylane_spark.rows.records import Rows
from keylane_spark.rows.transforms import TopicTransform
from keylane_spark.schemas.event_schemas import unread_schema
from keylane_spark.schemas.framed_values import FramedReaders
from keylane_spark.stream import batch_writer as batch_module
from keylane_spark.stream import partition_chunks as chunks_module
from keylane_spark.stream.batch_writer import BatchWriter
from keylane_spark.stream.partition_chunks import PartitionResult
from keylane_spark.telemetry.tally import Tally

if TYPE_CHECKING:
    from keylane_spark.rows.chunks import Chunk

LAYOUT = Layout("orders", 3)


@dataclass
class NotedLanes:
    """A LaneWriter's double: every call in order, payloads decoded."""

    calls: list[tuple] = field(default_factory=list)
    parked: set[LaneTarget] = field(default_factory=set)
    pays_from: int = 2**31
    """From so many records on a chunk's commands are noted, too."""

    def is_parked(self, lane) -> bool:
        return lane in self.parked

    def is_compared(self, lane) -> bool:
        return not lane.options.in_log_order

    def apply(self, lane, covered, chunk=None) -> None:
        newest_ms = chunk.newest_timestamp_ms if chunk else 0
        more = {
            "complete_as_of_ms": covered.complete_as_of_ms,
            "log_end": covered.log_end,
            "newest_timestamp_ms": newest_ms,
            "has_tombstones": chunk is not None and chunk.has_tombstones,
        }
        records = decoded(lane, chunk) if chunk else []
        if chunk and chunk.ordered and chunk.count >= self.pays_from:
            writes = chunk.ordered
            others = [bytes(each) for each in writes.others]
            more["ordered"] = writes.count, bytes(writes.arguments), others, writes.other_count
        self.calls.append(("apply", lane, covered.begin, covered.end, records, more))

    def put_strays(self, lane, chunk, source_partition, after) -> None:
        records = decoded(lane, chunk)
        assert {record.partition for _, record in records if record} <= {source_partition}
        self.calls.append(("strays", lane, records, chunk.end_offset, after))

    def note_strays(self, source, given) -> None:
        self.calls.append(("note", source, given))

    def flush(self) -> None:
        self.calls.append(("flush",))

    def abandon(self) -> None:
        self.calls.append(("abandon",))

    def named(self, name):
        return [call for call in self.calls if call[0] == name]


def decoded(lane: LaneTarget, chunk: Chunk) -> list[tuple]:
    """Key and record, None for a tombstone."""
    reader = hiredis.Reader()
    reader.feed(b"*%d\r\n" % (2 * chunk.count) + bytes(chunk.arguments))
    parts = reader.gets()
    records = []
    for name, payload in zip(parts[::2], parts[1::2], strict=True):
        key = name.removeprefix(lane.key_prefix)
        record = codec.decode_record(key, payload, lane.partition)
        records.append((key, record))
    return records


def some_rows(*rows, first_offset: int = 0, headers=None) -> Rows:
    """Rows of (key, value), timestamps rising by a millisecond."""
    offsets = np.arange(first_offset, first_offset + len(rows), dtype=np.int64)
    keys, values = (pa.array([row[column] for row in rows], pa.binary()) for column in (0, 1))
    return Rows(offsets, offsets, keys, values, headers and pa.array(headers, HEADERS))


def keys_of(partition: int, count: int, layout: Layout = LAYOUT) -> list[bytes]:
    """Keys of this partition."""
    found, number = [], 0
    while len(found) < count:
        key = b"key-%d" % number
        if routing.partition_for(key, layout.partition_count) == partition:
            found.append(key)
        number += 1
    return found


def a_writer(
    layout: Layout = LAYOUT, framed: FramedReaders | None = None, end: int = 10_000_000, **more
) -> tuple[NotedLanes, BatchWriter]:
    """A writer of six partitions up to `end`; `framed`: what reads values of a registry."""
    lanes = NotedLanes()
    ranges = {("orders", partition): OffsetRange(0, end, 77, 88) for partition in range(6)}
    given = {} if framed is None else {"framed": framed}
    return lanes, BatchWriter(lanes, {"orders": layout}, ranges, **given, **more)


def batch_of(*rows, layout: Layout = LAYOUT, **columns) -> tuple[NotedLanes, BatchWriter]:
    """What becomes of a batch of these rows of partition 0."""
    lanes, writer = a_writer(layout)
    writer.write(("orders", 0), some_rows(*rows, **columns))
    writer.finish([("orders", 0)])
    return lanes, writer


def held_back(writer: BatchWriter) -> dict[TopicPartition, str]:
    return {source: each.held_back for source, each in writer.results.items() if each.held_back}


def reached(writer: BatchWriter) -> dict[TopicPartition, int | None]:
    return {source: each.reached for source, each in writer.results.items()}


def test_a_key_written_a_million_times_in_fifty_arrow_batches_is_one_write():
    (hot,) = keys_of(0, 1)
    lanes, writer = a_writer()
    for first in range(0, 1_000_000, 20_000):
        writer.write(
            ("orders", 0), some_rows(*[(hot, b"%d" % (first + 19_999))] * 20_000, first_offset=first)
        )
    writer.finish([("orders", 0)])
    ((_, _, begin, end, records, more),) = lanes.named("apply")
    assert (begin, end, len(records)) == (0, 10_000_000, 1)
    assert (records[0][1].value, records[0][1].offset) == (b"999999", 999_999)
    assert (more["complete_as_of_ms"], more["log_end"], more["newest_timestamp_ms"]) == (77, 88, 999_999)
    assert (writer.tallies["orders", 0].records, writer.tallies["orders", 0].written) == (1_000_000, 1)


def test_a_stray_written_a_hundred_thousand_times_is_one_write_before_its_partition_s_watermark():
    (hot,) = keys_of(1, 1)
    lanes, writer = a_writer()
    for first in range(0, 100_000, 20_000):
        writer.write(
            ("orders", 0), some_rows(*[(hot, b"%d" % (first + 19_999))] * 20_000, first_offset=first)
        )
    writer.finish([("orders", 0)])
    (_, lane, ((_, record),), end, _), (flush, *_), note, (apply, own, _, _, records, _), _ = lanes.calls
    assert lane == LaneTarget.of(LAYOUT, 1, 0)
    assert note == ("note", own, {lane: end})
    assert end == 100_000
    assert (record.value, record.partition, record.offset) == (b"99999", 0, 99_999)
    assert (flush, apply, own.partition, records) == ("flush", "apply", 0, [])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=30, max_size=60), st.integers(1, 30))
def test_a_watermark_moves_past_a_stray_when_it_has_arrived(picks, step):
    """Values so large that chunks of both kinds are full in the middle of a batch."""
    own, foreign = keys_of(0, 21), keys_of(1, 21)
    rows = [((foreign if is_stray else own)[number], bytes(70_000)) for number, is_stray in picks]
    lanes, writer = a_writer()
    for first in range(0, len(rows), step):
        writer.write(("orders", 0), some_rows(*rows[first : first + step], first_offset=first))
    writer.finish([("orders", 0)])
    sent, arrived, noted, sent_to = set(), set(), 0, 0
    for name, *call in lanes.calls:
        if name == "strays":
            assert call[3] == sent_to  # each chunk names the one before
            sent_to = call[2]
            sent |= {key for key, _ in call[1]}
        elif name == "flush":
            arrived |= sent
        elif name == "note":
            (noted,) = call[1].values()
            assert {key for key, _ in rows[:noted] if key in foreign} <= arrived
        else:
            assert {key for key, _ in rows[: call[2]] if key in foreign} <= arrived
            assert not [key for key, _ in rows[noted : call[2]] if key in foreign]
            is_last = call[2] == 10_000_000
            assert (call[4]["complete_as_of_ms"], call[4]["log_end"]) == ((77, 88) if is_last else (0, 0))
    assert {key for _, lane, *call in lanes.named("apply") for key, _ in call[2]} == {
        key for key, _ in rows if key in own
    }


def test_strays_of_all_partitions_are_waited_for_at_once():
    lanes, writer = a_writer()
    (key,) = keys_of(2, 1)
    for partition in (0, 1):
        writer.write(("orders", partition), some_rows((key, b"x")))
    writer.finish([("orders", 0), ("orders", 1)])
    kinds = [call[0] for call in lanes.calls]
    assert kinds == ["strays", "strays", "flush", "note", "apply", "note", "apply", "flush"]


def test_a_partition_with_a_stray_for_a_parked_lane_is_held_back_and_the_others_go_on():
    layout = Layout("orders", 3, stripes=2)
    lanes, writer = a_writer(layout)
    (key,) = keys_of(2, 1)
    lanes.parked.add(LaneTarget.of(layout, 2, routing.stripe_for(key, 2)))
    writer.write(("orders", 0), some_rows((key, b"x")))
    writer.write(("orders", 1), some_rows((keys_of(1, 1)[0], b"y")))
    writer.finish([("orders", 0), ("orders", 1)])
    assert {lane.partition for _, lane, *_ in lanes.named("apply")} == {1}
    assert not lanes.named("note")
    assert held_back(writer) == {
        ("orders", 0): f"it has a stray for lane orders/2.{routing.stripe_for(key, 2)}, which is parked"
    }


def test_a_partition_with_an_event_whose_schema_is_not_read_is_held_back_and_the_others_go_on():
    def away(_):
        raise RegistryUnavailable("schema 7: away")

    lanes, writer = a_writer(EVENTS, FramedReaders(judge=away), end=10)
    (key,) = keys_of(0, 1)
    event = b'{"op":"c","after":{}}'
    writer.write(("orders", 0), some_rows((key, event)))
    writer.write(("orders", 0), some_rows((key, b"\0\0\0\0\x07"), first_offset=1))
    writer.write(("orders", 0), some_rows((key, event), first_offset=2))
    writer.write(("orders", 1), some_rows((keys_of(1, 1)[0], event)))
    writer.finish([("orders", 0), ("orders", 1)])
    assert [(lane.partition, end) for _, lane, _, end, *_ in lanes.named("apply")] == [(1, 10)]
    assert held_back(writer) == {("orders", 0): "schema 7: away"}
    assert unread_schema("schema 7: away") == 7
    assert unread_schema("it has a stray for lane orders/2.0, which is parked") is None


def test_of_partitions_that_are_written_at_once_only_that_with_an_unread_schema_is_held_back():
    def judge(values):
        if any(value.endswith(b"\x07") for value in values.to_pylist()):
            raise RegistryUnavailable("schema 7: away")
        return np.zeros(len(values), np.int8)

    sources = [("orders", partition) for partition in range(3)]
    lanes, writer = a_writer(EVENTS, FramedReaders(judge=judge), end=10)
    for source in sources:
        (key,), schema = keys_of(source[1], 1), 7 if source[1] == 1 else 6
        writer.write(source, some_rows((key, b"\0\0\0\0%c" % schema)))
    writer.finish(sources)
    sent = [(lane.partition, end, len(records)) for _, lane, _, end, records, _ in lanes.named("apply")]
    assert sent == [(0, 10, 1), (2, 10, 1)]
    assert held_back(writer) == {("orders", 1): "schema 7: away"}
    assert [writer.tallies[source].records for source in sources] == [1, 0, 1]


def test_a_partition_that_is_left_claims_what_came_and_no_time_and_the_others_claim_their_ranges():
    lanes, writer = a_writer()
    for partition in (0, 1):
        (key,) = keys_of(partition, 1)
        writer.write(("orders", partition), some_rows((key, b"1"), (key, b"2")))
    writer.leave(("orders", 1), "its leader is away")
    writer.leave(("orders", 2), "its leader is away")
    writer.finish([("orders", partition) for partition in range(3)])
    claims = {
        lane.partition: (begin, end, more["complete_as_of_ms"], len(records))
        for _, lane, begin, end, records, more in lanes.named("apply")
    }
    assert claims == {0: (0, 10_000_000, 77, 1), 1: (0, 2, 0, 1), 2: (0, 0, 0, 0)}
    covered = writer.covered
    assert [covered["orders", each].end for each in range(3)] == [10_000_000, 2, 0]
    assert {covered["orders", each].log_end for each in range(3)} == {88}
    assert writer.left == {("orders", 1): "its leader is away", ("orders", 2): "its leader is away"}


def test_a_partition_with_a_value_with_fields_whose_schema_is_not_read_is_held_back_and_others_go_on():
    def decode(values, *, are_events):
        assert not are_events
        if b"\0\0\0\0\x07" in values.to_pylist():
            raise RegistryUnavailable("schema 7: away")
        return Decoded(values.to_pylist(), [None] * len(values))

    options = Options(index=1, value_format="registry", fields=(("status", "text"),))
    lanes, writer = a_writer(Layout("orders", 3, options=options), FramedReaders(decode=decode), end=10)
    (key,), (stray,) = keys_of(0, 1), keys_of(2, 1)
    writer.write(("orders", 0), some_rows((stray, b"\0\0\0\0\x07"), (key, b'{"status":"open"}')))
    writer.write(("orders", 1), some_rows((keys_of(1, 1)[0], b'{"status":"open"}')))
    writer.finish([("orders", 0), ("orders", 1)])
    assert [(lane.partition, end) for _, lane, _, end, *_ in lanes.named("apply")] == [(1, 10)]
    assert not lanes.named("put")
    assert held_back(writer) == {("orders", 0): "schema 7: away"}


def test_rows_of_a_partition_without_a_range_are_skipped():
    lanes, writer = a_writer()
    writer.write(("orders", 7), some_rows((keys_of(0, 1)[0], b"x")))
    writer.finish([("orders", 0)])
    ((_, lane, _, _, records, _),) = lanes.named("apply")
    assert (lane.partition, records) == (0, [])
    assert not writer.tallies


def test_a_part_of_the_key_decides_on_lane_and_stray():
    layout = Layout("orders", 3, stripes=2, partition_by="prefix:|")
    own, foreign = keys_of(0, 1)[0], keys_of(2, 1)[0]
    rows = [(b"%b|%d" % (name, number), b"x") for name in (own, foreign) for number in range(9)]
    lanes, writer = batch_of(*rows, layout=layout)
    written = [(lane, key) for _, lane, _, _, records, _ in lanes.named("apply") for key, _ in records]
    assert {lane for lane, _ in written} == {LaneTarget.of(layout, 0, routing.stripe_for(own, 2))}
    assert {key for _, key in written} == {b"%b|%d" % (own, number) for number in range(9)}
    strays = [(lane, key) for _, lane, records, *_ in lanes.named("strays") for key, _ in records]
    assert {lane for lane, _ in strays} == {LaneTarget.of(layout, 2, routing.stripe_for(foreign, 2))}
    tally = writer.tallies["orders", 0]
    by_all = [b"%b|%d" % (foreign, number) for number in range(9)]
    assert (tally.strays, tally.murmur2) == (9, 0)
    assert tally.whole_key == sum(routing.partition_for(key, 3) == 0 for key in by_all)


@pytest.mark.parametrize(
    ("partition", "calls"),
    [
        (0, ["apply", "apply", "flush", "apply", "flush"]),
        (1, ["strays", "strays", "flush", "strays", "flush", "note", "apply", "flush"]),
    ],
)
def test_a_huge_record_is_waited_for_before_more_is_sent(partition, calls):
    sizes, options = (600_000, 2_000_000, 600_000), Options(index=1, fields=(("status", "text"),))
    rows = [(key, bytes(size)) for key, size in zip(keys_of(partition, 3), sizes, strict=True)]
    lanes, writer = batch_of(*rows, layout=Layout("orders", 3, options=options))
    assert [call[0] for call in lanes.calls] == calls
    tally = writer.tallies["orders", 0]
    assert (tally.written, tally.invalid_fields) == (3, 3)


def test_ranges_that_were_read_to_their_ends_are_claimed_to_there_with_and_without_rows():
    lanes, writer = a_writer()
    writer.write(("orders", 0), some_rows((keys_of(0, 1)[0], b"v")))
    for partition in (0, 1):
        writer.note_range_read(("orders", partition))
    assert reached(writer) == {("orders", 0): 10_000_000, ("orders", 1): 10_000_000}
    writer.finish_reached()
    claims = [
        (lane.partition, begin, end, len(rows)) for _, lane, begin, end, rows, _ in lanes.named("apply")
    ]
    assert sorted(claims) == [(0, 0, 10_000_000, 1), (1, 0, 10_000_000, 0)]


def test_ranges_that_were_read_are_sent_once_they_come_to_much_and_only_once(monkeypatch):
    monkeypatch.setattr(batch_module, "MAX_GROUP_BYTES", 3_000)
    (lanes, writer), sent = a_writer(), []
    for partition in (0, 1, 2):
        writer.write(("orders", partition), some_rows((keys_of(partition, 1)[0], bytes(2_000))))
        assert writer.tallies  # so that it waits no longer for others
        writer.note_range_read(("orders", partition))
        sent.append(len(lanes.named("apply")))
    writer.finish_reached()
    assert sent == [0, 2, 2]
    claims = [(lane.partition, end, len(rows)) for _, lane, _, end, rows, _ in lanes.named("apply")]
    assert claims == [(partition, 10_000_000, 1) for partition in (0, 1, 2)]


def test_what_another_writer_has_written_is_claimed_behind_it_and_the_first_reason_is_kept():
    lanes, writer = a_writer()
    source, tally = ("orders", 0), Tally(records=7)
    stopped = PartitionResult(tally, 7, stopped_at=5, failure="its SQL fails")
    writer.note_written(source, 7, stopped)
    assert (writer.results, writer.tallies) == ({source: stopped}, {source: tally})
    writer.note_written(source, 7, PartitionResult(tally))
    writer.finish([source])
    assert [call[2:4] for call in lanes.named("apply")] == [(7, 10_000_000)]
    for why in ("first", "second"):
        writer._chunks(source).hold_back(why)
    assert held_back(writer) == {source: "first"}


def test_a_partition_without_records_and_one_beyond_the_layout_have_their_watermarks_moved():
    lanes, writer = a_writer(Layout("orders", 3, stripes=2))
    (key,) = keys_of(1, 1)
    writer.write(("orders", 4), some_rows((key, b"x")))
    writer.finish([("orders", 2), ("orders", 4)])
    assert [(lane.partition, lane.stripe, end) for _, lane, _, end, *_ in lanes.named("apply")] == [
        (2, 0, 10_000_000),
        (2, 1, 10_000_000),
        (4, 0, 10_000_000),
        (4, 1, 10_000_000),
    ]
    ((_, lane, ((_, record),), *_),) = lanes.named("strays")
    assert (lane.partition, record.partition) == (1, 4)


def test_open_chunks_of_many_stripes_are_sent_before_they_come_to_too_much(monkeypatch):
    monkeypatch.setattr(batch_module, "MAX_OPEN_BYTES", 1_000_000)
    layout = Layout("orders", 3, stripes=64)
    lanes, writer = a_writer(layout)
    keys, before = keys_of(0, 200), pa.total_allocated_bytes()
    for first in range(0, 200, 4):
        writer.write(
            ("orders", 0),
            some_rows(*[(key, bytes(100_000)) for key in keys[first : first + 4]], first_offset=first),
        )
        assert pa.total_allocated_bytes() - before < 1_500_000
        lanes.calls.clear()


def test_headers_are_kept_where_the_topic_keeps_them_and_count_for_the_size():
    key, other = keys_of(0, 2)
    rows = (key, b"x"), (other, b"y")
    headers = [[("trace", b"1"), ("empty", None)], None]
    for wanted in (True, False):
        layout = Layout("orders", 3, options=Options(headers=wanted))
        lanes, writer = batch_of(*rows, headers=headers, layout=layout)
        ((_, _, _, _, ((_, first), (_, second)), _),) = lanes.named("apply")
        assert first.headers == ((("trace", b"1"), ("empty", None)) if wanted else ())
        assert second.headers == ()
        plain = 2 * 18 + len(key) + len(other) + 2
        assert writer.tallies["orders", 0].record_bytes == plain + (2 + 5 + 4 + 1 + 2 + 5 + 4) * wanted


def test_a_value_over_the_limit_is_left_in_kafka_with_its_size_headers_and_all():
    large, other, gone = keys_of(0, 3)
    headers = [[("trace", b"1")], None, [("why", b"no use")]]
    layout = Layout("orders", 3, options=Options(headers=True, max_value_bytes=5))
    rows = (large, b"123456"), (other, b"12345"), (gone, None)
    lanes, writer = batch_of(*rows, headers=headers, layout=layout)
    ((_, _, _, _, records, more),) = lanes.named("apply")
    assert [key for key, _ in records] == [large, other, gone]
    assert (records[0][1].value, records[0][1].left_in_kafka_bytes) == (b"", 6)
    assert records[0][1].headers == (("trace", b"1"),)
    assert (records[1][1].value, records[1][1].left_in_kafka_bytes) == (b"12345", None)
    assert records[2][1] is None
    assert more["has_tombstones"]
    tally = writer.tallies["orders", 0]
    assert (tally.left_in_kafka, tally.tombstones, tally.written) == (1, 1, 3)


def test_records_without_a_key_are_counted_and_left_out():
    lanes, writer = batch_of((None, b"x"), (None, None))
    assert [call[4] for call in lanes.named("apply")] == [[]]
    assert (writer.tallies["orders", 0].records, writer.tallies["orders", 0].null_keys) == (2, 2)


EVENTS = Layout("orders", 3, options=Options(envelope="debezium"))
SETTING, DELETING = b'{"after":{"id":1},"op":"u"}', b'{"before":{"id":1},"after":null,"op":"d"}'


def test_an_event_that_deletes_is_a_tombstone_at_its_own_offset_and_others_are_stored_whole():
    kept, gone = keys_of(0, 2)
    rows = (kept, SETTING), (gone, SETTING), (gone, DELETING)
    lanes, writer = batch_of(*rows, first_offset=40, layout=EVENTS)
    ((_, _, _, _, records, more),) = lanes.named("apply")
    assert [(key, record and record.value) for key, record in records] == [(kept, SETTING), (gone, None)]
    assert more["has_tombstones"]
    assert writer.tallies["orders", 0].tombstones == 1


def test_a_deletion_of_a_stray_reaches_the_lane_of_its_key():
    (foreign,) = keys_of(1, 1)
    lanes, _ = batch_of((foreign, SETTING), (foreign, DELETING), layout=EVENTS)
    ((_, lane, records, _, _),) = lanes.named("strays")
    assert (lane, records) == (LaneTarget.of(EVENTS, 1, 0), [(foreign, None)])


def test_values_that_are_not_events_are_stored_and_counted_with_the_first_one_s_offset():
    first, second = keys_of(0, 2)
    lanes, writer = a_writer(EVENTS)
    writer.write(("orders", 0), some_rows((None, b"no"), (first, SETTING), first_offset=7))
    writer.write(("orders", 0), some_rows((first, b"no"), (second, b"\0\0\0\0\1"), first_offset=9))
    writer.write(("orders", 0), some_rows((second, b"\0\0\0\0\1"), first_offset=11))
    writer.finish([("orders", 0)])
    ((_, _, _, _, records, _),) = lanes.named("apply")
    assert [record.value for _, record in records] == [b"no", b"\0\0\0\0\1"]
    tally = writer.tallies["orders", 0]
    assert (tally.invalid_events, tally.first_invalid) == (3, 9)


def test_a_deletion_over_the_limit_of_values_deletes():
    (key,) = keys_of(0, 1)
    small = Layout("orders", 3, options=Options(envelope="debezium", max_value_bytes=10))
    lanes, _ = batch_of((key, SETTING), (key, DELETING), layout=small)
    assert lanes.named("apply")[0][4] == [(key, None)]


def test_values_of_a_topic_without_an_envelope_are_not_looked_at():
    (key,) = keys_of(0, 1)
    lanes, writer = batch_of((key, DELETING))
    assert lanes.named("apply")[0][4][0][1].value == DELETING
    assert writer.tallies["orders", 0].invalid_events == 0


ROWS = st.tuples(
    st.integers(0, 11),
    st.sampled_from([b"v", b"", b"a longer value", None]),
    st.sampled_from(["own", "own", "own", "own", "stray", "no key"]),
    st.integers(0, 9),
)
OPTIONS = [
    Options(),
    Options(headers=True, max_value_bytes=5),
    Options(history_count=2),
    Options(insert_once=True),
    Options(ttl_ms=1000),
    Options(index=1, marker_ms=50),
]


@settings(max_examples=300)
@given(
    st.dictionaries(st.integers(0, 5), st.lists(ROWS, min_size=1, max_size=9), min_size=2, max_size=6),
    st.booleans(),
    st.sampled_from([1, 3]),
    st.sampled_from(OPTIONS),
    st.integers(2, 9),
)
def test_rows_of_many_partitions_are_written_at_once_as_they_are_one_by_one(
    rows_of, can_stray, stripes, options, step
):
    layout = Layout("orders", 6, stripes=stripes, options=options)
    keys = {partition: keys_of(partition, 12, layout) for partition in range(6)}

    def columns(partition, rows, first_offset):
        found = []
        for number, value, kind, _ in rows:
            of = (partition + 1) % 6 if kind == "stray" and can_stray else partition
            found.append((None if kind == "no key" and can_stray else keys[of][number], value))
        headers = [[("h", b"x")] if value else [] for _, value, *_ in rows]
        times = np.array([time for *_, time in rows], np.int64)
        return replace(some_rows(*found, first_offset=first_offset, headers=headers), timestamps_ms=times)

    def written(*, group_bytes=10**6, **at_once):
        lanes, writer = a_writer(layout)
        lanes.pays_from = 3
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lane_module, "PAYS_FROM_RECORDS", 3)
            for name, value in {"MAX_GROUP_BYTES": group_bytes, **at_once}.items():
                patch.setattr(batch_module, name, value)
            for name, most in {"MAX_RECORDS": 6, "COMPARED_RECORDS": 4}.items():
                patch.setattr(chunks_module, name, most)
            for partition, rows in rows_of.items():
                for first in range(0, len(rows), step):
                    writer.write(("orders", partition), columns(partition, rows[first : first + step], first))
                if partition % 2:
                    writer.note_range_read(("orders", partition))
            ends = reached(writer)
            before = {source: each.written for source, each in writer.tallies.items()}
            writer.finish_reached()
        sent = {}
        for name, lane, *others in (call for call in lanes.calls if call[0] != "flush"):
            sent.setdefault(lane, []).append((name, *others))
        own = {lane: [each for each in calls if each[0] != "strays"] for lane, calls in sent.items()}
        strays = {lane: sorted(map(repr, calls)) for lane, calls in sent.items()}
        return own, strays, writer.tallies, ends, before

    # No rows wait for others, and each chunk is encoded by itself.
    one_by_one = written(MAX_RECORDS=0, encode_open=lambda *_: None)
    assert written() == one_by_one
    # Where more waits than may, what was read to its end is sent before the rest comes.
    assert written(group_bytes=20)[:4] == one_by_one[:4]


def test_rows_that_wait_are_written_though_only_their_number_is_asked_for():
    lanes, writer = a_writer()
    for partition in (0, 1):
        writer.write(("orders", partition), some_rows((keys_of(partition, 1)[0], b"v"), first_offset=7))
    assert lanes.calls == []
    assert reached(writer) == {("orders", 0): 8, ("orders", 1): 8}
    assert [tally.records for tally in writer.tallies.values()] == [1, 1]
    writer.finish_reached()
    assert [len(call[4]) for call in lanes.named("apply")] == [1, 1]


STOPPING = TopicTransform(Transform(where="x"), "stop")


def with_results(rows: Rows, *wanted: bool | None) -> Rows:
    return replace(rows, wanted=pa.array(wanted, pa.bool_()), selected=pa.nulls(len(wanted), pa.string()))


def test_a_partition_whose_transform_fails_moves_its_watermark_to_the_record_and_takes_no_later_rows():
    first, second = keys_of(0, 2)
    lanes, writer = a_writer(end=100, transforms={"orders": STOPPING})
    rows = some_rows((first, b"a"), (second, b"b"), (first, b"c"), (second, b"d"), first_offset=4)
    writer.write(("orders", 0), with_results(rows, True, False, None, True))
    writer.write(("orders", 0), with_results(some_rows((first, b"e"), first_offset=8), True))
    writer.note_range_read(("orders", 0))
    (other,) = keys_of(1, 1)
    writer.write(("orders", 1), with_results(some_rows((other, b"f")), True))
    writer.finish([("orders", 0), ("orders", 1)])
    result = writer.results["orders", 0]
    assert (result.stopped_at, result.reached, result.failure) == (6, 6, "its SQL fails on it")
    assert not writer.results["orders", 1].is_stopped
    found = {lane.partition: rest for _, lane, *rest in lanes.named("apply")}
    assert {number: [r and r.value for _, r in records] for number, (_, _, records, _) in found.items()} == {
        0: [b"a", None],
        1: [b"f"],
    }
    assert [found[0][:2], found[1][:2]] == [[0, 6], [0, 100]]
    assert [found[number][3]["complete_as_of_ms"] for number in (0, 1)] == [0, 77]
    tally = writer.tallies["orders", 0]
    assert (tally.left_out, tally.failed, tally.first_failed) == (1, 1, 6)


def test_rows_that_wait_for_others_count_among_what_may_be_open(monkeypatch):
    monkeypatch.setattr(batch_module, "MAX_OPEN_BYTES", 5_000)
    lanes, writer = a_writer()
    sent = []
    for partition in range(3):
        writer.write(("orders", partition), some_rows((keys_of(partition, 1)[0], bytes(2_000))))
        sent.append(len(lanes.named("apply")))
    assert sent == [0, 0, 3]


def test_what_was_sent_is_open_no_longer(monkeypatch):
    monkeypatch.setattr(batch_module, "MAX_OPEN_BYTES", 5_000)
    lanes, writer = a_writer()
    sent = []
    for partition, size in ((0, 6_000), (1, 1_000), (2, 1_000)):
        writer.write(("orders", partition), some_rows((keys_of(partition, 1)[0], bytes(size))))
        assert writer.tallies  # so that it waits no longer for others
        sent.append([lane.partition for _, lane, *_ in lanes.named("apply")])
    assert sent == [[0]] * 3


def test_a_lane_that_compares_records_is_sent_fewer_at_once(monkeypatch):
    monkeypatch.setattr(chunks_module, "MAX_RECORDS", 8)
    monkeypatch.setattr(chunks_module, "COMPARED_RECORDS", 4)
    sizes = []
    for options in (Options(), Options(ttl_ms=1_000)):
        layout = Layout("orders", 3, options=options)
        lanes, _ = batch_of(*[(key, b"v") for key in keys_of(0, 16, layout)], layout=layout)
        sizes.append([len(records) for _, _, _, _, records, _ in lanes.named("apply")])
    assert sizes == [[8, 8], [4, 4, 4, 4]]
