"""Watches the leaders of partitions: a query reads only from those that its lanes were compared with.

A new leader may lack records that the lanes have, or that Spark's consumers have fetched ahead. So a query
ends at a change of a leader, unless it can follow: see `serving.elections`. The lanes are then opened again
and compared with the log, see `generations.lineage`, and new consumers read on.

Each partition has a leader of its own. Where one does not answer, or can't be followed yet, the others go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from keylane.errors import LeaderChanged, LogUnavailable, Unavailable
from keylane.model.kafka import TopicPartition
from keylane_spark.adapters.kafka_admin import LogEnd
from keylane_spark.adapters.log_watch import LeaderAnswers
from keylane_spark.context import JobContext

Observe = Callable[[], Mapping[TopicPartition, LogEnd]]
Follow = Callable[[Collection[TopicPartition], Observe], Mapping[TopicPartition, int]]
"""Compares lanes with the logs of these partitions' new leaders, and returns the leaders' epochs.

Raises TopicChanged where the lanes are to be opened again, Unavailable, Fenced.
"""

ELECTION_S = 30.0
"""How long a batch waits for a partition that has no leader, or is read again because leaders change."""
_PAUSE_S = 0.1
_FOLLOW_AGAIN_S = 0.25
"""How soon a comparison is tried again that could not be made."""


@dataclass(frozen=True, slots=True)
class AnsweredEnds:
    """`offsets`: the end of each partition whose leader has answered. `away`: the others, each with why."""

    offsets: Mapping[TopicPartition, int]
    away: Mapping[TopicPartition, str]


class Leaders:
    """The leaders of partitions. Thread-safe."""

    def __init__(
        self,
        context: JobContext,
        counts: Mapping[str, int],
        epochs: Mapping[TopicPartition, int],
        follow: Follow | None = None,
    ) -> None:
        """`counts`: partition counts by topic; `epochs`: the known leader epochs, of other topics too."""
        self._watch = context.watch(counts)
        self._clock = context.clock
        self._follow = follow
        self._lock = threading.Lock()
        self.epochs = {source: epoch for source, epoch in epochs.items() if source[0] in counts}
        """Of the leaders that are read from; they change where a new one is followed."""
        self._answered: dict[bool, tuple[LeaderAnswers, AnsweredEnds]] = {}
        self._not_followed: dict[TopicPartition, str] = {}
        self._follow_again_s = 0.0

    def answered_ends(self, *, committed: bool = False) -> AnsweredEnds:
        """The end offsets that leaders give with whom the lanes were compared.

        They are high watermarks, or with `committed` last stable offsets; the same object comes again as long
        as nothing has changed. Raises LeaderChanged for a newer leader that can't be followed, LogUnavailable
        where no broker can be asked.
        """
        with self._lock:
            answers = self._watch.ends(committed=committed)
            known = self._answered.get(committed)
            if known is not None and known[0] is answers and not self._not_followed:
                return known[1]
            answers, away = self._follow_newer(answers, committed=committed)
            ends = {each: end.offset for each, end in answers.ends.items() if each not in away}
            found = AnsweredEnds(ends, away)
            self._answered[committed] = answers, found
            return found

    def end_offsets(self) -> dict[TopicPartition, int]:
        """The end offset of each partition, as of `answered_ends`. Raises LogUnavailable if any is away."""
        found = self.answered_ends()
        if found.away:
            ((topic, partition), why), *_ = found.away.items()
            raise LogUnavailable(f"no leader of partition {partition} of {topic!r} answers: {why}", 2)
        return dict(found.offsets)

    def settle(self) -> None:
        """Wait until no comparison with new leaders is in progress."""
        with self._lock:
            return

    def _follow_newer(
        self, answers: LeaderAnswers, *, committed: bool
    ) -> tuple[LeaderAnswers, dict[TopicPartition, str]]:
        """Follow the new leaders among those that answered; return what is known then, and who is away."""
        while True:
            newer, away = self._compare(answers)
            if not newer:
                self._not_followed = {}
                return answers, away
            follow = self._follow
            if follow is None:
                ((topic, partition), epoch), *_ = newer.items()
                raise LeaderChanged(
                    f"partition {partition} of topic {topic!r} has a new leader, "
                    f"of epoch {epoch} after {self.epochs[topic, partition]}"
                )
            if not self._could_follow(follow, newer):
                return answers, away | self._not_followed
            answers = self._watch.ends(committed=committed)

    def _could_follow(self, follow: Follow, newer: Mapping[TopicPartition, int]) -> bool:
        """Follow these leaders; False where that has to be tried again later."""
        now_s = self._clock.monotonic_s()
        if newer.keys() <= self._not_followed.keys() and now_s < self._follow_again_s:
            return False
        try:
            self.epochs |= follow(newer, lambda: self._observe(newer))
        except Unavailable as error:
            self._not_followed = dict.fromkeys(newer, f"its new leader is not compared yet: {error}")
            self._follow_again_s = now_s + _FOLLOW_AGAIN_S
            return False
        # What was found before may be of the former leaders.
        self._answered.clear()
        return True

    def _observe(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnd]:
        answers = self._watch.ends()
        for topic, partition in partitions:
            if (topic, partition) not in answers.ends:
                why = answers.away.get((topic, partition), "")
                raise LogUnavailable(f"the leader of partition {partition} of {topic!r} is away: {why}", 2)
        return answers.ends

    def _compare(self, answers: LeaderAnswers) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
        """The epochs of leaders that are newer than those that are read from; and who is away."""
        newer, away = {}, dict(answers.away)
        for source, known in self.epochs.items():
            end = answers.ends.get(source)
            epoch = end.leader_epoch if end else None
            if epoch is not None and epoch > known:
                newer[source] = epoch
            if epoch is not None and epoch < known:
                self._watch.doubt()
                away[source] = "a former leader of it has answered"
        return newer, away

    def topics(self) -> object:
        """What is known of the topics: equal to what came before, unless anything of them has changed.

        Raises LogUnavailable.
        """
        return self._watch.topics()

    def close(self) -> None:
        """Close the connections to the leaders."""
        self._watch.close()

    def wait(
        self, planned: Mapping[TopicPartition, int], is_ending: Callable[[], bool]
    ) -> dict[TopicPartition, int]:
        """As `end_offsets`, repeated while no leader has all below `planned`, unless `is_ending`.

        It is called before the first row below these offsets is read: none is then of a leader that the lanes
        were not compared with, or the next call reports a change.
        """
        until_s = self._clock.monotonic_s() + ELECTION_S
        while True:
            try:
                return self._reached(planned)
            except Unavailable:
                if is_ending() or self._clock.monotonic_s() > until_s:
                    raise
                self._clock.pause_s(_PAUSE_S)

    def doubt(self) -> None:
        """Look for the leaders again: a reader has met another one, or none."""
        self._watch.doubt()

    def _reached(self, planned: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        ends = self.end_offsets()
        for (topic, partition), offset in planned.items():
            if ends[topic, partition] < offset:
                # Another broker has planned the batch: one of the two no longer leads.
                self._watch.doubt()
                raise LogUnavailable(f"partition {partition} of {topic!r} ends before {offset}", 2)
        return ends
