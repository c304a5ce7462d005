"""The writer's side of the lane protocol: opens lanes, and sends them chunks in order, pipelined.

How a chunk gets into its lane:

1. `apply` sends it to the lane's primary at once, and keeps it until its reply has arrived.
2. All chunks of a lane go over one connection, in order. Each names the offset at which it begins, and the
   library refuses a chunk that does not follow the one before. So many may be in flight at once, and a lost
   chunk stops those behind it. The strays of a partition are such a chain of their own in each lane.
3. After a transient error (a broken connection, a node that is loading or full, a migrating slot, a missing
   library) what has no reply is sent again, first chunk first, until the retry budget is spent: see
   `call_pipeline`. The library skips records that are in the lane already, so repeating does no harm. A lane
   whose calls get no reply is parked. What a full node has refused goes at once by another function, which
   takes what makes room.
4. If the library refuses a call, the writer raises at once Fenced (FENCED), LaneBehind (BEHIND), StraysLost
   (LOST) or CorruptState (CORRUPT, WRONGTYPE).
5. `flush` returns once every chunk has its reply and, with `wait_replicas`, once the replicas have them.

Not thread-safe, as `Cluster`.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from keylane.errors import StateUnavailable
from keylane.state import codec
from keylane_spark.lanes import function_library as library
from keylane_spark.lanes.call_pipeline import CallPipeline
from keylane_spark.lanes.function_library import FunctionLibrary
from keylane_spark.lanes.lane import LaneCall, LaneStart, LaneTarget, OffsetRange
from keylane_spark.lanes.option_arguments import option_arguments
from keylane_spark.lanes.parked_slots import ParkedSlots
from keylane_spark.rows.chunks import Chunk

_NOTHING = OffsetRange(0, 0)


class LaneWriter:
    """Writes lanes for one epoch.

    With `wait_replicas` a flush waits for this many replicas. If they are too slow, the flush returns without
    them, and calls the library's `notify`: once, until they have caught up.
    `parked`: where it leaves out and notes slots that take no writes; None: it raises StateUnavailable.
    """

    def __init__(self, library_: FunctionLibrary, epoch: int, parked: ParkedSlots | None = None) -> None:
        self._library = library_
        self._epoch = epoch
        self._pipeline = CallPipeline(library_, epoch, parked)
        self._is_short_of_replicas = False

    def open(
        self, lanes: Iterable[tuple[LaneTarget, int]], incomplete: Collection[LaneTarget] = ()
    ) -> dict[LaneTarget, LaneStart]:
        """Take each lane for this epoch; the int is the partition's oldest offset. Return the lanes' states.

        A new lane in `incomplete` is marked as having lost records. A superseded lane serves again. Parked
        lanes have no state.

        Raises Fenced (a writer has this epoch or a newer one), CorruptState, StateUnavailable.
        """
        replies: dict[LaneTarget, Any] = {}
        ready, others = set(), []
        for lane, oldest in lanes:
            if self.is_parked(lane):
                continue
            prefix = b"%d" % len(lane.key_prefix)
            words = self._command(library.OPEN, lane, b"%d" % oldest, b"%d" % (lane in incomplete), prefix)
            call = LaneCall(lane, OffsetRange(oldest, oldest), words, replies=replies)
            if self._pipeline.node_of(lane) in ready:
                others.append(call)
                continue
            # The first lane of each node is opened alone, because the node may lack the library. Lanes in
            # flight would then be opened a second time, and be refused for their own epoch.
            self._pipeline.send_alone(call)
            ready.add(self._pipeline.node_of(lane))
        self._pipeline.exchange(others)
        self.flush()
        return {lane: LaneStart.of_reply(reply) for lane, reply in replies.items()}

    def supersede(self, lanes: Iterable[LaneTarget]) -> None:
        """Mark lanes as not of the current generation: their readers then re-read the layout.

        Lanes without a watermark stay as they are. Errors as `open`.
        """
        self._mark(lanes, codec.SUPERSEDED)

    def mark_incomplete(self, lanes: Iterable[LaneTarget]) -> None:
        """Mark lanes whose partition has permanently lost records. Errors as `open`."""
        self._mark(lanes, codec.INCOMPLETE)

    def mark_missed_deletions(self, lanes: Iterable[LaneTarget]) -> None:
        """Mark lanes that may hold keys whose tombstones compaction has removed. Errors as `open`."""
        self._mark(lanes, codec.INCOMPLETE | codec.MISSED_DELETIONS)

    def _mark(self, lanes: Iterable[LaneTarget], flags: int) -> None:
        flag = b"%d" % flags
        self._pipeline.exchange(
            LaneCall(lane, _NOTHING, self._command(library.MARK, lane, flag)) for lane in lanes
        )
        self.flush()

    def apply(
        self,
        lane: LaneTarget,
        covered: OffsetRange,
        chunk: Chunk | None = None,
        *,
        unless_failed_over: bool = False,
    ) -> None:
        """Send the records of `covered` and move the watermark to its end; `flush` waits for the replies.

        Without a chunk only the watermark moves. `unless_failed_over`: a lane that has failed over since it
        was opened refuses the call, for it may lack strays, or a mark. Raises what an earlier call met:
        Fenced, LaneBehind, StraysLost, CorruptState, StateUnavailable.
        """
        self._pipeline.send(self._apply_call(lane, covered, chunk, unless_failed_over=unless_failed_over))

    def beat(self, lanes: Iterable[tuple[LaneTarget, OffsetRange, bool]]) -> None:
        """Move watermarks without records, all of a node in one exchange, and wait for the replies.

        Each lane comes once, with its `covered` and `unless_failed_over` as of `apply`, and errors are those.
        """
        self._pipeline.exchange(
            [self._apply_call(lane, covered, None, unless_failed_over=each) for lane, covered, each in lanes]
        )

    def _apply_call(
        self, lane: LaneTarget, covered: OffsetRange, chunk: Chunk | None, *, unless_failed_over: bool
    ) -> LaneCall:
        function = library.APPLY_UNLESS_LOST if unless_failed_over else library.APPLY
        words = self._command(
            function,
            lane,
            b"%d" % covered.begin,
            b"%d" % covered.end,
            b"%d" % (chunk.newest_timestamp_ms if chunk else 0),
            b"%d" % covered.complete_as_of_ms,
            b"%d" % covered.log_end,
            b"%d" % (chunk.has_tombstones if chunk else 0),
            *option_arguments(lane.options, len(lane.key_prefix)),
        )
        # Only the function bounds the time of which a lane is complete by its node's clock.
        needs_function = unless_failed_over or covered.complete_as_of_ms
        is_ordered = bool(chunk and chunk.ordered and not needs_function)
        when_full = library.WHEN_FULL[function]
        return LaneCall(lane, covered, words, chunk, is_ordered, when_full=when_full)

    def put_strays(self, lane: LaneTarget, chunk: Chunk, source_partition: int, after: int = 0) -> None:
        """Send records of another partition to the lane where readers look for their keys.

        A record is written only if it is newer than the one that is there. The lane notes that it now has
        all strays of `source_partition` below the chunk's end, and drops those that it had. `after`: the end
        of the chunk that was sent before; 0: everything that was sent has arrived. Errors as `apply`.
        """
        words = self._command(
            library.STRAYS,
            lane,
            *option_arguments(lane.options, len(lane.key_prefix)),
            b"%d" % source_partition,
            b"%d" % after,
            b"%d" % chunk.end_offset,
        )
        covered, when_full = OffsetRange(after, chunk.end_offset), library.WHEN_FULL[library.STRAYS]
        self._pipeline.send(LaneCall(lane, covered, words, chunk, when_full=when_full))

    def carry(self, lane: LaneTarget, tombstones: Mapping[bytes, bytes]) -> None:
        """Send the tombstones of keys that another generation knows to be deleted, as envelopes.

        A key stays if the lane has a record of it that is newer. Errors as `apply`.
        """
        pairs = [part for key, row in tombstones.items() for part in (lane.key_prefix + key, row)]
        options = option_arguments(lane.options, len(lane.key_prefix))
        words = self._command(library.CARRY, lane, *options, *pairs)
        self._pipeline.send(LaneCall(lane, _NOTHING, words))

    def note_strays(self, source: LaneTarget, given: Mapping[LaneTarget, int]) -> None:
        """Note in a partition's first lane up to which offset each other lane was given its strays.

        Call it after the strays have arrived and before the partition's watermark moves. Errors as `apply`.
        """
        pairs = [part for lane, to in given.items() for part in (lane.name.encode(), b"%d" % to)]
        words = self._command(library.GAVE, source, b"%d" % len(source.key_prefix), *pairs)
        self._pipeline.send(LaneCall(source, _NOTHING, words))

    def is_compared(self, lane: LaneTarget) -> bool:
        """Whether chunks of this lane are compared with what is stored, as far as is known."""
        return not lane.options.in_log_order or self._pipeline.has_met_strays(lane)

    def is_parked(self, lane: LaneTarget) -> bool:
        """Whether calls for this lane do nothing."""
        return self._pipeline.is_parked(lane)

    def flush(self) -> None:
        """Wait until everything that was sent has its reply, or its lane is parked; errors as `apply`."""
        self._pipeline.flush()
        if self._library.options.wait_replicas and self._pipeline.written:
            self._wait_for_replicas()
            self._pipeline.written.clear()

    def abandon(self) -> None:
        """Forget what is in flight: after an error, when the batch will be written again."""
        self._pipeline.abandon()

    def _wait_for_replicas(self) -> None:
        wanted = self._library.options.wait_replicas
        try:
            reached = self._library.count_replicas(self._pipeline.written)
            trouble = f"{reached} of {wanted} replicas have the writes" if reached < wanted else ""
        except StateUnavailable as error:
            trouble = f"can't tell whether {wanted} replicas have the writes: {error}"
        if trouble and not self._is_short_of_replicas:
            self._library.notify(trouble)
        self._is_short_of_replicas = bool(trouble)

    def _command(self, function: bytes, lane: LaneTarget, *arguments: bytes) -> tuple[bytes, ...]:
        return b"FCALL", function, b"1", lane.watermark_key, b"%d" % self._epoch, *arguments
