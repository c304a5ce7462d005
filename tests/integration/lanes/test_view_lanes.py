"""A view's lanes on a real cluster: a commit is all or nothing, and counts once."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.servers.own import eventually
from tests.support import lanes as t
from tests.support.compressed import frame_of, order

from keylane.adapters.redis.cluster import Cluster
from keylane.errors import CorruptState, Fenced, LaneBehind, StateUnavailable, TooLarge
from keylane.model.records import Layout, Options
from keylane.state import codec, redis_keys
from keylane.state.lanes import lanes_of_topic
from keylane.state.windows import Closing, Progress, decode_window, encode_window, window_key
from keylane_spark.lanes.dictionaries import Compressors
from keylane_spark.lanes.function_library import DEFAULTS, FunctionLibrary
from keylane_spark.lanes.lane import lanes_of
from keylane_spark.lanes.record_copies import SLOTS
from keylane_spark.lanes.view_lanes import Changes, ViewLanes
from keylane_spark.lanes.window_values import WindowValues
from keylane_spark.views.closings import KEPT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from keylane_spark.lanes.view_lanes import ViewLaneState

NUMBERS = itertools.count()
FIRST = Progress((0,), (None,))
ONE, TWO, THREE = (window_key(b"k", start) for start in (10, 20, 30))


@pytest.fixture
def layout():
    return Layout(f"~lanes-{next(NUMBERS)}", 1, options=Options(index=True))


@pytest.fixture
def opened(redis_cluster, layout):
    """Open the view's one lane: `opened(epoch)` gives the lanes, the lane and its state."""
    clusters = []

    def open_lanes(epoch: int, **times: int):
        clusters.append(Cluster(t.settings(redis_cluster)))
        lanes = ViewLanes(layout, FunctionLibrary(clusters[-1], t.CLOCK), epoch, **times)
        ((lane, state),) = lanes.open(FIRST).items()
        return lanes, lane, state

    yield open_lanes
    for cluster in clusters:
        cluster.close()


def window(count: int) -> bytes:
    return encode_window(40, [count])


def put(*pairs: tuple[bytes, int], gone: tuple[bytes, ...] = ()) -> Changes:
    return Changes({name: window(count) for name, count in pairs}, gone)


def index_of(redis_cluster: str, layout: Layout, kind: bytes = b"i") -> list[bytes]:
    (own,) = lanes_of_topic(layout)
    key = redis_keys.lane_key(own.tag, layout.topic, layout.generation, kind, b"0.0")
    with t.client(redis_cluster) as client:
        return client.zrange(key, 0, -1)


def test_a_commit_writes_windows_and_progress_and_the_next_epoch_finds_them(redis_cluster, layout, opened):
    lanes, lane, state = opened(1)
    assert state.progress == FIRST
    progress = Progress((7,), (25,), 1, 2)
    after = lanes.commit(lane, state, progress, put((ONE, 3), (TWO, 4)), watermark_ms=15)
    assert after == replace(state, commits=1, watermark_ms=15, progress=progress)
    last = lanes.commit(lane, after, progress, put((THREE, 1), gone=(ONE,)), watermark_ms=5)
    assert last.watermark_ms == 15
    lanes, lane, found = opened(2)
    assert found == last
    assert lanes.windows(lane, [ONE, TWO, THREE]) == {TWO: (40, [4]), THREE: (40, [1])}
    assert index_of(redis_cluster, layout) == [TWO, THREE]


class Compressed:
    """A view's one lane with compressed windows; each `open` is another process."""

    def __init__(self, nodes: str) -> None:
        self.nodes = nodes
        options = Options(index=True, compression="zstd", max_value_bytes=50_000)
        self.layout = Layout(f"~lanes-{next(NUMBERS)}", 1, options=options)
        (self.lane,) = lanes_of(self.layout)
        self._epochs = itertools.count(1)
        self._opened: list[tuple[ViewLanes, Cluster]] = []

    def open(self) -> tuple[ViewLanes, ViewLaneState]:
        cluster = Cluster(t.settings(self.nodes))
        compressors = Compressors(t.settings(self.nodes), DEFAULTS, t.CLOCK, lambda _: None)
        library = FunctionLibrary(cluster, t.CLOCK)
        values = WindowValues(self.layout, compressors)
        lanes = ViewLanes(self.layout, library, next(self._epochs), values=values)
        self._opened.append((lanes, cluster))
        return lanes, lanes.open(FIRST)[self.lane]

    def close(self) -> None:
        for lanes, cluster in self._opened:
            lanes.close()
            cluster.close()

    def stored(self, names: Iterable[bytes]) -> list[bytes]:
        with t.client(self.nodes) as client:
            return client.mget_nonatomic([self.lane.key_prefix + name for name in names])


@pytest.fixture
def compressed(redis_cluster):
    view = Compressed(redis_cluster)
    yield view
    view.close()


def latest_of(count: int, first: int = 0) -> dict[bytes, bytes]:
    """Windows whose `latest` is an order."""
    return {
        window_key(b"k", number): encode_window(40, [["x", 0, number, order(number).decode()]])
        for number in range(first, first + count)
    }


def test_compressed_windows_are_read_by_the_next_epoch_and_change_again(compressed):
    lanes, state = compressed.open()
    windows = latest_of(300)
    state = lanes.commit(compressed.lane, state, FIRST, Changes(windows), watermark_ms=0)
    assert lanes.windows(compressed.lane, list(windows)) == {
        name: decode_window(value) for name, value in windows.items()
    }
    assert sum(map(len, compressed.stored(windows))) < sum(map(len, windows.values())) / 2
    lanes, state = compressed.open()
    changed = latest_of(100, first=500)
    changed = dict(zip(windows, changed.values(), strict=False))
    large = {b"large" + ONE: encode_window(40, ["x" * 60_000])}
    lanes.commit(compressed.lane, state, FIRST, Changes(changed | large), watermark_ms=0)
    wanted = windows | changed | large
    assert lanes.windows(compressed.lane, list(wanted)) == {
        name: decode_window(value) for name, value in wanted.items()
    }
    (kept,) = compressed.stored(large)
    assert kept[:2] == bytes((codec.VERSION, 0))


def test_what_windows_have_once_they_are_expanded_counts_for_the_limit(compressed):
    lanes, state = compressed.open()
    windows = {window_key(b"k", number): encode_window(40, ["x" * 9_000]) for number in range(5)}
    lanes.commit(compressed.lane, state, FIRST, Changes(windows), watermark_ms=0)
    assert sum(map(len, compressed.stored(windows))) < 1_000
    with pytest.raises(TooLarge):
        lanes.windows(compressed.lane, list(windows), 40_000)
    assert len(lanes.windows(compressed.lane, list(windows), 50_000)) == 5


def test_a_window_whose_dictionary_is_lost_is_unavailable_until_that_is_back(compressed):
    lanes, state = compressed.open()
    windows = latest_of(300)
    lanes.commit(compressed.lane, state, FIRST, Changes(windows), watermark_ms=0)
    with t.client(compressed.nodes) as client:
        names = [redis_keys.dictionaries_key(compressed.layout.topic, tag) for tag in SLOTS]
        kept = client.hgetall(names[0])
        client.delete(*names[:1])
        again, _ = compressed.open()
        assert len(again.windows(compressed.lane, list(windows))) == 300
        for name in names:
            client.delete(name)
        later, _ = compressed.open()
        with pytest.raises(StateUnavailable, match=r"the dictionary \d+ of the values of view"):
            later.windows(compressed.lane, list(windows))
        client.hset(names[1], mapping=kept)
    assert len(later.windows(compressed.lane, list(windows))) == 300


def test_a_window_that_names_more_bytes_than_any_has_is_not_decompressed(compressed):
    lanes, state = compressed.open()
    lanes.commit(compressed.lane, state, FIRST, put((ONE, 1)), watermark_ms=0)
    envelope = codec.encode_record(frame_of(b"x" * 50_001), 0, 1, compressed=True)
    with t.client(compressed.nodes) as client:
        client.set(compressed.lane.key_prefix + ONE, envelope)
    with pytest.raises(CorruptState, match="names 50001 bytes, the limit is 50000"):
        lanes.windows(compressed.lane, [ONE])


def test_a_commit_that_is_sent_again_counts_once(opened):
    lanes, lane, state = opened(1)
    after = lanes.commit(lane, state, FIRST, put((ONE, 1)), watermark_ms=0)
    again = lanes.commit(lane, state, FIRST, put((ONE, 2)), watermark_ms=0)
    assert again.commits == after.commits == 1
    assert lanes.windows(lane, [ONE]) == {ONE: (40, [1])}


def test_a_commit_leaves_no_claim_of_the_future(redis_cluster, opened):
    lanes, lane, state = opened(1)
    lanes.commit(lane, state, FIRST, watermark_ms=0, complete_as_of_ms=t.CLOCK.now_ms() + 3_600_000)
    assert 0 < t.held(redis_cluster, lane, [])[1].complete_as_of_ms <= t.CLOCK.now_ms()


def test_a_lane_that_has_lost_commits_refuses_the_next(opened):
    lanes, lane, state = opened(1)
    ahead = replace(state, commits=5)
    with pytest.raises(LaneBehind):
        lanes.commit(lane, ahead, FIRST, put((ONE, 1)), watermark_ms=0)
    assert lanes.windows(lane, [ONE]) == {}


def test_a_writer_that_was_replaced_is_refused(opened):
    lanes, lane, state = opened(1)
    newer, _, _ = opened(2)
    with pytest.raises(Fenced, match="written by epoch 2 now, this writer is epoch 1"):
        lanes.commit(lane, state, FIRST, put((ONE, 1)), watermark_ms=0)
    assert newer.windows(lane, [ONE]) == {}


def test_windows_go_after_their_time_to_live_and_leave_the_index_with_the_next_commit(
    redis_cluster, layout, opened
):
    lanes, lane, state = opened(1, ttl_ms=2_000)
    state = lanes.commit(lane, state, FIRST, put((ONE, 1), (TWO, 2)), watermark_ms=0)
    assert lanes.windows(lane, [ONE, TWO]).keys() == {ONE, TWO}
    eventually(lambda: not lanes.windows(lane, [ONE, TWO]))
    state = lanes.commit(lane, state, FIRST, put((TWO, 3)), watermark_ms=0)
    assert lanes.windows(lane, [ONE, TWO]) == {TWO: (40, [3])}
    assert index_of(redis_cluster, layout) == index_of(redis_cluster, layout, b"x") == [TWO]


@pytest.mark.parametrize("marker_ms", [1_500, 0])
def test_rows_are_written_with_the_commit_and_markers_of_others_last_for_their_time(opened, marker_ms):
    lanes, lane, state = opened(1, marker_ms=marker_ms)
    names = lanes.row_names(lane, pa.array([b"set", b"gone", b"marked", b"again"], pa.binary()))
    _, gone, marked, again = names
    written = Changes(rows=[name for each in names for name in (each, b"row")])
    state = lanes.commit(lane, state, FIRST, written, watermark_ms=0)
    markers = [marked, b"marker", again, b"marker"]
    after = lanes.commit(lane, state, FIRST, Changes(rows_gone=[gone], markers=markers), watermark_ms=0)
    assert lanes.rows(lane, names) == [b"row", None, *([b"marker"] * 2 if marker_ms else [None] * 2)]
    lanes.commit(lane, after, FIRST, Changes(rows=[again, b"new"]), watermark_ms=0)
    eventually(lambda: lanes.rows(lane, [marked, again]) == [None, b"new"])


def test_windows_around_a_span_are_those_within_and_the_one_before(opened):
    lanes, lane, state = opened(1)
    lanes.commit(lane, state, FIRST, put((ONE, 1), (TWO, 1), (THREE, 1)), watermark_ms=0)
    assert lanes.around(lane, [(TWO, THREE)]) == [ONE, TWO]
    assert lanes.around(lane, [(ONE, TWO), (THREE, THREE)]) == [ONE, TWO]


def test_a_commit_of_thousands_of_windows_is_one_call(redis_cluster, layout, opened):
    lanes, lane, state = opened(1)
    names = [window_key(b"key-%d" % number, 0) for number in range(6000)]
    state = lanes.commit(lane, state, FIRST, put(*((name, 1) for name in names)), watermark_ms=0)
    assert len(lanes.windows(lane, names)) == len(index_of(redis_cluster, layout)) == 6000
    lanes.commit(lane, state, FIRST, put(gone=tuple(names)), watermark_ms=0)
    assert lanes.windows(lane, names) == {}
    assert index_of(redis_cluster, layout) == []


def test_a_lane_keeps_the_newest_thousand_closings_in_their_order(opened):
    lanes, lane, state = opened(1)
    assert state.closings == ()
    closings = [Closing((number,), number) for number in range(1, 1201)]
    for first in range(0, len(closings), 400):
        changes = Changes({ONE: window(1)}, closings=tuple(closings[first : first + 400]))
        state = lanes.commit(lane, state, FIRST, changes, watermark_ms=0)
    lanes, lane, state = opened(2)
    assert state.closings == tuple(closings[-KEPT:])
    assert lanes.windows(lane, [ONE]) == {ONE: (40, [1])}


@pytest.mark.parametrize("kind", [b"p", b"v", b"c"])
def test_bytes_that_are_not_keylane_s_are_corrupt_state(redis_cluster, layout, opened, kind):
    lanes, lane, state = opened(1)
    lanes.commit(lane, state, FIRST, put((ONE, 1)), watermark_ms=0)
    (own,) = lanes_of_topic(layout)
    name = ONE if kind == b"v" else b"0.0"
    with t.client(redis_cluster) as client:
        key = redis_keys.lane_key(own.tag, layout.topic, layout.generation, kind, name)
        client.rpush(key, b"nonsense") if kind == b"c" else client.set(key, b"nonsense")
    with pytest.raises(CorruptState):
        opened(2) if kind != b"v" else lanes.windows(lane, [ONE])
