"""A key's history through a fake state: pages, moments, and what it no longer knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.builders import NOW_MS, a_layout, lane_of, layout_entry, value_entry
from tests.support.fakes import FakeState
from tests.support.stored import StoredTopic

from keylane.errors import CorruptState, HistoryTooShort, NoHistory, PositionNotReached
from keylane.model.records import Options, Position
from keylane.state import codec, redis_keys

if TYPE_CHECKING:
    from keylane.model.records import Layout, Record
    from keylane.query.history import HistoryPage

KEY = b"k"
HOUR_MS = 3_600_000


class Row(NamedTuple):
    time: int
    offset: int
    value: bytes | None
    source: int | None = None


class Kept(StoredTopic):
    """A topic with a key whose history holds these rows."""

    def __init__(self, *rows: Row, state: FakeState | None = None, **options: Any) -> None:
        super().__init__(a_layout(options=Options(**options or {"history_count": 100})), state=state)
        self.partition = lane_of(self.layout, KEY)[0]
        self.name = history_name(self.layout)
        self.state.sorted_sets[self.name] = {}
        for row in rows:
            self.keep(row)

    def keep(self, row: Row) -> None:
        self.state.sorted_sets[self.name][member_of(row)] = row.time

    def set_latest(self, row: Row) -> None:
        """Have this row under the key."""
        time, offset, value, source = row
        self.put(
            value_entry(self.layout, KEY, value, offset=offset, timestamp_ms=time, source_partition=source)
        )

    def read(self, **arguments: Any) -> HistoryPage:
        """`arguments`: fields of ReadTerms and of HistoryScan."""
        return self.history(KEY, **arguments)

    def pages(self, **arguments: Any) -> list[Row]:
        rows: list[Row] = []
        after = None
        while True:
            page = self.read(after=after, **arguments)
            rows += [self.row(entry) for entry in page.entries]
            after = page.next_after
            if after is None:
                return rows
            assert page.entries

    def row(self, entry: Any) -> Row:
        source = None if entry.position.partition == self.partition else entry.position.partition
        value = entry.record.value if entry.record else None
        return Row(entry.timestamp_ms, entry.position.offset, value, source)

    def at(self, moment: int | Position) -> Record | None:
        return self.as_of(KEY, moment).record

    def value(self, moment: int | Position) -> bytes | None:
        record = self.at(moment)
        return record.value if record else None


def member_of(row: Row) -> bytes:
    """Return a record as it is in the history."""
    data = codec.encode_record(row.value, row.offset, row.time, row.source)
    return data[2:10] + data[:2] + data[10:]


def history_name(layout: Layout) -> bytes:
    return redis_keys.history_key(lane_of(layout, KEY)[2], layout.topic, layout.generation, KEY)


ROWS = st.lists(
    st.builds(
        Row,
        time=st.integers(0, 6),
        offset=st.integers(0, 5),
        value=st.none() | st.binary(max_size=2),
        source=st.sampled_from([None, 20, 21]),
    ),
    max_size=20,
    unique_by=lambda row: (row.offset, row.source),
)


def in_order(rows: list[Row]) -> list[Row]:
    """Newest first, as Redis has members of one score."""
    return sorted(rows, key=lambda row: (row.time, member_of(row)), reverse=True)


@settings(max_examples=200)
@given(
    rows=ROWS,
    limit=st.integers(1, 7),
    from_ms=st.none() | st.integers(0, 7),
    to_ms=st.none() | st.integers(0, 7),
)
def test_pages_are_the_history_newest_first(
    rows: list[Row], limit: int, from_ms: int | None, to_ms: int | None
):
    kept = Kept(*rows)
    within = [
        row
        for row in in_order(rows)
        if (from_ms is None or row.time >= from_ms) and (to_ms is None or row.time < to_ms)
    ]
    assert kept.pages(limit=limit, from_ms=from_ms, to_ms=to_ms) == within


def test_a_page_is_one_round_trip_and_large_ones_end_early():
    rows = [Row(number, number, b"x" * 1_500_000) for number in range(6)]
    kept = Kept(*rows)
    kept.read(limit=2)
    kept.state.runs.clear()
    assert len(kept.read(limit=2).entries) == 2
    assert len(kept.state.runs) == 1
    assert len(kept.read().entries) == 2
    assert kept.pages() == rows[::-1]


def test_records_too_large_to_be_held_together_are_read_a_few_at_a_time():
    rows = [Row(number, number, bytes(1_000)) for number in range(60)]
    kept = Kept(*rows)
    kept.state.limit_bytes = 5_000
    assert kept.pages(limit=50) == rows[::-1]
    assert kept.at(Position(kept.partition, 30)).offset == 30


def test_many_records_of_one_time_are_paged_through():
    rows = [Row(5, offset, b"v") for offset in range(450)]
    assert Kept(*rows, history_count=1_000).pages(limit=7) == rows[::-1]


def test_what_is_written_between_pages_does_not_shift_them():
    kept = Kept(*(Row(time, time, b"v") for time in range(10)))
    first = kept.read(limit=3)
    kept.keep(Row(50, 50, b"new"))
    rest = kept.read(limit=3, after=first.next_after)
    assert [entry.timestamp_ms for entry in rest.entries] == [6, 5, 4]


class Growing(FakeState):
    """A state into which three newer records of the key are written behind each read of its history."""

    kept: Kept

    def run(self, calls: Any, deadline: Any) -> Any:
        replies = super().run(calls, deadline)
        for _ in range(3):
            newest = 10_000 + len(self.sorted_sets[self.kept.name])
            self.kept.keep(Row(newest, newest, b"new"))
        return replies


def growing(first_offset: int, **options: Any) -> Kept:
    state = Growing()
    kept = state.kept = Kept(state=state, **options)
    for offset in range(first_offset, 450):
        kept.keep(Row(offset, offset, b"v"))
    return kept


def test_what_is_written_between_the_rounds_of_a_page_shows_no_record_twice():
    kept = growing(0, history_count=1_000)
    page = kept.read(limit=1_000)
    assert [entry.timestamp_ms for entry in page.entries if entry.timestamp_ms < 10_000] == [
        *range(449, -1, -1)
    ]
    assert len({entry.position for entry in page.entries}) == len(page.entries)


def test_what_is_written_while_a_history_is_looked_through_does_not_make_it_full():
    kept = growing(5, history_count=450)
    assert kept.at(Position(kept.partition, 2)) is None


@given(rows=ROWS, moment=st.integers(0, 8))
def test_the_record_as_of_a_time_is_the_newest_one_up_to_it(rows: list[Row], moment: int):
    newest = next((row for row in in_order(rows) if row.time <= moment), None)
    assert Kept(*rows).value(moment) == (newest.value if newest else None)


@given(rows=ROWS, source=st.sampled_from([None, 20, 21]), offset=st.integers(0, 7))
def test_the_record_as_of_a_position_is_the_last_one_up_to_it(
    rows: list[Row], source: int | None, offset: int
):
    kept = Kept(*rows)
    partition = kept.partition if source is None else source
    before = [row for row in rows if row.source == source and row.offset <= offset]
    expected = max(before, key=lambda row: row.offset).value if before else None
    assert kept.value(Position(partition, offset)) == expected


def test_long_histories_are_looked_through_for_a_position():
    kept = Kept(*(Row(time, time, b"%d" % time) for time in range(90)), history_count=1_000)
    kept.keep(Row(1, 95, b"late"))
    assert kept.value(Position(kept.partition, 40)) == b"40"
    assert kept.value(Position(kept.partition, 96)) == b"late"


def test_a_full_history_knows_a_position_of_its_records_and_what_came_after_the_latest_one():
    """The record at 2 went back in time, so the history had no room for it."""
    kept = Kept(Row(10, 1, b"1"), Row(20, 3, b"3"), history_count=2)
    kept.set_latest(Row(20, 3, b"3"))
    found = [kept.value(Position(kept.partition, offset)) for offset in (1, 3, 4)]
    assert found == [b"1", b"3", b"3"]
    with pytest.raises(HistoryTooShort):
        kept.at(Position(kept.partition, 2))
    roomy = Kept(Row(10, 1, b"1"), Row(20, 3, b"3"), history_count=3)
    assert roomy.value(Position(roomy.partition, 2)) == b"1"


def test_a_latest_record_that_a_full_history_has_no_room_for_is_known_as_of_its_position():
    kept = Kept(Row(10, 1, b"1"), Row(20, 2, b"2"), history_count=2)
    kept.set_latest(Row(5, 3, b"3"))
    assert kept.value(Position(kept.partition, 4)) == b"3"
    kept.set_latest(Row(5, 3, None))
    assert kept.at(Position(kept.partition, 4)) is None
    kept.set_latest(Row(30, 3, b"stray", 20))
    with pytest.raises(HistoryTooShort):
        kept.at(Position(kept.partition, 4))


@pytest.mark.parametrize(
    ("latest", "others"),
    [
        (Row(10, 1, b"own"), [Row(10, 9, b"stray", 20)]),
        (Row(10, 1, b"lower", 20), [Row(10, 9, b"higher", 21)]),
        (Row(10, 2, b"last"), [Row(20, 1, b"older offset, later time")]),
        (Row(10, 2, None), [Row(20, 1, b"deleted since")]),
    ],
)
def test_as_of_a_time_after_the_latest_record_s_that_is_the_record(latest: Row, others: list[Row]):
    kept = Kept(latest, *others)
    kept.set_latest(latest)
    for moment in (10, 15, 30):
        assert kept.value(moment) == latest.value
    assert kept.at(9) is None


def test_a_tie_before_the_latest_record_is_broken_as_it_was_when_it_was_the_latest():
    tied = [Row(10, 1, b"own"), Row(10, 9, b"stray", 20), Row(10, 8, b"stray", 21)]
    kept = Kept(*tied, Row(20, 10, b"later", 20))
    kept.set_latest(Row(20, 10, b"later", 20))
    kept.mark(kept.layout, has_strays=True)
    assert [kept.value(moment) for moment in (10, 19, 20)] == [b"own", b"own", b"later"]
    strays = Kept(*tied[1:], Row(20, 10, b"later", 20))
    strays.set_latest(Row(20, 10, b"later", 20))
    strays.mark(strays.layout, has_strays=True)
    assert strays.value(10) == b"stray"


def test_a_position_that_is_not_reached_is_refused():
    kept = Kept(Row(1, 1, b"v"))
    with pytest.raises(PositionNotReached):
        kept.at(Position(kept.partition, 100))


def test_a_full_history_does_not_know_what_was_before_it():
    kept = Kept(Row(10, 1, b"1"), Row(20, 2, b"2"), history_count=2)
    assert kept.value(10) == b"1"
    with pytest.raises(HistoryTooShort) as caught:
        kept.at(9)
    assert caught.value.since_ms == 10
    assert Kept(Row(10, 1, b"1"), history_count=2).at(9) is None
    with pytest.raises(HistoryTooShort):
        kept.at(Position(kept.partition, 0))


def test_a_history_of_an_age_knows_all_within_it():
    horizon_ms = NOW_MS - HOUR_MS
    kept = Kept(Row(horizon_ms - 5, 1, b"1"), Row(NOW_MS - 9, 2, b"2"), history_age_ms=HOUR_MS)
    assert kept.value(horizon_ms) == b"1"
    assert kept.value(horizon_ms - 5) == b"1"
    with pytest.raises(HistoryTooShort) as caught:
        kept.at(horizon_ms - 6)
    assert caught.value.since_ms == horizon_ms - 5
    young = Kept(Row(horizon_ms + 5, 1, b"1"), history_age_ms=HOUR_MS)
    assert young.at(horizon_ms + 4) is None
    assert young.at(1) is None


def test_a_history_that_is_gone_knows_its_age_alone():
    kept = Kept(history_age_ms=HOUR_MS)
    assert kept.at(NOW_MS - HOUR_MS) is None
    with pytest.raises(HistoryTooShort) as caught:
        kept.at(NOW_MS - HOUR_MS - 1)
    assert caught.value.since_ms == NOW_MS - HOUR_MS
    assert Kept(history_count=3).at(1) is None


def test_a_record_is_absent_as_of_a_time_after_its_time_to_live():
    kept = Kept(Row(100, 1, b"v"), history_count=9, ttl_ms=10)
    assert kept.value(109) == b"v"
    assert kept.value(110) is None


def test_a_topic_without_a_history_says_which_option_makes_one():
    kept = Kept(index=True)
    for ask in (kept.read, lambda: kept.at(1)):
        with pytest.raises(NoHistory, match="history_count"):
            ask()


def test_a_topic_has_a_history_as_soon_as_its_layout_keeps_one():
    kept = Kept(index=True)
    with pytest.raises(NoHistory):
        kept.read()
    layout = a_layout(kept.layout.topic, options=Options(history_count=100))
    kept.state.entries |= layout_entry(layout)
    kept.keep(Row(1, 1, b"v"))
    assert len(kept.read().entries) == 1


def test_strange_members_are_refused():
    kept = Kept(Row(1, 1, b"v"))
    kept.state.sorted_sets[kept.name] = {b"something else that is no envelope at all": 5}
    for ask in (kept.read, lambda: kept.at(9), lambda: kept.at(Position(kept.partition, 1))):
        with pytest.raises(CorruptState):
            ask()
    kept.keep(Row(6, 1, b"v"))
    place = kept.read(limit=1).next_after
    kept.state.sorted_sets[kept.name] |= {b"": 1, b"short": 2}
    with pytest.raises(CorruptState):
        kept.read(after=place)
