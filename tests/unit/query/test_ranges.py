"""Ranges and counts of keys through a fake state: merged over all lanes, a page at a time, in few rounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.builders import NOW_MS, a_layout, a_watermark, lane_of, value_key
from tests.support.fakes import FakeState
from tests.support.stored import StoredTopic

from keylane import routing
from keylane.errors import HistoryTooShort, NoHistory, NoIndex, StateTooOld
from keylane.model.records import Options
from keylane.query.span import Span
from keylane.state import codec, redis_keys
from keylane.state.lanes import lanes_of_topic

INDEXED = Options(index=True)


def pages_of(topic: StoredTopic, span: Span | None = None, **arguments: Any) -> list[list[bytes]]:
    found, after = [], None
    while True:
        page = topic.page(span, after=after, **arguments)
        found.append([key for key, _ in page.rows])
        after = page.next_after
        if after is None:
            return found


def a_topic_of(*keys: bytes, **fields: Any) -> StoredTopic:
    return StoredTopic(a_layout(**{"options": INDEXED} | fields), *keys)


def flat(pages: list[list[bytes]]) -> list[bytes]:
    return [key for page in pages for key in page]


KEYS = [b"k%03d" % number for number in range(200)]


@pytest.mark.parametrize("shape", [(1, 1), (9, 1), (3, 4), (24, 5)])
@pytest.mark.parametrize("limit", [1, 7, 100, 1_000])
@pytest.mark.parametrize("parts", [1, 2, 16])
def test_all_keys_come_once_in_order_whatever_the_lanes_parts_and_pages(
    shape: tuple[int, int], limit: int, parts: int
):
    options = Options(index=parts)
    topic = a_topic_of(*KEYS, partition_count=shape[0], stripes=shape[1], options=options)
    pages = pages_of(topic, limit=limit)
    assert flat(pages) == KEYS
    assert all(len(page) == limit for page in pages[:-1])
    assert pages[-1]


@settings(max_examples=60)
@given(
    keys=st.sets(st.binary(min_size=1, max_size=3), max_size=40),
    low=st.binary(max_size=2),
    high=st.none() | st.binary(max_size=2),
    prefix=st.binary(max_size=2),
    limit=st.integers(1, 10),
)
def test_spans_are_bytewise(keys: set[bytes], low: bytes, high: bytes | None, prefix: bytes, limit: int):
    topic = a_topic_of(*keys, partition_count=4)
    within = [key for key in sorted(keys) if key >= low and (high is None or key < high)]
    assert flat(pages_of(topic, Span(low, high), limit=limit)) == within
    begun = [key for key in sorted(keys) if key.startswith(prefix)]
    assert flat(pages_of(topic, Span.of_prefix(prefix), limit=limit)) == begun


def test_prefix_of_highest_bytes_has_no_end():
    assert Span.of_prefix(b"a\xff\xff") == Span(b"a\xff\xff", b"b")
    assert Span.of_prefix(b"\xff") == Span(b"\xff", None)


BY_CUSTOMER = {"options": INDEXED, "partition_by": "prefix:|"}
TRIPS = [b"%b|%03d" % (name, number) for name in (b"ann", b"bob", b"eve") for number in range(60)]


@pytest.mark.parametrize("shape", [(9, 1), (3, 4)])
def test_a_span_of_one_partition_key_asks_one_lane_alone(shape: tuple[int, int]):
    topic = a_topic_of(*TRIPS, partition_count=shape[0], stripes=shape[1], **BY_CUSTOMER)
    partition = lane_of(topic.layout, b"bob")[0]
    topic.page()
    for span, keys in (
        (Span.of_prefix(b"bob|"), TRIPS[60:120]),
        (Span.of_prefix(b"bob|01"), TRIPS[70:80]),
        (Span(b"bob|010", b"bob|020"), TRIPS[70:80]),
        (Span(b"bob|", b"bob}"), TRIPS[60:120]),
        (Span(b"bob|050", b"bob|"), []),
    ):
        topic.state.runs.clear()
        page = topic.page(span, limit=70)
        assert [key for key, _ in page.rows] == keys
        assert list(page.watermarks.next_offsets) == [partition]
        assert [len(commands) for commands in topic.state.runs] == ([2, 1] if keys else [2])
        assert flat(pages_of(topic, span, limit=7)) == keys


def test_a_page_whose_keys_are_all_of_one_lane_takes_few_rounds():
    customers = [b"%03d" % number for number in range(50)]
    keys = [b"%b|%03d" % (customer, number) for customer in customers for number in range(200)]
    topic = a_topic_of(*keys, **BY_CUSTOMER)
    topic.page()
    topic.state.runs.clear()
    assert [key for key, _ in topic.page(limit=150).rows] == keys[:150]
    rounds = [commands for commands in topic.state.runs if commands[1:] and commands[1][0] == b"ZRANGEBYLEX"]
    assert len(rounds) <= 3
    assert flat(pages_of(topic, limit=150)) == keys


@pytest.mark.parametrize(
    "span",
    [
        Span(),
        Span.of_prefix(b"bob"),
        Span(b"bob|"),
        Span(b"bob|", b"bob}|"),
        Span(b"bob", b"bob|1"),
        Span(b"ann|", b"bob|"),
    ],
)
def test_a_span_that_may_have_several_partition_keys_asks_all_lanes(span: Span):
    topic = a_topic_of(*TRIPS, **BY_CUSTOMER)
    page = topic.page(span, limit=200)
    within = [key for key in TRIPS if key >= span.low and (span.high is None or key < span.high)]
    assert [key for key, _ in page.rows] == within
    assert len(page.watermarks.next_offsets) == 9


TEXTS = st.text("a|}", max_size=5).map(str.encode)


@given(
    TEXTS | st.binary(max_size=3), st.none() | TEXTS, TEXTS, st.sampled_from(["prefix:|", "prefix:||", "key"])
)
def test_the_partition_key_of_a_span_is_that_of_each_of_its_keys(
    low: bytes, high: bytes | None, key: bytes, partition_by: str
):
    for span in (Span(low, high), Span.of_prefix(low)):
        part = span.partition_key(partition_by)
        is_within = key >= span.low and (span.high is None or key < span.high)
        assert part is None or not is_within or routing.partition_key(key, partition_by) == part
    separator = routing.separator_of(partition_by)
    assert (Span.of_prefix(low).partition_key(partition_by) is not None) == (
        bool(separator) and separator in low
    )


def test_a_page_takes_one_round_for_keys_and_one_for_values():
    topic = a_topic_of(*KEYS)
    topic.page(limit=50)
    topic.state.runs.clear()
    page = topic.page(limit=50)
    assert len(page.rows) == 50
    names = [{name for name, *_ in commands} for commands in topic.state.runs]
    assert names == [{b"GET", b"ZRANGEBYLEX"}, {b"MGET"}]


def test_the_parts_of_a_lane_are_read_in_one_round_after_its_watermark():
    topic = a_topic_of(*KEYS, partition_count=2, options=Options(index=3))
    topic.page(limit=50)
    topic.state.runs.clear()
    topic.page(limit=50)
    assert len(topic.state.runs) == 2
    assert [name for name, *_ in topic.state.runs[0]] == [b"GET", *[b"ZRANGEBYLEX"] * 3] * 2


def test_a_page_of_keys_alone_reads_no_values():
    topic = a_topic_of(*KEYS)
    page = topic.page(limit=50, keys_only=True)
    assert page.rows == [(key, None) for key in KEYS[:50]]
    assert {name for commands in topic.state.runs for name, *_ in commands} == {b"GET", b"ZRANGEBYLEX"}


def test_keys_that_are_gone_are_left_out_and_the_page_is_filled_up():
    topic = a_topic_of(*KEYS, options=Options(index=True, ttl_ms=1_000))
    for key in KEYS[:30]:
        topic.drop(key)
    topic.state.entries[value_key(topic.layout, KEYS[31])] = codec.encode_record(None, 2, NOW_MS)
    expected = [KEYS[30], *KEYS[32:41]]
    assert [key for key, _ in topic.page(limit=10).rows] == expected
    assert [key for key, _ in topic.page(limit=10, keys_only=True).rows] == expected


def test_a_page_that_takes_long_ends_early_and_goes_on():
    topic = a_topic_of(*KEYS)
    for key in KEYS[:150]:
        topic.drop(key)
    run = topic.state.run

    def slowly(*arguments: Any) -> list[Any]:
        topic.time.move(0.15)
        return run(*arguments)

    topic.state.run = slowly
    pages = pages_of(topic, limit=40)
    assert pages[0] == []
    assert flat(pages) == KEYS[150:]


def test_large_values_end_a_page_early():
    topic = a_topic_of(*KEYS[:5])
    topic.add(*KEYS[:5], value=b"x" * (2 * 1024 * 1024))
    assert pages_of(topic) == [[KEYS[0]], [KEYS[1]], [KEYS[2]], [KEYS[3]], [KEYS[4]]]


def test_values_too_large_to_be_held_together_come_in_smaller_pages():
    topic = a_topic_of(*KEYS[:40])
    topic.add(*KEYS[:40], value=bytes(1_000))
    topic.state.limit_bytes = 6_000
    pages = pages_of(topic)
    assert flat(pages) == KEYS[:40]
    assert all(0 < len(page) <= 5 for page in pages)


def test_what_is_written_between_pages_comes_where_it_belongs():
    topic = a_topic_of(*KEYS[::2])
    first = topic.page(limit=50)
    assert first.next_after == KEYS[98]
    topic.add(KEYS[1], KEYS[99])
    rest = topic.page(after=first.next_after, limit=1_000)
    assert [key for key, _ in rest.rows] == [KEYS[99], *KEYS[100::2]]


def test_a_page_goes_on_after_the_layout_has_changed():
    topic = a_topic_of(*KEYS)
    old = topic.layout
    first = topic.page(limit=50)
    topic.publish(a_layout(old.topic, 18, generation=2, options=INDEXED))
    topic.add(*KEYS)
    topic.supersede(old)
    rest = topic.page(after=first.next_after, limit=1_000)
    assert [key for key, _ in rest.rows] == KEYS[50:]
    assert rest.watermarks.layout.generation == 2


def test_a_layout_that_is_removed_while_it_is_read_does_not_shorten_the_page():
    topic = a_topic_of(*KEYS)
    old = topic.layout
    topic.page(limit=1)
    run = topic.state.run

    def swept(calls: Any, deadline: Any) -> list[Any]:
        if any(call.words[0] == b"MGET" for call in calls) and topic.layout == old:
            topic.publish(a_layout(old.topic, 18, generation=2, options=INDEXED))
            topic.add(*KEYS)
            for lane in lanes_of_topic(old):
                del topic.state.entries[lane.watermark_key]
            for key in KEYS:
                del topic.state.entries[value_key(old, key)]
        return run(calls, deadline)

    topic.state.run = swept
    assert [key for key, _ in topic.page(limit=1_000).rows] == KEYS


def test_topic_without_an_index_says_which_option_makes_one():
    topic = a_topic_of(*KEYS, options=Options())
    with pytest.raises(NoIndex, match="index = true"):
        topic.page()
    topic.publish(a_layout(topic.layout.topic, generation=2, options=INDEXED))
    topic.add(*KEYS)
    assert topic.page().rows
    with pytest.raises(NoHistory, match="history_count"):
        topic.page(as_of_ms=NOW_MS)


def test_a_range_as_of_a_time_has_the_records_of_that_time():
    topic = a_topic_of(b"a", b"b", b"c", options=Options(index=True, history_count=2))
    add_history(topic, b"a", [(1, 10, b"1"), (2, 20, b"2")])
    add_history(topic, b"b", [(1, 15, None), (2, 20, b"2")])
    add_history(topic, b"c", [(1, 12, b"1")])
    rows = dict(topic.page(as_of_ms=15).rows)
    assert {key: answer.record.value for key, answer in rows.items()} == {b"a": b"1", b"c": b"1"}
    early = dict(topic.page(as_of_ms=9).rows)
    assert list(early) == [b"a", b"b"]
    assert isinstance(early[b"a"], HistoryTooShort)
    assert early[b"b"].since_ms == 15


def test_a_range_as_of_a_time_has_keys_that_were_deleted_since():
    topic = a_topic_of(b"b", options=Options(index=True, history_count=3))
    add_history(topic, b"a", [(1, 10, b"1"), (2, 20, None)])
    add_history(topic, b"b", [(1, 10, b"2")])
    add_history(topic, b"c", [(1, 10, b"3"), (2, 20, None), (3, 30, b"4"), (4, 40, None)])
    assert [key for key, _ in topic.page().rows] == [b"b"]
    assert [key for key, _ in topic.page(as_of_ms=15, limit=2).rows] == [b"a", b"b"]
    assert [key for key, _ in topic.page(as_of_ms=15, after=b"b", keys_only=True).rows] == [b"c"]
    assert [key for key, _ in topic.page(as_of_ms=25).rows] == [b"b"]
    assert [key for key, _ in topic.page(as_of_ms=35).rows] == [b"b", b"c"]


def test_a_range_as_of_a_time_before_what_histories_by_age_hold_is_refused():
    topic = a_topic_of(b"a", options=Options(index=True, history_age_ms=1_000))
    add_history(topic, b"a", [(1, NOW_MS - 5_000, b"1")])
    assert [key for key, _ in topic.page(as_of_ms=NOW_MS - 1_000).rows] == [b"a"]
    with pytest.raises(HistoryTooShort) as caught:
        topic.page(as_of_ms=NOW_MS - 1_001)
    assert caught.value.since_ms == NOW_MS - 1_000


def add_history(topic: StoredTopic, key: bytes, records: list[tuple[int, int, bytes | None]]) -> None:
    """Offset, timestamp and value of each."""
    partition, stripe, tag = lane_of(topic.layout, key)
    names = topic.state.sorted_sets.setdefault(
        redis_keys.history_index_key(tag, topic.layout.topic, 1, partition, stripe), {}
    )
    names[key] = 0
    name = redis_keys.history_key(tag, topic.layout.topic, 1, key)
    members = topic.state.sorted_sets.setdefault(name, {})
    for offset, timestamp_ms, value in records:
        data = codec.encode_record(value, offset, timestamp_ms)
        members[data[2:10] + data[:2] + data[10:]] = timestamp_ms


class OlderLater(FakeState):
    """A state whose second round comes from replicas that lag behind the nodes of the first."""

    older: dict[bytes, bytes]

    def run(self, calls: Any, deadline: Any) -> list[Any]:
        replies = super().run(calls, deadline)
        self.entries |= self.older
        return replies


def test_a_page_claims_no_more_than_its_oldest_round():
    layout = a_layout(options=INDEXED, partition_count=1)
    topic = StoredTopic(layout, b"k", state=OlderLater())
    topic.state.older = {
        lane.watermark_key: codec.encode_watermark(
            a_watermark(next_offset=3, complete_as_of_ms=NOW_MS - 60_000, newest_timestamp_ms=5)
        )
        for lane in lanes_of_topic(layout)
    }
    page = topic.page()
    assert [key for key, _ in page.rows] == [b"k"]
    assert page.watermarks.next_offsets == {0: 3}
    assert page.watermarks.age_ms(NOW_MS) == 60_000
    ((_, answer),) = page.rows
    assert answer.watermark.next_offset == 3
    with pytest.raises(StateTooOld):
        StoredTopic(layout, state=topic.state).page(max_age_ms=5_000)


@pytest.mark.parametrize("shape", [(1, 1), (9, 1), (3, 4), (24, 5)])
@pytest.mark.parametrize("parts", [1, 4])
def test_the_keys_of_all_lanes_are_counted_in_one_round(shape: tuple[int, int], parts: int):
    topic = StoredTopic(a_layout(partition_count=shape[0], stripes=shape[1], options=Options(index=parts)))
    assert topic.count().count == 0
    topic.add(*KEYS)
    topic.state.runs.clear()
    assert topic.count().count == len(KEYS)
    (commands,) = topic.state.runs
    assert len(commands) == (1 + parts) * shape[0] * shape[1]


def test_a_lanes_watermark_is_read_before_its_keys_are_counted():
    topic = StoredTopic(a_layout(options=INDEXED))
    topic.count()
    (commands,) = topic.state.runs
    assert [name for name, *_ in commands] == [b"GET", b"ZCARD"] * 9
    assert [key for name, key in commands if name == b"GET"] == [
        lane.watermark_key for lane in lanes_of_topic(topic.layout)
    ]


@pytest.mark.parametrize("parts", [1, 4])
def test_keys_count_until_the_millisecond_in_which_they_expire(parts: int):
    topic = StoredTopic(a_layout(options=Options(index=parts, ttl_ms=1_000)))
    topic.add(*KEYS[:30], expires_ms=NOW_MS - 1)
    topic.add(*KEYS[30:50], expires_ms=NOW_MS)
    topic.add(*KEYS[50:], expires_ms=NOW_MS + 500)
    assert topic.count().count == 170
    topic.time.move(0.001)
    assert topic.count().count == 150


def test_topic_without_an_index_says_which_option_makes_one_and_is_counted_once_it_has_it():
    topic = StoredTopic(a_layout(options=Options(history_count=3)))
    with pytest.raises(NoIndex, match="index = true"):
        topic.count()
    topic.publish(a_layout(topic.layout.topic, generation=2, options=INDEXED))
    topic.add(*KEYS)
    assert topic.count().count == len(KEYS)
