"""A view's lanes from the writer's side: take them, read windows, commit windows with the progress.

A commit of a lane is one call, all or nothing, and the lane counts its commits: the call that names another
number than the lane's is refused. So a record is counted once however often its batch is written.

Not to be shared between threads, as `Cluster`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from keylane.adapters.redis.resp import encode_command
from keylane.errors import CorruptState, Fenced, LaneBehind
from keylane.model.keys import printable
from keylane.state import codec, redis_keys, windows
from keylane.state.lanes import decode_watermark, lanes_of_topic
from keylane.state.windows import Progress
from keylane_spark.adapters import function_library as library
from keylane_spark.adapters.function_library import PATIENCE_S
from keylane_spark.adapters.lane import LaneTarget
from keylane_spark.adapters.lane_writer import LaneWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from keylane.adapters.redis.cluster import Cluster
    from keylane.model.records import Layout
    from keylane.ports import Clock

_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a lane of a view stands. `watermark_ms`: the event time by which its windows are final."""

    commits: int
    watermark_ms: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class Changes:
    """What a commit does to a lane's windows: window key -> value, and the window keys that go."""

    windows: Mapping[bytes, bytes] = field(default_factory=dict)
    gone: Sequence[bytes] = ()


NO_CHANGES = Changes()


class ViewLanes:
    """The lanes of one view's generation, for one epoch. `notify` is told of what holds a write up."""

    def __init__(
        self,
        layout: Layout,
        cluster: Cluster,
        clock: Clock,
        epoch: int,
        *,
        ttl_ms: int | None = None,
        patience_s: float = PATIENCE_S,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.lanes = [LaneTarget.of(layout, home.partition, home.stripe) for home in lanes_of_topic(layout)]
        self._layout = layout
        self._cluster = cluster
        self._clock = clock
        self._epoch = epoch
        self._ttl_ms = ttl_ms
        self._patience_s = patience_s
        self._notify = notify

    def open(self, first: Progress) -> dict[LaneTarget, Standing]:
        """Take each lane for this epoch; `first`: where one that is new begins.

        Raises Fenced, CorruptState, StateUnavailable.
        """
        writer = self._writer()
        writer.open((lane, 0) for lane in self.lanes)
        standings = {}
        for lane in self.lanes:
            kept, mark = self._get(lane, [self._progress_key(lane), lane.watermark_key])
            if mark is None:
                raise LaneBehind(str(lane), None, 0)
            watermark = decode_watermark(lane.watermark_key, mark)
            if kept is None and watermark.next_offset:
                raise CorruptState(printable(self._progress_key(lane)), "the lane's progress is missing")
            try:
                progress = Progress.from_json(kept) if kept is not None else first
            except codec.CodecError as error:
                raise CorruptState(printable(self._progress_key(lane)), str(error)) from error
            standings[lane] = Standing(watermark.next_offset, watermark.newest_timestamp_ms, progress)
        return standings

    def supersede(self) -> None:
        """Tell readers of all lanes that theirs is not the current generation. Errors as `open`."""
        self._writer().supersede(self.lanes)

    def mark_incomplete(self, lanes: Iterable[LaneTarget]) -> None:
        """Tell readers of these lanes that records are lost for good. Errors as `open`."""
        self._writer().mark_incomplete(lanes)

    def windows(self, lane: LaneTarget, names: Sequence[bytes]) -> dict[bytes, tuple[int | None, list[Any]]]:
        """End and states of those windows that there are. Raises CorruptState, StateUnavailable."""
        found = {}
        for first in range(0, len(names), _AT_ONCE):
            some = names[first : first + _AT_ONCE]
            values = self._get(lane, [lane.key_prefix + name for name in some])
            for name, data in zip(some, values, strict=True):
                if data is not None:
                    found[name] = self._decode(lane, name, data)
        return found

    def around(self, lane: LaneTarget, spans: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        """Of each span of window keys those that it has, and the one before it. Raises StateUnavailable."""
        index = redis_keys.index_key(
            *(self._tag(lane), lane.topic, self._layout.generation, lane.partition, lane.stripe)
        )
        names: dict[bytes, None] = {}
        for low, high in spans:
            before = self._ask(lane, b"ZREVRANGEBYLEX", index, b"(" + low, b"-", b"LIMIT", b"0", b"1")
            within = self._ask(lane, b"ZRANGEBYLEX", index, b"[" + low, b"(" + high)
            names |= dict.fromkeys([*before, *within])
        return list(names)

    def commit(
        self,
        lane: LaneTarget,
        standing: Standing,
        progress: Progress,
        changes: Changes = NO_CHANGES,
        *,
        watermark_ms: int,
        complete_as_of_ms: int = 0,
    ) -> Standing:
        """Write a lane's windows and progress; where it stands then.

        Raises Fenced, LaneBehind (the lane has lost commits), CorruptState, StateUnavailable.
        """
        now_ms = self._clock.now_ms()
        watermark_ms = max(watermark_ms, standing.watermark_ms)
        pairs = []
        for name, value in changes.windows.items():
            pairs += [lane.key_prefix + name, codec.encode_record(value, standing.commits, now_ms)]
        packed = encode_command(
            *(b"FCALL", library.COMMIT, b"1", lane.watermark_key, b"%d" % self._epoch),
            *(b"%d" % standing.commits, b"%d" % watermark_ms, b"%d" % complete_as_of_ms),
            *(b"%d" % len(lane.key_prefix), b"%d" % (self._ttl_ms or 0), progress.to_json()),
            *(b"%d" % len(changes.gone), *(lane.key_prefix + name for name in changes.gone)),
            *pairs,
        )
        commits = int(self._call(lane, packed, standing.commits))
        return replace(standing, commits=commits, watermark_ms=watermark_ms, progress=progress)

    def _decode(self, lane: LaneTarget, name: bytes, data: bytes) -> tuple[int | None, list[Any]]:
        try:
            return windows.decode_window(codec.decode_record(name, data, lane.partition).value)  # type: ignore[union-attr]
        except (codec.CodecError, AttributeError) as error:
            raise CorruptState(printable(lane.key_prefix + name), str(error)) from error

    def _writer(self) -> LaneWriter:
        return LaneWriter(
            self._cluster, self._clock, self._epoch, patience_s=self._patience_s, notify=self._notify
        )

    def _tag(self, lane: LaneTarget) -> bytes:
        return lane.watermark_key[1 : lane.watermark_key.index(b"}")]

    def _progress_key(self, lane: LaneTarget) -> bytes:
        return lane.key_prefix[:-2] + b"p:" + lane.name.encode()

    def _get(self, lane: LaneTarget, keys: Sequence[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = self._ask(lane, b"MGET", *keys)
        return values

    def _ask(self, lane: LaneTarget, *words: bytes) -> Any:
        return self._call(lane, encode_command(*words), 0)

    def _call(self, lane: LaneTarget, packed: bytes, commits: int) -> Any:
        try:
            return library.call(
                self._cluster,
                lane.slot,
                packed,
                self._clock,
                patience_s=self._patience_s,
                notify=self._notify,
            )
        except library.Refused as refused:
            if refused.word == "FENCED":
                raise Fenced(str(lane), self._epoch, int(refused.detail)) from refused
            if refused.word == "BEHIND":
                has = int(refused.detail)
                raise LaneBehind(str(lane), has if has >= 0 else None, commits) from refused
            raise CorruptState(printable(lane.watermark_key), str(refused)) from refused
