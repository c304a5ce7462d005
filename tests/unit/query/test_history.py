"""A key's history through a fake state: pages, moments, and what it no longer knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.builders import NOW_MS, TERMS, a_layout, lane_of, layout_entry, value_entry
from tests.support.compressed import frame_of
from tests.support.fakes import FakeState
from tests.support.stored import StoredTopic

from keylane.errors import CorruptState, HistoryTooShort, NoHistory, PositionNotReached, TooLarge
from keylane.model.records import Options, Position
from keylane.query.history_entries import HistoryScan
from keylane.query.newest import read_all_history
from keylane.state import codec, redis_keys

if TYPE_CHECKING:
    from keylane.model.records import Layout, Record
    from keylane.query.history import HistoryPage

KEY = b"k"
HOUR_MS = 3_600_000
LONG = b"long" * 20
FRAME = frame_of(LONG)


class Row(NamedTuple):
    time: int
    offset: int
    value: bytes | None
    source: int | None = None
    stored: str = ""
    """How: "compressed", "headers", or as it is."""

    @property
    def read(self) -> Row:
        """What readers get of it."""
        return self._replace(stored="")


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
        time, offset, value, source, _ = row
        self.put(
            value_entry(self.layout, KEY, value, offset=offset, timestamp_ms=time, source_partition=source)
        )

    def key_of_another_lane(self) -> bytes:
        keys = (b"%d" % number for number in range(99))
        return next(key for key in keys if lane_of(self.layout, key)[0] != self.partition)

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
    if row.stored == "compressed" and row.value == LONG:
        data = codec.encode_record(FRAME, row.offset, row.time, row.source, compressed=True)
    if row.stored == "headers" and row.value is not None:
        data = codec.encode_record(row.value, row.offset, row.time, row.source, headers=(("a", b"1"),))
    return data[2:10] + data[:2] + data[10:]


def history_name(layout: Layout, key: bytes = KEY) -> bytes:
    return redis_keys.history_key(lane_of(layout, key)[2], layout.topic, layout.generation, key)


ROWS = st.lists(
    st.builds(
        Row,
        time=st.integers(0, 6),
        offset=st.integers(0, 5),
        value=st.none() | st.binary(max_size=2) | st.just(LONG),
        source=st.sampled_from([None, 20, 21]),
        stored=st.sampled_from(["", "compressed", "headers"]),
    ),
    max_size=20,
    unique_by=lambda row: (row.offset, row.source),
)


def in_order(rows: list[Row]) -> list[Row]:
    """Newest first, as readers get them."""
    newest_first = sorted(rows, key=lambda row: (row.time, row.offset, *_rank(row)), reverse=True)
    return [row.read for row in newest_first]


def _rank(row: Row) -> tuple[bool, int, bool]:
    return row.source is None, -(row.source or 0), row.value is None


def with_strays(*rows: Row, **options: Any) -> Kept:
    """A topic whose lane has met strays, and whose values may be compressed."""
    kept = Kept(*rows, **{"history_count": 100, "compression": "zstd"} | options)
    kept.mark(kept.layout, has_strays=True)
    return kept


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
    kept = with_strays(*rows)
    within = [
        row
        for row in in_order(rows)
        if (from_ms is None or row.time >= from_ms) and (to_ms is None or row.time < to_ms)
    ]
    assert kept.pages(limit=limit, from_ms=from_ms, to_ms=to_ms) == within


@settings(max_examples=200)
@given(rows=ROWS, others=ROWS, limit=st.integers(1, 7))
def test_pages_of_two_keys_are_both_histories_newest_first_with_all_of_one_time_and_offset(
    rows: list[Row], others: list[Row], limit: int
):
    kept = with_strays(*rows)
    second = kept.key_of_another_lane()
    name = history_name(kept.layout, second)
    kept.state.sorted_sets[name] = {member_of(row): row.time for row in others}
    kept.mark(kept.layout, has_strays=True)
    partition = lane_of(kept.layout, second)[0]
    wanted = [(row.time, row.offset, row.source or kept.partition, row.value) for row in rows]
    wanted += [(row.time, row.offset, row.source or partition, row.value) for row in others]
    found: list[tuple[int, int, int, bytes | None]] = []
    after = None
    while True:
        scan = HistoryScan(limit, after=after)
        page = read_all_history(kept.store, kept.layout.topic, [KEY, second], scan, TERMS)
        found += [
            (
                entry.timestamp_ms,
                entry.position.offset,
                entry.position.partition,
                entry.record and entry.record.value,
            )
            for entry in page.entries
        ]
        after = page.next_after
        if after is None:
            break
        assert page.entries
    orders = [each[:2] for each in found]
    assert orders == sorted(orders, reverse=True)
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def test_a_page_of_two_keys_is_bounded_in_bytes():
    kept = Kept(*(Row(number, number, b"x" * 1_500_000) for number in range(2)))
    second = kept.key_of_another_lane()
    large = {member_of(Row(number, number, b"y" * 1_500_000)): number for number in range(2)}
    kept.state.sorted_sets[history_name(kept.layout, second)] = large
    page = read_all_history(kept.store, kept.layout.topic, [KEY, second], HistoryScan(100), TERMS)
    assert [entry.timestamp_ms for entry in page.entries] == [1, 1]
    scan = HistoryScan(100, after=page.next_after)
    rest = read_all_history(kept.store, kept.layout.topic, [KEY, second], scan, TERMS)
    assert ([entry.timestamp_ms for entry in rest.entries], rest.next_after) == ([0, 0], None)


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
    found = [row for row in rows if row.time <= moment]
    newest = max(found, key=lambda row: (row.time, *_rank(row)[:2], row.offset), default=None)
    assert with_strays(*rows).value(moment) == (newest.value if newest else None)


@given(rows=ROWS, source=st.sampled_from([None, 20, 21]), offset=st.integers(0, 7))
def test_the_record_as_of_a_position_is_the_last_one_up_to_it(
    rows: list[Row], source: int | None, offset: int
):
    kept = with_strays(*rows)
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


@pytest.mark.parametrize("stored", ["", "compressed", "headers"])
def test_a_page_may_end_between_records_of_one_time_and_offset(stored: str):
    """The last row is stored in the one of these ways, the others in every other one."""
    others = [Row(10, 1, LONG, 20, "headers"), Row(10, 1, LONG, 21), Row(10, 1, None, 22)]
    tied = [Row(10, 1, LONG, stored=stored), *others]
    rows = [Row(11, 0, b"newer"), *(row.read for row in tied), Row(10, 0, b"older", 23)]
    kept = with_strays(*tied, rows[0], rows[-1])
    for limit in range(1, 7):
        assert kept.pages(limit=limit) == rows


def test_records_of_one_time_and_offset_are_read_together_up_to_a_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("keylane.query.history_entries.MOST_TIED_BYTES", 500)
    tied = [Row(10, 1, b"v" * 60, source) for source in range(20, 30)]
    assert len(with_strays(*tied[:4]).read(limit=1).entries) == 1
    with pytest.raises(TooLarge, match="the limit is 500"):
        with_strays(*tied).read(limit=1)


def test_a_record_that_is_stored_in_two_ways_is_on_one_page():
    kept = with_strays(Row(10, 1, LONG), Row(10, 1, LONG, stored="compressed"), Row(9, 0, b"older"))
    assert kept.pages(limit=1) == [Row(10, 1, LONG), Row(9, 0, b"older")]


def test_a_cursor_of_an_earlier_version_goes_on_behind_its_record():
    """It has the first bytes of the record's member, whatever these say of how the value is stored."""
    tied = [Row(10, 1, LONG, stored="compressed"), Row(10, 1, LONG, 20, "compressed"), Row(10, 1, LONG, 21)]
    kept = with_strays(*tied)
    for at, row in enumerate(tied):
        member = member_of(row)
        place = (10).to_bytes(8) + member[: 22 if row.source else 18]
        entries = kept.read(after=place).entries
        assert [kept.row(entry) for entry in entries] == [each.read for each in tied[at + 1 :]]


def test_a_deletion_at_a_record_s_position_is_newer_than_the_record_with_its_headers():
    rows = Row(10, 1, LONG, stored="headers"), Row(10, 1, None)
    for row in (rows[0], rows[0]._replace(source=20)):
        gone = row._replace(value=None)
        kept = with_strays(row, gone)
        kept.set_latest(gone)
        assert [kept.at(moment) for moment in (10, 15)] == [None, None]
        assert kept.at(Position(row.source or kept.partition, 1)) is None
        assert kept.pages() == [gone.read, row.read]


def test_a_history_that_may_have_dropped_the_own_partition_s_record_of_a_time_does_not_guess():
    """As of 10 that would win against the stray, and has a lower offset."""
    rows = [Row(10, 9, b"stray", 20), Row(20, 10, b"later", 20)]
    full = with_strays(*rows, history_count=2)
    full.set_latest(rows[1])
    with pytest.raises(HistoryTooShort) as caught:
        full.value(10)
    assert caught.value.since_ms == 20
    assert full.value(20) == b"later"
    roomy = with_strays(*rows, history_count=3)
    roomy.set_latest(rows[1])
    assert roomy.value(10) == b"stray"
    own = with_strays(Row(10, 1, b"own"), rows[1], history_count=2)
    own.set_latest(rows[1])
    assert own.value(10) == b"own"


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
