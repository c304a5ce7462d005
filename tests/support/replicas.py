"""A partition with three replicas, as Kafka elects leaders of it: in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from keylane_spark.generations.lineage import LogCheck
from keylane_spark.log.kafka_admin import LogEnd
from keylane_spark.log.leader_epochs import EpochEnd

SOURCE = ("orders", 0)


@dataclass
class Replica:
    """A partition's log on one broker: each record's number and leader epoch; and where epochs began."""

    records: list[tuple[int, int]] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)

    def lead(self, epoch: int) -> None:
        self.epochs[epoch] = len(self.records)

    def follow(self, leader: Replica) -> None:
        self.records = leader.records.copy()
        self.epochs = {}
        for offset, (_, epoch) in enumerate(self.records):
            self.epochs.setdefault(epoch, offset)

    def end_of(self, epoch: int) -> EpochEnd | None:
        """As Kafka's LeaderEpochFileCache.endOffsetFor."""
        if not self.epochs or epoch > max(self.epochs) or epoch < 0:
            return None
        if epoch == max(self.epochs):
            return EpochEnd(epoch, len(self.records))
        end = min(began for each, began in self.epochs.items() if each > epoch)
        known = [each for each in self.epochs if each <= epoch]
        return EpochEnd(max(known), end) if known else EpochEnd(epoch, end)


class Partition:
    """Three replicas, of which one leads."""

    def __init__(self) -> None:
        self.replicas = [Replica(), Replica(), Replica()]
        self.in_sync = {0, 1, 2}
        self.leader, self.epoch, self.count = 0, 0, 0
        self.log.lead(0)

    @property
    def log(self) -> Replica:
        return self.replicas[self.leader]

    def write(self, count: int) -> None:
        for _ in range(count):
            self.count += 1
            self.log.records.append((self.count, self.epoch))
        for number in self.in_sync - {self.leader}:
            self.replicas[number].follow(self.log)

    def isolate(self) -> None:
        self.in_sync = {self.leader}

    def join(self) -> None:
        self.in_sync = {0, 1, 2}
        self.write(0)

    def elect(self, number: int) -> None:
        """Elect a replica; whoever is not in sync then follows when it joins."""
        if number not in self.in_sync:
            self.in_sync = {number}
        self.leader, self.epoch = number, self.epoch + 1
        self.log.lead(self.epoch)

    def check(self, held: int, lineage) -> LogCheck:
        ends = {SOURCE: LogEnd(len(self.log.records), self.epoch)}
        return LogCheck({SOURCE: held}, {SOURCE: lineage}, ends, self.ask)

    def ask(self, epochs):
        return {partition: self.log.end_of(epoch) for partition, epoch in epochs.items()}
