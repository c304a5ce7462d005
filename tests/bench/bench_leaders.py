"""What a change of leaders costs the lanes of other partitions: the age that a read of them would tell.

Three brokers on this host, a topic of 1,000 partitions in three replicas each, one job, 200 records/s. In
turns: nothing happens; one partition gets another leader; a third of them do at once; a broker is killed,
and starts again. `others` is the greatest age, in ms, of lanes whose partition kept its leader, from the
event on; `all` that of every lane. One lane in sixteen is watched, ten times a second.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import stage
from bench_freshness import writing
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient
from harness import ResultRow, parse, report
from tests.servers.kafka_cluster import own_kafka_cluster
from tests.servers.own import create_topic, eventually
from tests.support import jobs

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import redis_settings
from keylane.ports import Clock, Deadline
from keylane.state import codec
from keylane.state.lanes import lanes_of_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from tests.servers.kafka_cluster import KafkaCluster

    from keylane.state.lanes import Lane

TOPIC = "p"
BROKERS = 3
CLOCK = Clock()
WATCHED = 64
PAUSE_S = 0.1
FRESH_MS = 2_000
WARM_UP_S = 20
"""The first batches of a job take seconds."""
READ_MS = 5_000


@dataclass(slots=True)
class Ages:
    """A thread that looks at the watermarks of lanes: when, and how old each of them was, by partition."""

    state: RedisState
    lanes: Sequence[Lane]
    seen: list[tuple[float, dict[int, float]]] = field(default_factory=list)
    is_over: bool = False

    def run(self) -> None:
        while not self.is_over:
            self.seen.append((time.monotonic(), {lane.partition: self._age_ms(lane) for lane in self.lanes}))
            time.sleep(PAUSE_S)

    def _age_ms(self, lane: Lane) -> float:
        (stored,) = self.state.read(lane.slot, [lane.watermark_key], Deadline.after_ms(READ_MS, CLOCK))
        assert stored
        return CLOCK.now_ms() - codec.decode_watermark(stored).complete_as_of_ms

    def oldest_ms(self, since_s: float, without: Collection[int] = ()) -> float:
        return max(
            age
            for at_s, ages in self.seen
            if at_s >= since_s
            for partition, age in ages.items()
            if partition not in without
        )

    def are_fresh(self) -> bool:
        return bool(self.seen) and max(self.seen[-1][1].values()) < FRESH_MS


@dataclass(slots=True)
class LeaderChanges:
    """The events on one cluster, and the ages of lanes after each of them."""

    kafka: KafkaCluster
    ages: Ages
    seconds: int

    def rows(self) -> Iterator[ResultRow]:
        """Let one event follow the other, once all lanes are fresh again."""
        first = self.leaders()
        victim = self.kafka.brokers[first[0]]
        led = {partition for partition, leader in first.items() if leader == victim.number}
        yield self.row("nothing happens", lambda: None, set())
        yield self.row("a broker is killed", victim.kill, led)
        yield self.row("it starts again", lambda: (victim.start(), victim.wait_ready(120)), set())
        one = [TopicPartition(TOPIC, min(led))]
        yield self.row("one leader is elected", lambda: self.elect(one), {min(led)})
        yield self.row("the others of a third are elected", lambda: self.elect(None), led)

    def row(self, name: str, act: Callable[[], object], moved: set[int]) -> ResultRow:
        eventually(self.ages.are_fresh, 120)
        since_s = time.monotonic()
        act()
        time.sleep(self.seconds)
        figures = {"others": self.ages.oldest_ms(since_s, moved), "all": self.ages.oldest_ms(since_s)}
        print(f"{name}: {figures}", flush=True)
        return ResultRow(name, figures)

    def leaders(self) -> dict[int, int]:
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        found = admin.list_topics(TOPIC, 20).topics[TOPIC].partitions
        return {partition: metadata.leader for partition, metadata in found.items()}

    def elect(self, partitions: list[TopicPartition] | None) -> None:
        """Elect the preferred leaders; None: of all partitions."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        admin.elect_leaders(ElectionType.PREFERRED, partitions).result()


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--partitions", type=int, default=1_000)
    options.add_argument("--rate", type=int, default=200, help="records/s")
    options.add_argument("--seconds", type=int, default=20, help="for which lanes are watched after an event")
    chosen = parse(options, arguments)
    with (
        tempfile.TemporaryDirectory(prefix="keylane-bench-", ignore_cleanup_errors=True) as name,
        stage.cluster(replicas=0, appendonly=False) as nodes,
        own_kafka_cluster(Path(name) / "k", BROKERS) as kafka,
    ):
        create_topic(kafka.bootstrap, TOPIC, chosen.partitions, replication=BROKERS)
        job = jobs.start(kafka.bootstrap, nodes, Path(name), f"[topics.{TOPIC}]\n")
        job.wait_for("keylane: ready")
        layout = jobs.State(nodes, TOPIC).layout
        assert layout
        lanes = lanes_of_topic(layout)[:: max(1, chosen.partitions // WATCHED)]
        cluster = Cluster(redis_settings({"KEYLANE_REDIS_NODES": nodes}))
        ages = Ages(RedisState(cluster), lanes)
        watching = threading.Thread(target=ages.run, daemon=True)
        watching.start()
        try:
            with writing(kafka.bootstrap, TOPIC, chosen.rate):
                time.sleep(WARM_UP_S)
                rows = list(LeaderChanges(kafka, ages, chosen.seconds).rows())
        finally:
            ages.is_over = True
            watching.join(READ_MS / 1000)
            job.end()
    settings = {"partitions": chosen.partitions, "rate": chosen.rate, "brokers": BROKERS}
    report("leaders", "ms", rows, reference=rows[0].name, settings=settings)


if __name__ == "__main__":
    main()
