"""All records of a topic, lane by lane in the order of their slots, each lane as of one position.

Those positions together are one of the topic's stream of changes. A stray is an exception: it is in another
lane than its partition's, before that partition's watermark is beyond it, and that lane may have been cut
before. So the position of a topic with strays is the one at which its snapshot began: some changes come
twice then, and none is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from keylane.errors import SnapshotOutdated
from keylane.ports import Deadline
from keylane.query.changes import TopicPosition, read_watermarks
from keylane.query.conditions import Asked, FieldQuestion, question_of
from keylane.query.lane_snapshot import SHARE_OF_TIME, LaneCut, LaneRows, LaneSnapshot, Pace, SnapshotTerms
from keylane.query.span import Span
from keylane.query.store import begin_reading, least_offsets
from keylane.query.strays import read_given

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane.model.records import Layout, Record
    from keylane.query.changes import ChangeReader
    from keylane.query.store import Reading, ReadTerms
    from keylane.state.lanes import Lane


class SnapshotScan(NamedTuple):
    """Which records: of keys that begin with `prefix`, and meet the conditions.

    `first_lane`, `last_lane`: the numbers of the lanes that are read, None to the last one. `built`:
    generation and incarnation of the snapshot that goes on there, None for a new one.
    """

    prefix: bytes = b""
    asked: tuple[Asked, ...] = ()
    first_lane: int = 0
    last_lane: int | None = None
    built: tuple[int, int] | None = None


class TopicSnapshot:
    """One read of a whole topic. `begin`: where its state was before that. `lanes`: those with its keys."""

    def __init__(self, reader: ChangeReader, topic: str, scan: SnapshotScan, terms: ReadTerms) -> None:
        """Begin it. What a scan finds must not be older than its watermark: replicas are not asked.

        Raises UnknownTopic, LaneBuilding, StateUnavailable, CorruptState, OutsideScope, SnapshotOutdated, and
        what is raised where Kafka's log can't be opened; BadRequest, NoFields for conditions that are none.
        """
        self._reader = reader
        self._scan = scan
        self._terms = terms
        self._question: FieldQuestion | None = None
        self._cuts: list[LaneCut] = []
        self._store = reader.store.of_primaries
        log = reader.log()
        # Where its stream goes on, others may know the newest layout already.
        self._store.layouts.refresh(topic, Deadline.after_ms(terms.timeout_ms, self._store.clock))
        reading = read_watermarks(self._store, topic, terms.timeout_ms)
        watermarks = reading.watermarks
        watermarks.check_complete(partial=terms.partial)
        self.layout: Layout = watermarks.layout
        self.lanes: list[Lane] = Span.of_prefix(scan.prefix).lanes(self.layout)
        self.begin = TopicPosition(self.layout.incarnation, watermarks.next_offsets)
        if scan.built not in {None, (self.layout.generation, self.layout.incarnation)}:
            raise SnapshotOutdated(topic, "the topic has been built again since it began")
        deadline = Deadline.after_ms(terms.timeout_ms, self._store.clock)
        scope = begin_reading(self._store, topic, deadline).scope
        if scan.asked:
            self._question = question_of(self.layout, scan.asked, None)
            for condition in self._question.conditions if scope is not None else ():
                scope.check_condition(condition.field)  # type: ignore[union-attr]  # it is one, see above
        self._given = SnapshotTerms(
            *(self._store, log, self.layout, terms, self.begin.next_offsets, _ends(reading), scan.prefix),
            *(self._is_wanted, Pace(self._store.clock, SHARE_OF_TIME), scope),
        )

    def parts(self) -> Iterator[LaneRows | LaneCut]:
        """Yield rows and cut of one lane after the other, each part after a few milliseconds of work.

        Raises as `LaneSnapshot.parts`. But after SnapshotOutdated, a lane that was cut stays valid.
        """
        first, last = self._scan.first_lane, self._scan.last_lane
        numbered = list(enumerate(self.lanes))
        for number, lane in numbered[first : None if last is None else last + 1]:
            for part in LaneSnapshot(self._given, number, lane).parts():
                if isinstance(part, LaneCut):
                    self._cuts.append(part)
                yield part

    def end(self) -> TopicPosition | None:
        """Return the position after which a stream goes on; None where not all lanes were read here.

        Raises as `read_watermarks`, and SnapshotOutdated.
        """
        if len(self._cuts) < len(self.lanes):
            return None
        # After the last cut: strays below it have left their mark in the lanes that they are in.
        found = read_watermarks(self._store, self.layout.topic, self._terms.timeout_ms)
        if found.layout.incarnation != self.begin.incarnation:
            raise SnapshotOutdated(self.layout.topic, "the topic has been built again since it began")
        has_strays = any(each.has_strays for each in found.watermarks.by_lane.values())
        if has_strays or found.layout.generation != self.layout.generation:
            return self.begin
        least = least_offsets((cut.lane.partition, cut.watermark.next_offset) for cut in self._cuts)
        return TopicPosition(self.begin.incarnation, {**self.begin.next_offsets, **least})

    def _is_wanted(self, record: Record) -> bool:
        if self._question is None:
            return True
        return self._question.is_met_by(
            record, lambda: self._reader.decoder().decode_or_explain(self.layout, record)
        )


def _ends(reading: Reading) -> dict[Lane, dict[int, int]]:
    """Return how far each lane is to be, as `LaneSnapshot` has it.

    Of strays, it is what the lane was given: a failover may have taken some back, until they are read again.
    """
    known = dict(reading.watermarks.by_lane)
    giving = [lane.partition for lane, watermark in known.items() if watermark.gave_strays]
    given = read_given(reading, giving, known) if giving else {}
    return {lane: given.get(lane, {}) | {lane.partition: each.next_offset} for lane, each in known.items()}
