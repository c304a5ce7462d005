"""A Kafka and a Redis Cluster that the stack did not start: reached with the settings of the environment."""

from __future__ import annotations

import logging
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane.adapters.aws import references
from keylane.adapters.kafka.admin import KafkaAdmin, KafkaMetadata
from keylane.adapters.kafka.reader import KafkaReader
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.eviction import eviction_policies
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import ExploreSettings, redis_settings
from keylane.errors import LogRefused, ask_meant
from keylane.explore.health import check_health
from keylane.explore.log import find_ends, read_records
from keylane.metrics.meter import NO_METER
from keylane.model.clusters import DEFAULT
from keylane.model.kafka import EARLIEST, READ_COMMITTED, KafkaTopic, LogRange, LogRecord
from keylane.ports import Clock, Deadline
from keylane.routing import SLOTS
from keylane_cli.survey.connection_faults import find_kafka_fault, find_redis_fault
from keylane_cli.survey.sample import TopicSample
from keylane_local.env_file import KAFKA, REDIS
from keylane_local.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PARTITIONS = 20
_RECORDS, _BYTES = 200, 1 << 20
"""The records that are looked at: these of each of the first partitions."""
_TIMEOUT_MS = 10_000
_VARIABLES = {"kafka": KAFKA, "redis": REDIS}


class PartUnreachable(StackError):
    """Kafka or Redis does not answer."""

    exit_code = 5


class TopicRefused(StackError):
    """Kafka has the topic, and does not let this user read it."""

    def __init__(self, topic: str, code: str) -> None:
        super().__init__(f"Kafka does not let this user read topic {topic!r}: {code}")


@dataclass(frozen=True, slots=True)
class Survey:
    """Clients of what was reached; `state` is None without a Redis. `topics`: Kafka's partition counts."""

    metadata: KafkaMetadata
    reader: KafkaReader
    state: RedisState | None
    clock: Clock
    topics: Mapping[str, int]

    def find_shards(self) -> list[int]:
        """Return the number of the shard that has each slot, [] without a Redis."""
        if self.state is None:
            return []
        hosts = self.state.hosts(range(SLOTS), _deadline(self.clock))
        numbers = {host: number for number, host in enumerate(dict.fromkeys(hosts))}
        return [numbers[host] for host in hosts]

    def find_topic(self, name: str) -> KafkaTopic:
        """Return Kafka's description of a topic. Raises UnknownTopic."""
        return self.metadata.topic(name, _deadline(self.clock))

    def first_records(self, topic: KafkaTopic, partitions: int) -> Iterator[tuple[int, LogRecord]]:
        """Yield the first records of the first partitions, each with its partition."""
        for partition in topic.partitions[:partitions]:
            wanted = LogRange(topic.name, partition.number, 0, 0, _RECORDS, READ_COMMITTED)
            page = read_records(self.metadata, self.reader, wanted, _BYTES, EARLIEST, _deadline(self.clock))
            yield from ((partition.number, record) for record in page.batch.records)

    def sample(self, name: str, partitions: int = PARTITIONS, *, counts: bool = False) -> TopicSample:
        """Return the first records of a topic; `counts`: and how many it has.

        Raises UnknownTopic, TopicRefused.
        """
        try:
            topic = self.find_topic(name)
            count = self._count_records(topic) if counts else 0
            return TopicSample(topic, list(self.first_records(topic, partitions)), count)
        except LogRefused as error:
            raise TopicRefused(name, error.code) from error

    def describe_missing(self, wanted: Iterable[str]) -> list[str]:
        """Return a sentence for each wanted topic that Kafka lacks, or does not show this user."""
        return [self._describe_missing(name) for name in sorted(set(wanted) - self.topics.keys())]

    def _describe_missing(self, name: str) -> str:
        try:
            self.metadata.describe([name], _deadline(self.clock))
        except LogRefused as error:
            # Kafka says this of each topic that a user may not describe, whether it exists or not.
            return f"Kafka does not let this user describe topic {name!r}: {error.code}"
        return f"Kafka has no topic {name!r}{ask_meant(name, self.topics, quoted=True)}"

    def _count_records(self, topic: KafkaTopic) -> int:
        """Return how many records a topic has at most."""
        ends = (
            find_ends(self.reader, topic, partition.number, _deadline(self.clock))
            for partition in topic.partitions
        )
        return sum(high - low for low, high in ends)


@contextmanager
def reach(environment: Mapping[str, str], options: Mapping[str, str] = _VARIABLES) -> Iterator[Survey]:
    """Give what can be known of Kafka, and of Redis if KEYLANE_REDIS_NODES is set, once both have answered.

    `options` names, by part, where its address came from. Raises PartUnreachable, KeylaneError.
    """
    # Kafka's client logs each attempt to connect. The error that is raised says it once.
    logging.getLogger("keylane").addHandler(logging.NullHandler())
    complete = references.resolved(environment)
    settings = ExploreSettings.from_environment(complete)
    clock = Clock()
    with ExitStack() as opened:
        if why := find_kafka_fault(settings.clusters.default, options["kafka"], _deadline(clock)):
            raise PartUnreachable(f"kafka: {why}")
        admin = KafkaAdmin(settings.clusters.default)
        opened.callback(admin.close)
        state = None
        if settings.has_redis:
            of_redis = redis_settings(complete)
            if why := find_redis_fault(of_redis, options["redis"]):
                raise PartUnreachable(f"redis: {why}")
            cluster = Cluster(of_redis, NO_METER)
            opened.callback(cluster.close)
            state = RedisState(cluster)
        metadata = KafkaMetadata(admin)
        for part, health in check_health({DEFAULT: metadata}, state, clock, _TIMEOUT_MS, _TIMEOUT_MS).items():
            if health.why:
                raise PartUnreachable(f"{part}: {health.why}")
        reader = KafkaReader(admin)
        opened.callback(reader.close)
        yield Survey(metadata, reader, state, clock, metadata.topics(_deadline(clock)))


def find_topics(environment: Mapping[str, str], wanted: Iterable[str]) -> tuple[Mapping[str, int], list[str]]:
    """Return the partition counts of Kafka's topics, and what `describe_missing` says of those wanted."""
    with reach(environment) as survey:
        return survey.topics, survey.describe_missing(wanted)


def find_eviction_policies(environment: Mapping[str, str]) -> set[str]:
    """Return the policies of the nodes of the Redis Cluster, whose slots are all served.

    Raises PartUnreachable, KeylaneError: for a slot that no node serves, too.
    """
    settings = redis_settings(references.resolved(environment))
    if why := find_redis_fault(settings, REDIS):
        raise PartUnreachable(why)
    with closing(Cluster(settings, NO_METER)) as cluster:
        RedisState(cluster).hosts(range(SLOTS), _deadline(Clock()))
        return set(eviction_policies(cluster, Clock(), with_replicas=True).values())


def _deadline(clock: Clock) -> Deadline:
    return Deadline.after_ms(_TIMEOUT_MS, clock)
