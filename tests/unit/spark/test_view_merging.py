"""Parts of windows into windows: late ones are left out, sessions that touch become one."""

from __future__ import annotations

from keylane.state.windows import Column, Definition, decode_window, split, window_key
from keylane_spark.views.merging import merge_partials
from keylane_spark.views.partials import PartialWindow

COUNT = (Column("n", "count"),)
TUMBLING = Definition("t", COUNT, size_ms=10)
SESSION = Definition("t", COUNT, size_ms=10, is_session=True)


class LaneTarget:
    """A lane in memory: window key -> end and states."""

    def __init__(self, *windows: tuple[bytes, int, int, int]) -> None:
        self.kept = {window_key(key, start): (end, [count]) for key, start, end, count in windows}

    def windows(self, names):
        return {name: self.kept[name] for name in names if name in self.kept}

    def around(self, spans):
        found = set()
        for low, high in spans:
            found |= {name for name in self.kept if low <= name < high}
            found |= set(sorted(name for name in self.kept if name < low)[-1:])
        return list(found)


def part(key: bytes, start: int, end: int, count: int = 1) -> PartialWindow:
    return PartialWindow(0, key, start, end, count, start, [count])


def changed(view: Definition, lane: LaneTarget, *parts: PartialWindow, watermark_ms: int = 0):
    """The windows that change as (key, start, end, count), those that go, and how many are late."""
    changes, late = merge_partials(view, parts, lane, watermark_ms)
    windows = sorted(
        (*split(name), end, states[0])
        for name, (end, states) in ((name, decode_window(value)) for name, value in changes.windows.items())
    )
    return windows, sorted(split(name) for name in changes.gone), late


def test_parts_are_added_to_what_is_there():
    lane = LaneTarget((b"a", 0, 10, 5))
    assert changed(TUMBLING, lane, part(b"a", 0, 10, 2), part(b"a", 0, 10, 3), part(b"b", 0, 10)) == (
        [(b"a", 0, 10, 10), (b"b", 0, 10, 1)],
        [],
        0,
    )


def test_a_window_is_final_when_the_watermark_reaches_its_end():
    lane = LaneTarget((b"a", 0, 10, 5))
    assert changed(TUMBLING, lane, part(b"a", 0, 10, 2), watermark_ms=9)[0] == [(b"a", 0, 10, 7)]
    assert changed(TUMBLING, lane, part(b"a", 0, 10, 2), watermark_ms=10) == ([], [], 2)


def test_a_session_joins_all_that_it_touches():
    lane = LaneTarget((b"a", 0, 12, 2), (b"a", 20, 30, 1), (b"a", 50, 60, 1), (b"b", 5, 15, 1))
    assert changed(SESSION, lane, part(b"a", 11, 22, 2)) == ([(b"a", 0, 30, 5)], [(b"a", 20)], 0)


def test_sessions_that_only_meet_stay_two():
    lane = LaneTarget((b"a", 0, 10, 1))
    assert changed(SESSION, lane, part(b"a", 10, 20)) == ([(b"a", 10, 20, 1)], [], 0)


def test_a_session_that_begins_earlier_takes_the_place_of_the_one_it_joins():
    lane = LaneTarget((b"a", 5, 15, 1))
    assert changed(SESSION, lane, part(b"a", 0, 10)) == ([(b"a", 0, 15, 2)], [(b"a", 5)], 0)


def test_parts_of_several_partitions_become_one_session():
    parts = part(b"a", 0, 10), part(b"a", 16, 26), part(b"a", 8, 18)
    assert changed(SESSION, LaneTarget(), *parts) == ([(b"a", 0, 26, 3)], [], 0)


def test_a_final_session_is_not_touched_by_a_later_one_that_overlaps_it():
    lane = LaneTarget((b"a", 0, 10, 4))
    assert changed(SESSION, lane, part(b"a", 5, 15), watermark_ms=10) == ([(b"a", 5, 15, 1)], [], 0)
    assert changed(SESSION, lane, part(b"a", 0, 11), watermark_ms=10) == ([], [], 1)
    assert changed(SESSION, lane, part(b"a", 0, 10), watermark_ms=10) == ([], [], 1)


def test_a_view_without_windows_is_never_final():
    view = Definition("t", COUNT)
    total = PartialWindow(0, b"a", 0, None, 3, 5, [3])
    assert changed(view, LaneTarget(), total, watermark_ms=1000) == ([(b"a", 0, None, 3)], [], 0)
