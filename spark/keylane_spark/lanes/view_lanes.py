"""The writer's side of a view's lanes: opens them, reads windows, commits windows with the progress.

A commit of a lane is one call, all or nothing. The lane counts its commits, and refuses a call that does not
name the number it has. So every record is counted once, however often its batch is written.

Not thread-safe, as `Cluster`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from keylane.adapters.redis.resp import encode_words
from keylane.errors import CorruptState, LaneBehind, TooLarge
from keylane.model.keys import printable
from keylane.model.records import Layout
from keylane.state import codec, redis_keys, windows
from keylane.state.lanes import decode_watermark
from keylane.state.windows import Closing, Progress
from keylane_spark.lanes import function_library as library
from keylane_spark.lanes.function_library import CallRefused, FunctionLibrary
from keylane_spark.lanes.lane import LONGEST_MS, LaneTarget, lanes_of
from keylane_spark.lanes.lane_writer import LaneWriter
from keylane_spark.lanes.window_values import WindowValues

Window = tuple[int | None, list[Any]]
"""The end of a window, and the states of its columns."""

_KEYS_PER_CALL = 1000
_REPLY_BYTES = 4 * 1024 * 1024
"""About what one reply of windows may have: so many are asked for as had that size before."""


@dataclass(frozen=True, slots=True)
class ViewLaneState:
    """The state of a view's lane: how many commits it has applied, and from which records.

    `watermark_ms`: the event time up to which its windows are final. `closings`: those that it had when it
    was opened; a commit returns none.
    """

    commits: int
    watermark_ms: int
    progress: Progress
    closings: tuple[Closing, ...] = ()


@dataclass(frozen=True, slots=True)
class Changes:
    """What a commit changes in a lane: window key -> new value, window keys to remove, closings to add.

    `rows`: names and values of a table's rows alternately; `rows_gone`: names of those that are removed;
    `markers`: names and values of those that are in no window, for a while.
    """

    windows: Mapping[bytes, bytes] = field(default_factory=dict)
    gone: Sequence[bytes] = ()
    closings: tuple[Closing, ...] = ()
    rows: Sequence[bytes] = ()
    rows_gone: Sequence[bytes] = ()
    markers: Sequence[bytes] = ()

    @property
    def has_rows(self) -> bool:
        """Whether it changes what the lane has of a table's rows."""
        return bool(self.rows or self.rows_gone or self.markers)


NO_CHANGES = Changes()


class ViewLanes:
    """The lanes of one view's generation, for one epoch."""

    def __init__(
        self,
        layout: Layout,
        library_: FunctionLibrary,
        epoch: int,
        *,
        ttl_ms: int | None = None,
        marker_ms: int = 0,
        values: WindowValues | None = None,
    ) -> None:
        """`marker_ms`: how long a table's row that is in no window leaves a marker; 0: it leaves none.

        `values`: of windows, as they are stored; None: as they are.
        """
        self._values = values or WindowValues(layout)
        self.lanes = list(lanes_of(layout))
        self._layout = layout
        self._library = library_
        self._epoch = epoch
        self._ttl_ms = ttl_ms
        self._marker_ms = min(marker_ms, LONGEST_MS)

    def open(self, first: Progress) -> dict[LaneTarget, ViewLaneState]:
        """Take each lane for this epoch; a new lane begins with the progress `first`.

        Raises Fenced, CorruptState, StateUnavailable.
        """
        self._writer().open((lane, 0) for lane in self.lanes)
        return {lane: self._read_state(lane, first) for lane in self.lanes}

    def _read_state(self, lane: LaneTarget, first: Progress) -> ViewLaneState:
        progress_key = self._own_key(lane, b"p")
        stored, watermark_data = self._get(lane, [progress_key, lane.watermark_key])
        if watermark_data is None:
            raise LaneBehind(str(lane), None, 0)
        watermark = decode_watermark(lane.watermark_key, watermark_data)
        if stored is None and watermark.next_offset:
            raise CorruptState(printable(progress_key), "the lane's progress is missing")
        try:
            progress = first if stored is None else Progress.from_json(stored)
        except codec.CodecError as error:
            raise CorruptState(printable(progress_key), str(error)) from error
        return ViewLaneState(
            watermark.next_offset, watermark.newest_timestamp_ms, progress, self._closings(lane)
        )

    def _closings(self, lane: LaneTarget) -> tuple[Closing, ...]:
        key = self._own_key(lane, b"c")
        try:
            return tuple(map(Closing.from_json, self._ask(lane, b"LRANGE", key, b"0", b"-1")))
        except codec.CodecError as error:
            raise CorruptState(printable(key), str(error)) from error

    def supersede(self) -> None:
        """Mark all lanes as not of the current generation. Errors as `open`."""
        self._writer().supersede(self.lanes)

    def mark_incomplete(self, lanes: Iterable[LaneTarget]) -> None:
        """Mark lanes whose topic has permanently lost records. Errors as `open`."""
        self._writer().mark_incomplete(lanes)

    def windows(
        self,
        lane: LaneTarget,
        names: Sequence[bytes],
        limit_bytes: int | None = None,
        decode: Callable[[bytes], Any] = windows.decode_window,
    ) -> dict[bytes, Any]:
        """What `decode` makes of each window that exists: its end and states.

        Raises TooLarge for more than `limit_bytes`, CorruptState, StateUnavailable.
        """
        found, first, count, size = {}, 0, _KEYS_PER_CALL, 0
        while first < len(names):
            some = names[first : first + count]
            try:
                values = self._get(lane, [lane.key_prefix + name for name in some])
            except TooLarge:
                if len(some) == 1:
                    raise
                count = len(some) // 2
                continue
            first += len(some)
            own = sum(len(data) for data in values if data is not None)
            count = min(_KEYS_PER_CALL, max(1, _REPLY_BYTES * len(some) // max(1, own)))
            for name, data in zip(some, values, strict=True):
                if data is not None:
                    found[name], own = self._decode(lane, name, data, decode)
                    size += max(own, len(data))
                    if limit_bytes is not None and size > limit_bytes:
                        raise TooLarge("windows", size, limit_bytes)
        return found

    @staticmethod
    def row_names(lane: LaneTarget, keys: pa.BinaryArray) -> list[bytes]:
        """The names in Redis of a table's rows, by their keys."""
        prefix = pa.scalar(lane.key_prefix[:-2] + b"r:", pa.binary())
        names: list[bytes] = pc.binary_join_element_wise(prefix, keys, b"").to_pylist()
        return names

    def rows(self, lane: LaneTarget, names: Sequence[bytes]) -> list[bytes | None]:
        """What is stored under the names of a table's rows; None: nothing. Raises StateUnavailable."""
        found: list[bytes | None] = []
        for first in range(0, len(names), _KEYS_PER_CALL):
            found += self._get(lane, names[first : first + _KEYS_PER_CALL])
        return found

    def around(self, lane: LaneTarget, spans: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        """The window keys within each span, and the one before it. Raises StateUnavailable."""
        tag = lane.watermark_key[1 : lane.watermark_key.index(b"}")]
        index = redis_keys.index_key(tag, lane.topic, self._layout.generation, lane.partition, lane.stripe)
        names: dict[bytes, None] = {}
        for low, high in spans:
            before = self._ask(lane, b"ZREVRANGEBYLEX", index, b"(" + low, b"-", b"LIMIT", b"0", b"1")
            within = self._ask(lane, b"ZRANGEBYLEX", index, b"[" + low, b"(" + high)
            names |= dict.fromkeys([*before, *within])
        return list(names)

    def commit(
        self,
        lane: LaneTarget,
        state: ViewLaneState,
        progress: Progress,
        changes: Changes = NO_CHANGES,
        *,
        watermark_ms: int,
        complete_as_of_ms: int = 0,
    ) -> ViewLaneState:
        """Write changed windows, the progress and the watermark at once; returns the lane's new state.

        The watermark never falls. Raises Fenced, LaneBehind (the lane has lost commits), CorruptState,
        StateUnavailable.
        """
        now_ms = self._library.clock.now_ms()
        watermark_ms = max(watermark_ms, state.watermark_ms)
        pairs = []
        stored = self._values.stored(list(changes.windows.values()))
        for name, (value, compressed) in zip(changes.windows, stored, strict=True):
            envelope = codec.encode_record(value, state.commits, now_ms, compressed=compressed)
            pairs += [lane.key_prefix + name, envelope]
        function, rows = library.COMMIT, []
        if changes.has_rows:
            function = library.COMMIT_ROWS
            counts = len(changes.rows) // 2, len(changes.markers) // 2, len(changes.rows_gone)
            numbers = (b"%d" % each for each in (*counts, self._marker_ms))
            rows = [*numbers, *changes.rows, *changes.markers, *changes.rows_gone]
        words = (
            *(b"FCALL", function, b"1", lane.watermark_key, *rows, b"%d" % self._epoch),
            *(b"%d" % state.commits, b"%d" % watermark_ms, b"%d" % complete_as_of_ms),
            *(b"%d" % len(lane.key_prefix), b"%d" % (self._ttl_ms or 0), progress.to_json()),
            *(b"%d" % len(changes.closings), b"%d" % len(changes.gone)),
            *(closing.to_json() for closing in changes.closings),
            *(lane.key_prefix + name for name in changes.gone),
            *pairs,
        )
        packed = encode_words(words)
        commits = int(self._call(lane, packed, state.commits))
        return ViewLaneState(commits, watermark_ms, progress)

    def close(self) -> None:
        """Close the connections of its own."""
        self._values.close()

    def _decode(
        self, lane: LaneTarget, name: bytes, data: bytes, decode: Callable[[bytes], Any]
    ) -> tuple[Any, int]:
        """What `decode` makes of a window's value, and the bytes of that."""
        try:
            record = codec.decode_record(name, data, lane.partition, self._values.expand)
            value = record.value  # type: ignore[union-attr]
            return decode(value), len(value)
        except (codec.CodecError, AttributeError) as error:
            raise CorruptState(printable(lane.key_prefix + name), str(error)) from error

    def _writer(self) -> LaneWriter:
        return LaneWriter(self._library, self._epoch)

    def _own_key(self, lane: LaneTarget, kind: bytes) -> bytes:
        return lane.key_prefix[:-2] + kind + b":" + lane.name.encode()

    def _get(self, lane: LaneTarget, keys: Sequence[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = self._ask(lane, b"MGET", *keys)
        return values

    def _ask(self, lane: LaneTarget, *words: bytes) -> Any:
        return self._call(lane, encode_words(words), 0)

    def _call(self, lane: LaneTarget, packed: bytes, commits: int) -> Any:
        try:
            return self._library.call(lane.slot, packed)
        except CallRefused as refused:
            raise refused.for_lane(str(lane), lane.watermark_key, self._epoch, commits) from refused


@dataclass(frozen=True, slots=True)
class LaneWindows:
    """The windows of one lane, at most `limit_bytes` of them, for those who merge others into them."""

    lanes: ViewLanes
    lane: LaneTarget
    limit_bytes: int | None = None

    def windows(self, names: Sequence[bytes]) -> dict[bytes, Window]:
        """See `ViewLanes.windows`."""
        return self.lanes.windows(self.lane, names, self.limit_bytes)

    def around(self, spans: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        """See `ViewLanes.around`."""
        return self.lanes.around(self.lane, spans)
