"""Compares what readers saw with the log. Each fault is a sentence.

Three things bound what a read may return: its answer's watermark, the time as of which the answer claims to
be complete, and what the same reader saw before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.torture.excuses import Excuses
from tests.torture.found import check_order, may_be_unfound
from tests.torture.found import show as show_question
from tests.torture.oracle import is_same, show
from tests.torture.past import check_as_of, check_history
from tests.torture.sources import SERVER, STORE
from tests.torture.stack import slot_of
from tests.torture.views import check_counts, counted
from tests.torture.witness import NO_ANSWER, SLOW_NODE

from keylane.state.lanes import lane_of_key

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator, Sequence

    from tests.torture.faults.world import Trouble
    from tests.torture.found import Question
    from tests.torture.oracle import Acknowledged, KeyLog, Log, Logged
    from tests.torture.reading import Seen
    from tests.torture.stack import TortureStack


_HARMLESS = ("part-readers", "slow-links", "stale-replica", SLOW_NODE, NO_ANSWER)
EXPIRY_MS = 100
"""How far from its time a record may expire."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What observations are compared with: log, times of acknowledgements, the schedule's troubles."""

    log: Log
    acknowledged: Acknowledged
    troubles: list[Trouble]
    stack: TortureStack

    def in_trouble(self, shard: int, began_s: float, ended_s: float) -> bool:
        """Whether a replica that is behind may have answered, or acknowledged writes were lost."""
        return any(trouble.touches(shard, began_s, ended_s) for trouble in self.troubles)

    def has_trouble(self, began_s: float, ended_s: float) -> bool:
        """Whether any shard was in trouble in this time."""
        return any(each.began_s <= ended_s and began_s <= each.ended_s for each in self.troubles)

    def is_harmed(self, began_s: float, ended_s: float) -> bool:
        """Whether any shard may have lost acknowledged writes in this time, or have had others than now."""
        return any(
            each.kind not in _HARMLESS and each.began_s <= ended_s and began_s <= each.ended_s
            for each in self.troubles
        )

    def has_lost_data(self, by_s: float) -> bool:
        """Whether any shard was emptied by then: its lanes begin again."""
        return any(each.lost_data and each.began_s <= by_s for each in self.troubles)

    def has_lost_all(self, by_s: float) -> bool:
        """Whether every shard has lost its data by then: topics begin again."""
        lost = {each.shard for each in self.troubles if each.lost_data and each.began_s <= by_s}
        return len(lost) == self.stack.cluster.shards

    def has_lost(self, shard: int, by_s: float) -> bool:
        """Whether the shard may have lost acknowledged writes; reads from its replica alone lose none."""
        return any(
            trouble.touches(shard, 0, by_s) for trouble in self.troubles if trouble.kind not in _HARMLESS
        )

    def shards_of(self, now: Seen) -> list[int]:
        """The shards of which one has the lane: an answer of the server has no layout."""
        assert now.answer
        layout = now.answer.layout
        stripes = {layout.stripes} if now.source == STORE else self.stack.stripes[now.topic]
        return [self.stack.shard_of(slot_of(replace(layout, stripes=each), now.key)) for each in stripes]

    def next_offsets(self, now: Seen, key_log: KeyLog) -> dict[int, int]:
        """For each partition with records of the key the offset below which the answer has them."""
        assert now.answer
        watermark = now.answer.watermark
        below = {
            partition: self.acknowledged.next_offset(now.topic, partition, watermark.complete_as_of_ms)
            for partition in key_log.records
        }
        return below | {key_log.own_partition: watermark.next_offset}

    def floor(self, now: Seen, key_log: KeyLog) -> Logged | None:
        """The newest record that an answer must contain, by its watermark."""
        below = self.next_offsets(now, key_log)
        due = (key_log.newest_of(partition, next_offset) for partition, next_offset in below.items())
        return max((each for each in due if each is not None), key=key_log.rank, default=None)


def check_seen(seen: list[list[Seen]], facts: Facts) -> Iterator[str]:
    """Check what readers saw while a schedule ran; yields a sentence for each fault."""
    excuses = Excuses.of(facts.troubles, facts.stack)
    for own in seen:
        reader = ReaderCheck(facts)
        for now in own:
            if now.error is None:
                yield from reader.check_any(now)
            elif not excuses.explain(now):
                took_s = now.ended_s - now.began_s
                yield f"{_where(now)}: a read failed after {took_s:.2f} s: {now.error!r}"


@dataclass(slots=True)
class ReaderCheck:
    """What a reader has seen so far. `floors`: the least that each key's later reads must contain."""

    facts: Facts
    lanes: dict[tuple[str, int, int | bytes], Seen] = field(default_factory=dict)
    floors: dict[tuple[str, bytes], tuple[Seen, Logged]] = field(default_factory=dict)
    counts: dict[tuple[str, bytes], Seen] = field(default_factory=dict)
    ends: dict[tuple[str, bytes], Counter[tuple[int | None, int | None]]] = field(default_factory=dict)

    def check_any(self, now: Seen) -> Iterator[str]:
        """Check a read that has not failed."""
        if now.counts is not None:
            yield from self.check_view(now)
        elif now.scan is not None:
            yield from self.check_scan(now)
        else:
            yield from self.check(now)

    def check_view(self, now: Seen) -> Iterator[str]:
        """A view is written later than its topic: it may go back after any trouble of Redis."""
        before = self.counts.get((now.view, now.key))
        self.counts[now.view, now.key] = now
        shards = range(self.facts.stack.cluster.shards)
        if before and any(self.facts.in_trouble(shard, before.began_s, now.ended_s) for shard in shards):
            before = None
        in_the_end = self.ends.get((now.view, now.key))
        if in_the_end is None:
            in_the_end = self.ends[now.view, now.key] = counted(now.view, self.facts.log, now.key)
        for fault in check_counts(now, before, in_the_end):
            yield f"{_where(now)}: {fault}"

    def check_scan(self, now: Seen) -> Iterator[str]:
        """A row is a read of its key. It is there if and only if its record meets the conditions."""
        assert now.scan
        found: list[Logged] = []
        for row in now.scan.rows:
            assert row.answer
            yield from self.check(row)
            record = row.answer.record
            logged = record and self.facts.log.of(row.topic, row.key).at(record.partition, record.offset)
            question = now.scan.question
            if logged is None or not (question.is_met(logged) and question.span.has(row.key)):
                yield f"{_where(row)}: {show_question(question)} has found {logged}"
                return
            found.append(logged)
        for fault in check_order(now.scan, found):
            yield f"{_where(now)}: {fault}"
        for other in now.scan.absent if now.scan.is_whole else ():
            yield from self._check_unfound(other, now.scan.question)

    def _check_unfound(self, now: Seen, question: Question) -> Iterator[str]:
        key_log = self.facts.log.of(now.topic, now.key)
        due = [(self.facts.floor(now, key_log), f"its lane was at {_show_watermark(now)}")]
        before, known = self.floors.get((now.topic, now.key), (now, None))
        if known is not None and not self._in_trouble(self.facts.shards_of(now), before, now):
            due.append((known, f"it was read at {before.ended_s:.3f}, and this at {now.ended_s:.3f}"))
        position = now.waited_for
        if position:
            awaited = key_log.newest_of(position.partition, position.offset + 1)
            due.append((awaited, f"{position} was waited for"))
        there = [(each, why) for each, why in due if each is not None]
        if key_log.shape.is_forgetful or not there:
            return
        floor, why = max(there, key=lambda each: key_log.rank(each[0]))
        if not may_be_unfound(question, key_log, floor, now.ended_ms + EXPIRY_MS):
            asked = show_question(question)
            yield f"{_where(now)}: the log has {show(floor)}, and {asked} has not found it: {why}"

    def check(self, now: Seen) -> Iterator[str]:
        assert now.answer
        shards = self.facts.shards_of(now)
        key_log = self.facts.log.of(now.topic, now.key)
        yield from _check_claim(now, self.facts)
        yield from self._check_lane(now, shards)
        below = self.facts.next_offsets(now, key_log)
        if now.entries is not None or now.as_of_ms is not None:
            yield from _check_past(now, key_log, below)
            return
        floor = self.facts.floor(now, key_log)
        yield from _check_content(now, key_log, floor)
        if now.waited_for is not None:
            yield from _check_waited(now, key_log)
        before, known = self.floors.get((now.topic, now.key), (now, None))
        if known is not None and not self._in_trouble(shards, before, now):
            is_back = self._was_there(now, before)
            yield from _check_not_older(now, key_log, known, "the key went back: it had", is_back=is_back)
            floor = known if floor is None else max(floor, known, key=key_log.rank)
        if (least := _least(now, key_log, floor)) is not None:
            self.floors[now.topic, now.key] = now, least

    def _was_there(self, now: Seen, before: Seen) -> bool:
        """Whether the lane certainly had read the record of an answer when it gave the answer before."""
        assert now.answer
        assert before.answer
        record, claimed_ms = now.answer.record, before.answer.watermark.complete_as_of_ms
        return record is not None and record.offset < self.facts.acknowledged.next_offset(
            now.topic, record.partition, claimed_ms
        )

    def _in_trouble(self, shards: Iterable[int], before: Seen, now: Seen) -> bool:
        return any(self.facts.in_trouble(shard, before.began_s, now.ended_s) for shard in shards)

    def _check_lane(self, now: Seen, shards: Sequence[int]) -> Iterator[str]:
        if not now.is_of_lane:
            return
        assert now.answer
        lane = now.topic, now.answer.partition, _stripe(now)
        before = self.lanes.get(lane)
        self.lanes[lane] = now
        if before is None or not _went_back(before, now):
            return
        # The earlier values of the lane's keys no longer count.
        self.floors = {
            name: earlier
            for name, earlier in self.floors.items()
            if name[0] != now.topic or not _same_lane(earlier[0], now)
        }
        if not self._in_trouble(shards, before, now):
            then = _show_watermark(now)
            yield f"{_where(now)}: the lane went back: {_show_watermark(before)}, then {then}"


def _check_claim(now: Seen, facts: Facts) -> Iterator[str]:
    """The lane has what was acknowledged before the time as of which it says to be complete."""
    assert now.answer
    watermark = now.answer.watermark
    if watermark.complete_as_of_ms > now.ended_ms:
        ahead_ms = watermark.complete_as_of_ms - now.ended_ms
        yield f"{_where(now)}: the answer is complete as of {ahead_ms} ms after it was read"
    due = facts.acknowledged.next_offset(now.topic, now.answer.partition, watermark.complete_as_of_ms)
    if watermark.next_offset < due:
        yield (
            f"{_where(now)}: the lane is at {watermark.next_offset}, and everything below {due} was "
            f"acknowledged before the time as of which it claims to be complete ({_ago(now)})"
        )


def _check_past(now: Seen, key_log: KeyLog, below: dict[int, int]) -> Iterator[str]:
    contained = [
        logged
        for partition, next_offset in below.items()
        for logged in key_log.records.get(partition, ())
        if logged.offset < next_offset
    ]
    check = check_as_of if now.entries is None else check_history
    for fault in check(now, key_log, contained):
        yield f"{_where(now)}: {fault}"


def _check_content(now: Seen, key_log: KeyLog, floor: Logged | None) -> Iterator[str]:
    """A read returns the fold of its lane's log up to its watermark, and possibly newer strays.

    One that is not exact may be newer than its watermark. `floor`: the newest record that it must contain.
    """
    assert now.answer
    record, next_offset = now.answer.record, now.answer.watermark.next_offset
    own = key_log.newest_at(next_offset)
    expected = f"{_where(now)}: below {next_offset} the log has {show(own)}"
    if record is not None:
        logged = key_log.at(record.partition, record.offset)
        if now.exact and record.partition == key_log.own_partition and not is_same(record, own):
            yield f"{expected}, a read returned {show(record)}"
            return
        if logged is None or not is_same(record, logged):
            yield f"{_where(now)}: the log has {show(logged)} there, a read returned {show(record)}"
            return
        if key_log.is_gone(logged, _began_ms(now) - EXPIRY_MS):
            yield f"{_where(now)}: a read returned {show(record)}, whose time was over"
    if floor is not None:
        yield from _check_not_older(now, key_log, floor, f"complete as of {_ago(now)} the log has")


def _check_waited(now: Seen, key_log: KeyLog) -> Iterator[str]:
    """The answer has reached the position that was waited for."""
    assert now.answer
    assert now.waited_for
    position, watermark = now.waited_for, now.answer.watermark
    if position.partition == now.answer.partition and watermark.next_offset <= position.offset:
        yield f"{_where(now)}: the lane is at {watermark.next_offset}, and a read waited for {position}"
    wanted = key_log.newest_of(position.partition, position.offset + 1)
    if wanted is None or key_log.at(position.partition, position.offset) is None:
        yield f"{_where(now)}: the log has no record at {position}, which a write returned"
    else:
        yield from _check_not_older(now, key_log, wanted, "a read waited for")


def _check_not_older(
    now: Seen, key_log: KeyLog, known: Logged, what: str, *, is_back: bool = False
) -> Iterator[str]:
    """The answer contains a record that is known to be there: it has that one or a newer one.

    Where markers do not last, an older stray that is read late may be in the answer, unless it `is_back`.
    """
    assert now.answer
    record = now.answer.record
    own = key_log.newest_at(now.answer.watermark.next_offset)
    has_own_above = own is not None and key_log.rank(own) >= key_log.rank(known)
    if record is None:
        may_be_absent = _is_absent(now, key_log, known) or key_log.stray_tombstone_above(known) is not None
        if own is not None and has_own_above and _is_absent(now, key_log, own):
            may_be_absent = True
        if not now.exact and key_log.may_vanish(
            known, now.answer.watermark.next_offset, now.ended_ms + EXPIRY_MS
        ):
            may_be_absent = True
        if not may_be_absent:
            yield f"{_where(now)}: {what} {show(known)}, a read returned nothing"
        return
    has_tombstone = (
        known.value is None
        or key_log.stray_tombstone_above(known) is not None
        or (own and has_own_above and own.value is None)
    )
    if key_log.shape.is_forgetful and has_tombstone and not is_back:
        return
    logged = key_log.at(record.partition, record.offset)
    if logged is not None and key_log.rank(logged) < key_log.rank(known):
        yield f"{_where(now)}: {what} {show(known)}, a read returned {show(logged)}"


def _is_absent(now: Seen, key_log: KeyLog, record: Logged) -> bool:
    """Whether a read may find nothing where this record is the key's newest."""
    return key_log.is_gone(record, now.ended_ms + EXPIRY_MS)


def _began_ms(now: Seen) -> int:
    return round(now.ended_ms - (now.ended_s - now.began_s) * 1000)


def _least(now: Seen, key_log: KeyLog, floor: Logged | None) -> Logged | None:
    """The least that the lane had for certain when this answer was read. `floor`: known without it.

    An absent key is below a tombstone, which may be a stray that nobody saw.
    """
    assert now.answer
    record = now.answer.record
    if record is not None:
        return key_log.at(record.partition, record.offset) or floor
    if floor is None or _is_absent(now, key_log, floor) or not now.exact:
        return floor
    return key_log.stray_tombstone_above(floor) or floor


def _went_back(before: Seen, now: Seen) -> bool:
    assert before.answer
    assert now.answer
    old, new = before.answer, now.answer
    if new.layout.generation != old.layout.generation:
        return new.layout.generation < old.layout.generation
    return new.watermark.next_offset < old.watermark.next_offset or new.watermark.epoch < old.watermark.epoch


def _stripe(now: Seen) -> int | bytes:
    """What tells lanes of a partition apart. With an answer of the server: the key, so each is a lane."""
    assert now.answer
    return now.key if now.source == SERVER else lane_of_key(now.answer.layout, now.key).stripe


def _same_lane(one: Seen, other: Seen) -> bool:
    """Whether the keys may share a lane."""
    assert one.answer
    assert other.answer
    if one.answer.partition != other.answer.partition:
        return False
    layout = other.answer.layout
    return other.source == SERVER or (
        lane_of_key(layout, one.key).stripe == lane_of_key(layout, other.key).stripe
    )


def _where(now: Seen) -> str:
    how = "" if now.kind == "latest" else f" ({now.kind})"
    how += " of the server" if now.source == SERVER else ""
    return f"reader {now.reader}{how}, {now.topic}/{now.key.decode()}"


def _ago(now: Seen) -> str:
    assert now.answer
    return f"{now.ended_ms - now.answer.watermark.complete_as_of_ms} ms before"


def _show_watermark(seen: Seen) -> str:
    assert seen.answer
    watermark = seen.answer.watermark
    return f"{watermark.next_offset} of epoch {watermark.epoch} at {seen.ended_s:.3f}"
