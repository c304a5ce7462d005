"""A query goes on with new leaders whose logs have all that its lanes hold.

Only the partitions with new leaders are compared; the others are read, and their lanes beaten, meanwhile.
Where lanes hold more than a new log, all are opened again: that finds out what to build again. It needs all
leaders; until they are there, the partitions with new leaders wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from keylane.errors import TopicChanged
from keylane.model.kafka import TopicPartition
from keylane_spark.context import JobContext
from keylane_spark.generations.lineage import LogCheck, last_epochs
from keylane_spark.generations.ownership import Ownership
from keylane_spark.stream.leaders import Observe
from keylane_spark.stream.openings import Opening


@dataclass(frozen=True, slots=True)
class Elections:
    """Follows new leaders for the query that serves this opening, if no other one shares its lineages."""

    context: JobContext
    ownership: Ownership
    opening: Opening

    def follow(self, held: Mapping[TopicPartition, int], observe: Observe) -> dict[TopicPartition, int]:
        """Compare the lanes of these partitions, and put the new leaders on record; returns their epochs.

        `held`: below which offset the lanes may hold records. Raises TopicChanged where the lanes must be
        opened again, LogUnavailable, StateUnavailable, Fenced.
        """
        if self.opening.parked:
            raise self._open_again("there are new leaders, and what parked lanes hold is not known")
        topics = {topic for topic, _ in held}
        records = {topic: record for topic in topics if (record := self.ownership.record(topic))}
        if topics - records.keys():
            raise self._open_again("there are new leaders, and the topics' records are lost")
        lineages = {
            (topic, partition): lineage
            for topic, record in records.items()
            for partition, lineage in enumerate(record.lineages)
        }
        known = {each: lineages.get(each, ()) for each in held}
        check = LogCheck(held, known, observe(), self.context.epoch_ends)
        for topic, why in check.find_truncated().items():
            raise self._open_again(f"topic {topic!r}: {why}")
        extended = check.continued(observe)
        epochs = last_epochs(extended)
        if unknown := held.keys() - epochs.keys():
            raise self._open_again(f"the leaders of {sorted(unknown)} do not say which epoch they are of")
        lineages |= extended
        for topic in records:
            count = sum(name == topic for name, _ in self.opening.positions)
            of_topic = tuple(lineages.get((topic, partition), ()) for partition in range(count))
            self.ownership.note_lineages(topic, of_topic)
        return epochs

    def _open_again(self, why: str) -> TopicChanged:
        """The error after which all lanes are opened again. Raises LogUnavailable while that can't be done.

        It needs the leaders of all partitions: until they are there, these partitions wait, and others go on.
        """
        sources = self.opening.positions.keys() | self.opening.unread
        self.context.broker.oldest_offsets(Counter(topic for topic, _ in sources))
        return TopicChanged(why)
