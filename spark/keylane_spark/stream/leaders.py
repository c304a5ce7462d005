"""Watches the leaders of partitions: a query reads only from those that its lanes were compared with.

A new leader may lack records that the lanes have, or that Spark's consumers have fetched ahead. So a query
ends at a change of a leader, unless it can follow: see `serving.elections`. The lanes are then opened again
and compared with the log, see `generations.lineage`, and new consumers read on.

Each partition has a leader of its own. Where one does not answer, or is not followed yet, the others go on:
lanes are compared in a thread of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from keylane.errors import LeaderChanged, LogUnavailable, Unavailable
from keylane.model.kafka import TopicPartition
from keylane_spark.context import JobContext
from keylane_spark.log.kafka_admin import LogEnd
from keylane_spark.log.leader_session import LeaderAnswers

Observe = Callable[[], Mapping[TopicPartition, LogEnd]]
Follow = Callable[[Collection[TopicPartition], Observe], Mapping[TopicPartition, int]]
"""Compares lanes with the logs of these partitions' new leaders, and returns the leaders' epochs.

Raises TopicChanged where the lanes are to be opened again, Unavailable, Fenced.
"""

ELECTION_S = 30.0
"""How long a query bears that leaders are away, or that one says less than what was read."""
_PAUSE_S = 0.1
_FOLLOW_AGAIN_S = 0.25
"""How soon a comparison is tried again that could not be made."""
_CLOSE_S = 30
_NOT_YET = "its new leader is not compared yet"


@dataclass(frozen=True, slots=True)
class AnsweredEnds:
    """`offsets`: the end of each partition whose leader has answered. `away`: the others, each with why."""

    offsets: Mapping[TopicPartition, int]
    away: Mapping[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class _LaneComparison:
    """A comparison in progress, of the lanes of these partitions with the logs of their new leaders."""

    partitions: frozenset[TopicPartition]
    thread: threading.Thread


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
        """What the watch has said, and what that means: while all leaders are followed."""
        self._comparison: _LaneComparison | None = None
        self._not_followed: dict[TopicPartition, str] = {}
        self._follow_again_s = 0.0
        self._failure: Exception | None = None

    def answered_ends(self, *, committed: bool = False) -> AnsweredEnds:
        """The end offsets that leaders give with whom the lanes were compared.

        They are high watermarks, or with `committed` last stable offsets; the same object comes again as long
        as nothing has changed. Raises LeaderChanged for a newer leader that can't be followed, LogUnavailable
        where no broker can be asked.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            answers = self._watch.ends(committed=committed)
            known = self._answered.get(committed)
            if known is not None and known[0] is answers:
                return known[1]
            newer, away = self._compare(answers)
            away |= self._follow_newer(newer)
            ends = {each: end.offset for each, end in answers.ends.items() if each not in away}
            found = AnsweredEnds(ends, away)
            if not newer:
                self._answered[committed] = answers, found
            return found

    def end_offsets(self) -> dict[TopicPartition, int]:
        """The end offset of each partition, as of `answered_ends`. Raises LogUnavailable if any is away."""
        found = self.answered_ends()
        if found.away:
            (source, why), *_ = found.away.items()
            raise _unanswered(source, why)
        return dict(found.offsets)

    def settle(self, partitions: Collection[TopicPartition]) -> None:
        """Wait until none of these is being compared with its new leader, and for no answer of Kafka."""
        comparison = self._comparison  # without the lock, which is held while leaders are asked
        if comparison is not None and not comparison.partitions.isdisjoint(partitions):
            comparison.thread.join()

    def _follow_newer(self, newer: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        """Begin to follow these leaders, of these epochs; return why nobody reads from them yet."""
        if not newer:
            self._not_followed = {}
            return {}
        if self._follow is None:
            ((topic, partition), epoch), *_ = newer.items()
            raise LeaderChanged(
                f"partition {partition} of topic {topic!r} has a new leader, "
                f"of epoch {epoch} after {self.epochs[topic, partition]}"
            )
        is_known = newer.keys() <= self._not_followed.keys()
        if self._comparison is None and not (is_known and self._clock.monotonic_s() < self._follow_again_s):
            partitions = frozenset(newer)
            run = partial(self._follow_them, self._follow, partitions)
            thread = threading.Thread(target=run, name="elections", daemon=True)
            self._comparison = _LaneComparison(partitions, thread)
            thread.start()
        return {each: self._not_followed.get(each, _NOT_YET) for each in newer}

    def _follow_them(self, follow: Follow, partitions: Collection[TopicPartition]) -> None:
        epochs: Mapping[TopicPartition, int] = {}
        why, failure = "", None
        try:
            epochs = follow(partitions, lambda: self._observe(partitions))
        except Unavailable as error:
            why = f"{_NOT_YET}: {error}"
        except Exception as error:  # noqa: BLE001 (who asks next raises it)
            failure = error
        with self._lock:
            self._failure = failure
            self._not_followed = dict.fromkeys(partitions, why) if why else {}
            self._follow_again_s = self._clock.monotonic_s() + _FOLLOW_AGAIN_S
            self.epochs |= epochs
            # What was found before may be of the former leaders.
            self._answered.clear()
            self._comparison = None

    def _observe(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnd]:
        answers = self._watch.ends()
        for source in partitions:
            if source not in answers.ends:
                raise _unanswered(source, answers.away.get(source, ""))
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
        """Wait for the comparison in progress, and close the connections to the leaders."""
        comparison = self._comparison
        if comparison is not None:
            comparison.thread.join(_CLOSE_S)
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


def _unanswered(source: TopicPartition, why: str) -> LogUnavailable:
    topic, partition = source
    return LogUnavailable(f"no leader of partition {partition} of {topic!r} answers: {why}", 2)
