"""Carries deletions from the generation that serves to the one that is built beside it, before the switch.

Compaction removes a tombstone, and older records of its partition. An older record in another partition
stays, and whoever reads the log from its start finds it. The generation that serves has read the tombstone.

1. It begins once the next generation is nearly complete. Both are written all the while. What the next one
   reads from here on was written a moment ago: compaction leaves its tombstones until they are read.
2. All keys of the generation that serves are looked at, in small steps. A tombstone's marker that the next
   one does not have is sent to it, with its own position. It deletes an older record, and keeps out one that
   is read later.
3. All keys of the next one are looked at. The lane that serves such a key is asked how far it has read, then
   for the key. If it has read the next one's record and has nothing, the key was deleted: a tombstone with
   the record's own position is sent.
4. The library compares, in one step with the epoch: what is newer than a tombstone stays, so a key that was
   set meanwhile does. A full node takes tombstones.
5. If a slot has moved meanwhile, keys may have been passed over: all begins again.

Nobody reads the next generation yet. A crash loses nothing: the next start builds on, and looks again.
"""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Collection, Generator, Iterator
from dataclasses import dataclass

from keylane.model.records import Layout
from keylane.state import codec, lanes
from keylane_spark.context import JobContext
from keylane_spark.generations.deletions import why_not_carried
from keylane_spark.lanes.cluster import Cluster
from keylane_spark.lanes.lane import LaneTarget
from keylane_spark.lanes.lane_reader import LaneReader, Stored
from keylane_spark.lanes.lane_writer import LaneWriter
from keylane_spark.rows.chunks import COMPARED_RECORDS
from keylane_spark.stream.openings import Opening

_REPORT_S = 10.0


def carry_deletions(
    context: JobContext, serving: Opening, building: Opening, mixed: Collection[str]
) -> Generator[None, None, None]:
    """Carry the deletions of all topics that are being built, in small steps.

    `mixed`: topics with keys that have records in several partitions; in the others nothing is to be done.
    Raises StateUnavailable (begin again), Fenced, StraysLost, CorruptState, LogUnavailable.
    """
    incomplete = {topic for topic, _ in building.incomplete}
    with contextlib.ExitStack() as stack:
        # Two, for one reads by the slot map that it began with.
        read, written = (stack.enter_context(contextlib.closing(Cluster(context.redis))) for _ in range(2))
        writer = building.writer.lanes(written, context.clock, context.say, building.parked)
        for topic, built in building.writer.layouts.items():
            served = serving.writer.layouts[topic]
            if topic not in mixed or why_not_carried(served, built):
                continue
            # Retention removes tombstones too.
            if context.broker.tombstones_last_ms(topic) == math.inf and topic not in incomplete:
                continue
            carrier = DeletionCarrier(LaneReader(read, context.clock), writer, served, built)
            began_s = said_s = context.clock.monotonic_s()
            for _ in carrier.steps():
                now_s = context.clock.monotonic_s()
                if now_s - said_s > _REPORT_S:
                    said_s = now_s
                    context.say(f"topic {topic!r}: looks for deletions, {carrier.looked_at:,} keys so far")
                yield
            context.say(
                f"topic {topic!r}: generation {built.generation} gets {carrier.carried:,} deletions of "
                f"generation {served.generation}, {carrier.looked_at:,} keys were looked at in "
                f"{context.clock.monotonic_s() - began_s:.1f} s"
            )


@dataclass(slots=True)
class DeletionCarrier:
    """Carries one topic's deletions from the generation `served` to `built`.

    `looked_at`: keys of both generations so far; `carried`: tombstones that were sent.
    """

    reader: LaneReader
    writer: LaneWriter
    served: Layout
    built: Layout
    looked_at: int = 0
    carried: int = 0

    def steps(self) -> Iterator[None]:
        """Do it in small steps. Errors as `carry_deletions`."""
        for keys in self.reader.keys(self.served):
            self._carry(self._markers(keys))
            self.looked_at += len(keys)
            yield
        for keys in self.reader.keys(self.built):
            self._carry(self._deleted(keys))
            self.looked_at += len(keys)
            yield

    def _markers(self, keys: list[bytes]) -> dict[bytes, Stored]:
        """The markers that serve, and that the built generation does not have."""
        served = dict(zip(keys, self.reader.stored(self.served, keys), strict=True))
        marked = {key: each for key, each in served.items() if each.is_marker}
        built = self.reader.stored(self.built, marked)
        return {
            key: each
            for (key, each), known in zip(marked.items(), built, strict=True)
            if not (known.is_marker and known.record == each.record)
        }

    def _deleted(self, keys: list[bytes]) -> dict[bytes, Stored]:
        """The records of the built generation whose keys are deleted where they are served."""
        built = dict(zip(keys, self.reader.stored(self.built, keys), strict=True))
        live = {key: each for key, each in built.items() if each.record and not each.record.is_tombstone}
        served = self.reader.stored(self.served, live)
        lacking = {
            key: each.record.position
            for (key, each), other in zip(live.items(), served, strict=True)
            if not other.head and each.record
        }
        return {key: live[key] for key in self.reader.absent(self.served, lacking)}

    def _carry(self, found: dict[bytes, Stored]) -> None:
        tombstones = defaultdict[lanes.Lane, dict[bytes, bytes]](dict)
        for key, each in found.items():
            lane = lanes.lane_of_key(self.built, key)
            # An envelope that is cut off: the library takes it for none.
            with contextlib.suppress(codec.CodecError):
                row = codec.tombstone_of(each.head, each.lane.partition, lane.partition)
                tombstones[lane][key] = row
        for lane, rows in tombstones.items():
            target = LaneTarget.of(self.built, lane.partition, lane.stripe)
            pairs = [*rows.items()]
            for first in range(0, len(pairs), COMPARED_RECORDS):
                self.writer.carry(target, dict(pairs[first : first + COMPARED_RECORDS]))
        self.writer.flush()
        self.carried += len(found)
