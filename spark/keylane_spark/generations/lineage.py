"""Which log a state was read from: the leader epochs of each partition, and where each began.

Offsets alone don't distinguish one log from another: after an unclean election, or after a broker lost its
disk, the log ends earlier and grows again with other records at the same offsets. Two logs agree below an
offset if the record before it has the same leader epoch in both: a leader writes each offset of its epoch
once, and after the log that it was elected with.

So a state is stored with its lineage, the last epochs and the offset at which each began. Before a run reads
in a new epoch it checks the lineage against the log, and stores it with that epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from keylane.errors import LogUnavailable
from keylane.model.kafka import TopicPartition
from keylane_spark.lanes.topic_record import Lineage
from keylane_spark.log.kafka_admin import LogEnd
from keylane_spark.log.leader_epochs import EpochEnd

AskEnds = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, EpochEnd | None]]


_MAX_EPOCHS = 16
"""How many epochs are stored: a lane that falls back behind all of them is not compared."""
_MAX_ROUNDS = 8
"""How many epochs are looked up that nobody had observed, because the job was down or far behind."""
_UNKNOWN = -1


def epoch_before(lineage: Lineage, offset: int) -> int | None:
    """The epoch of the record before `offset`; None: not known."""
    epochs = [epoch for epoch, began in lineage if began < offset]
    return epochs[-1] if epochs and epochs[-1] != _UNKNOWN else None


def last_epochs(lineages: Mapping[TopicPartition, Lineage]) -> dict[TopicPartition, int]:
    """The last epoch of each partition, where it is known."""
    return {partition: lineage[-1][0] for partition, lineage in lineages.items() if lineage}


@dataclass(frozen=True, slots=True)
class LogCheck:
    """Compares states with their logs.

    `held`: for each partition the highest offset below which a state holds records of it; `lineages`: where
    they were read. `ends`: the logs' ends and the epochs of their leaders, observed later than `held`. `ask`:
    where an epoch ends in the log of each partition now.
    """

    held: Mapping[TopicPartition, int]
    lineages: Mapping[TopicPartition, Lineage]
    ends: Mapping[TopicPartition, LogEnd]
    ask: AskEnds

    def find_truncated(self) -> dict[str, str]:
        """The topics of which the log is not the one that was read, and a sentence for each.

        Raises LogUnavailable.
        """
        truncated: dict[TopicPartition, str] = {}
        asked: dict[TopicPartition, int] = {}
        for partition, held in self.held.items():
            end, lineage = self.ends[partition], self.lineages.get(partition, ())
            last = lineage[-1][0] if lineage else -1
            leader = last if end.leader_epoch is None else end.leader_epoch
            epoch = epoch_before(lineage, held)
            if leader < last:
                raise LogUnavailable(
                    f"a former leader of partition {partition[1]} of {partition[0]!r} answered", 2
                )
            if held > end.offset:
                truncated[partition] = f"ends at {end.offset}"
            elif epoch is not None and leader > last:
                asked[partition] = epoch
        for partition, found in self.ask(asked).items():
            epoch = asked[partition]
            if found is None or found.epoch != epoch:
                truncated[partition] = f"has no records of leader epoch {epoch}"
            elif found.offset < self.held[partition]:
                truncated[partition] = f"has records of leader epoch {epoch} below {found.offset} only"
        return {
            topic: f"the log of partition {partition} {how}, but the state has it up to "
            f"{self.held[topic, partition]}: it was truncated"
            for (topic, partition), how in truncated.items()
        }

    def continued(
        self, observe: Callable[[], Mapping[TopicPartition, LogEnd]]
    ) -> dict[TopicPartition, Lineage]:
        """`extend`, confirmed by a second observation if any lineage has changed. Errors as of both."""
        extended = self.extend()
        if extended != self.lineages:
            self.confirm(observe())
        return extended

    def extend(self) -> dict[TopicPartition, Lineage]:
        """The lineages with the present leaders' epochs, so that the states may be read further.

        A lineage that can't be continued is empty: the state is not compared until there is another one.
        Raises LogUnavailable.
        """
        extended = {partition: self.lineages.get(partition, ()) for partition in self.held}
        added: dict[TopicPartition, Lineage] = {}
        open_: dict[TopicPartition, int] = {}
        for partition, lineage in extended.items():
            epoch = self.ends[partition].leader_epoch
            if epoch is None or not lineage or lineage[-1][0] != epoch:
                added[partition] = ()
            if epoch is not None and partition in added:
                open_[partition] = epoch
        for _ in range(_MAX_ROUNDS):
            open_ = self._prepend(open_, added)
        for partition, epochs in added.items():
            extended[partition] = _joined(extended[partition], epochs, self.held[partition])
        return extended

    def _prepend(
        self, epochs: Mapping[TopicPartition, int], added: dict[TopicPartition, Lineage]
    ) -> dict[TopicPartition, int]:
        """Add where each epoch began; return the epochs before those that began after what is held."""
        ends = self.ask({partition: epoch - 1 for partition, epoch in epochs.items() if epoch > 0})
        before = {}
        for partition, epoch in epochs.items():
            end = EpochEnd(_UNKNOWN, 0) if epoch == 0 else ends.get(partition)
            if end is None:
                continue
            added[partition] = ((epoch, end.offset), *added[partition])
            held = self.held[partition]
            is_new = epoch_before(self.lineages.get(partition, ()), held) is None
            if end.epoch >= 0 and (end.offset > held or (is_new and end.offset == held > 0)):
                before[partition] = end.epoch
        return before

    def confirm(self, ends: Mapping[TopicPartition, LogEnd]) -> None:
        """Raise LogUnavailable if leaders have changed meanwhile: the answers may be of different logs."""
        changed = [each for each in self.held if ends[each].leader_epoch != self.ends[each].leader_epoch]
        if changed:
            raise LogUnavailable(f"the leaders of {changed} have changed meanwhile", 2)


def _joined(lineage: Lineage, epochs: Lineage, held: int) -> Lineage:
    """The lineage of what is held, continued by `epochs`, which may begin later."""
    if not epochs:
        return ()
    began = epochs[0][1]
    older = [each for each in lineage if each[1] < min(began, held)]
    gap = [(_UNKNOWN, held)] if began > held else []
    return tuple([*older, *gap, *epochs][-_MAX_EPOCHS:])
