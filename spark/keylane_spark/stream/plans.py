"""`reader = "direct"`: the job plans its batches by what each leader answers for itself.

Spark's Kafka source asks all leaders in one call: while one of them is away, it plans no batch for anybody.
Here a batch has what the leaders have that answer. The partitions of the others are left for a later batch,
and so are those whose leader goes away while the batch is read.

Spark's query only ticks: it has a source that always has another row, and each batch waits here until there
is something to write. So Spark's thread, its jobs and its stop are those of any query, an idle one asks
nobody but Kafka's leaders, and a stop ends the wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from keylane.errors import LogUnavailable
from keylane.model.kafka import TopicPartition
from keylane.ports import Clock
from keylane_spark.engine.polling import IDLE_AFTER_S
from keylane_spark.stream.leaders import ELECTION_S, AnsweredEnds, Leaders

_BUSY_S = 0.01
"""The pause between two looks at the leaders, until the query is idle. Spark's own is as long."""
_STUCK_S = 0.1
"""The same while all that has come is of partitions that go no further."""
_LEFT_S, _LONGEST_LEFT_S = 0.2, 5.0
"""So long a partition is left out whose range could not be read: others are not to wait again. Each time
that this comes again at once it is twice as long."""


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """`records`: the most of one batch. `idle_s`: the pause between two looks of an idle query.

    `committed`: whether a batch ends before the first open transaction.
    """

    records: int
    idle_s: float
    committed: bool


class BatchPlanner:
    """Plans the batches of one query; only Spark's thread calls it."""

    def __init__(self, leaders: Leaders, limits: PlanLimits, clock: Clock) -> None:
        self._leaders = leaders
        self._limits = limits
        self._clock = clock
        self._last_batch_s = clock.monotonic_s()
        self._silent_since_s: float | None = None
        self._left_until_s: dict[TopicPartition, float] = {}
        self._left_for_s: dict[TopicPartition, float] = {}
        """How long those are left out that no batch has read since."""
        self._nothing_in: AnsweredEnds | None = None
        """The ends in which there was nothing new: not compared again while they are the same."""

    def wait(
        self,
        positions: Callable[[], Mapping[TopicPartition, int]],
        no_further: Callable[[], Collection[TopicPartition]],
        is_ending: Callable[[], bool],
    ) -> dict[TopicPartition, int] | None:
        """The end of each partition in the next batch, as soon as there is something for one; None: it ends.

        `no_further`: partitions that no batch reads. Raises LeaderChanged, LogUnavailable where no leader at
        all has answered for `ELECTION_S`.
        """
        self._nothing_in = None
        while not is_ending():
            answered = self._leaders.answered_ends(committed=self._limits.committed)
            self._check_silence(answered)
            pause_s = self._pause_s()
            if answered is not self._nothing_in or self._left_until_s:
                new = self._new(answered, positions())
                readable = {each: new[each] for each in new.keys() - set(no_further())}
                if readable:
                    self._last_batch_s = self._clock.monotonic_s()
                    begins = {each: begin for each, (begin, _) in readable.items()}
                    ends = {each: end for each, (_, end) in readable.items()}
                    return shared_out(begins, ends, self._limits.records)
                if new:
                    pause_s = max(pause_s, _STUCK_S)
                else:
                    self._nothing_in = answered
            self._clock.pause_s(pause_s)
        return None

    def note_batch(self, read: Collection[TopicPartition], left: Collection[TopicPartition]) -> None:
        """Leave partitions out for a moment of which a batch could not read its range; it has read others."""
        for each in self._left_for_s.keys() & set(read) - set(left):
            del self._left_for_s[each]
        if left:
            now_s, before = self._clock.monotonic_s(), self._left_for_s
            longer = {
                each: min(2 * before[each], _LONGEST_LEFT_S) if each in before else _LEFT_S for each in left
            }
            self._left_for_s |= longer
            self._left_until_s |= {each: now_s + for_s for each, for_s in longer.items()}
            self._leaders.doubt()

    def _new(
        self, answered: AnsweredEnds, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Where a batch would begin and end, of the partitions that have something new."""
        if self._left_until_s:
            now_s = self._clock.monotonic_s()
            self._left_until_s = {each: at for each, at in self._left_until_s.items() if at > now_s}
        offsets, left = answered.offsets, self._left_until_s
        return {
            each: (begin, offsets[each])
            for each, begin in positions.items()
            if offsets.get(each, begin) > begin and each not in left
        }

    def _pause_s(self) -> float:
        is_idle = self._clock.monotonic_s() - self._last_batch_s >= IDLE_AFTER_S
        return self._limits.idle_s if is_idle else _BUSY_S

    def _check_silence(self, answered: AnsweredEnds) -> None:
        """Raise LogUnavailable once nobody has answered for long: secrets may have changed, for one."""
        if answered.offsets or not answered.away:
            self._silent_since_s = None
            return
        now_s = self._clock.monotonic_s()
        self._silent_since_s = now_s if self._silent_since_s is None else self._silent_since_s
        if now_s - self._silent_since_s > ELECTION_S:
            why = next(iter(answered.away.values()))
            raise LogUnavailable(f"no partition has a leader that answers: {why}", 2)


def shared_out(
    begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Ends of a batch of about `most` records: each partition has its share, and one record at least."""
    total = sum(ends[each] - begins[each] for each in ends)
    return {
        each: min(end, begins[each] + max(1, most * (end - begins[each]) // total))
        for each, end in ends.items()
    }
