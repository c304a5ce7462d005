"""Says in the log which partitions have no leader that answers, and when they have one again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from keylane.model.kafka import TopicPartition
from keylane.ports import Clock

_SAID_AFTER_S = 0.8
"""An election in order is over sooner, and is not worth a line."""
_MOST_NAMED = 20
"""Partitions that a line of the log names; of the others it has the number."""


class AwayLeaders:
    """One line for each topic when leaders go away, and one when all or some of them are back."""

    def __init__(self, clock: Clock, say: Callable[[str], None]) -> None:
        self._clock = clock
        self._say = say
        self._since_s: dict[TopicPartition, float] = {}
        self._said: set[TopicPartition] = set()

    def note(self, away: Mapping[TopicPartition, str]) -> None:
        """Note who is away now, each with the reason."""
        if not away and not self._since_s:
            return
        now_s = self._clock.monotonic_s()
        self._since_s = {each: self._since_s.get(each, now_s) for each in away}
        latest_s = now_s - _SAID_AFTER_S
        new = {each for each, since_s in self._since_s.items() if since_s <= latest_s} - self._said
        for topic, partitions in by_topic(new):
            self._say(
                f"no leader answers for partitions {numbered(partitions)} of topic {topic!r}: their lanes "
                f"wait, and all others go on: {away[topic, partitions[0]]}"
            )
        back = self._said - away.keys()
        for topic, partitions in by_topic(back):
            self._say(f"leaders answer again for partitions {numbered(partitions)} of topic {topic!r}")
        self._said = (self._said | new) - back


def by_topic(partitions: Collection[TopicPartition]) -> Iterable[tuple[str, list[int]]]:
    """Partitions, in order, by their topics."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found.items()


def numbered(partitions: list[int]) -> str:
    """The numbers of partitions, of many the first ones."""
    names = ", ".join(map(str, partitions[:_MOST_NAMED]))
    return f"{names} and {len(partitions) - _MOST_NAMED} more" if len(partitions) > _MOST_NAMED else names
