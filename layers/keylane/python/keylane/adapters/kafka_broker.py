"""What the job asks of the Kafka cluster itself: ids, partition counts, and the offsets that a topic has."""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from keylane.adapters.kafka_errors import UNKNOWN_TOPIC
from keylane.errors import LogUnavailable, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class TopicShape:
    """What a topic is at the moment; `topic_id` is another one once it was deleted and created again."""

    topic_id: str
    partition_count: int


@contextmanager
def translate_kafka_errors(topic: str) -> Iterator[None]:
    """Errors of the admin client become UnknownTopic or LogUnavailable."""
    try:
        yield
    except KafkaException as error:
        code = error.args[0]
        if code.code() in UNKNOWN_TOPIC:
            raise UnknownTopic(topic, "Kafka has no topic of this name") from error
        raise LogUnavailable(f"Kafka did not answer: {code.str()}", 2) from error
    except FutureTimeoutError as error:
        raise LogUnavailable("Kafka did not answer in time", 2) from error


class Broker:
    """Metadata and offsets, by confluent-kafka's admin client. May be used by several threads."""

    def __init__(
        self,
        bootstrap: str,
        options: Mapping[str, str],
        *,
        timeout_s: float = 10.0,
        committed_only: bool = True,
    ) -> None:
        self._options: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "log_level": 3,
            "socket.timeout.ms": 10_000,
            **options,
        }
        self._admin = AdminClient(self._options)
        self._timeout_s = timeout_s
        self._isolation = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED

    def describe(self, topics: Iterable[str]) -> dict[str, TopicShape]:
        """The shapes of those topics that there are. Raises LogUnavailable."""
        futures = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=self._timeout_s)
        shapes = {}
        for topic, future in futures.items():
            with suppress(UnknownTopic), translate_kafka_errors(topic):
                described = future.result(self._timeout_s)
                shapes[topic] = TopicShape(str(described.topic_id), len(described.partitions))
        return shapes

    def oldest_offsets(self, counts: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """The oldest offset that each partition still has. Raises UnknownTopic, LogUnavailable."""
        return self._offsets(counts, OffsetSpec.earliest(), self._isolation)  # type: ignore[no-untyped-call]

    def end_offsets(self, counts: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """The next offset of each partition, as a reader of our isolation level sees it.

        That of committed records alone ends before what an open transaction holds back.
        """
        return self._offsets(counts, OffsetSpec.latest(), self._isolation)  # type: ignore[no-untyped-call]

    def highest_offsets(self, counts: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """The next offset of each partition with all that is open in transactions."""
        spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._offsets(counts, spec, IsolationLevel.READ_UNCOMMITTED)

    def _offsets(
        self, counts: Mapping[str, int], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[tuple[str, int], int]:
        asked = {
            TopicPartition(topic, partition): spec
            for topic, count in counts.items()
            for partition in range(count)
        }
        futures = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=self._timeout_s)
        offsets = {}
        try:
            for place, future in futures.items():
                with translate_kafka_errors(place.topic):
                    offsets[place.topic, place.partition] = future.result(self._timeout_s).offset
        except LogUnavailable:
            # A client asks by the leader epochs that it has, and keeps them for minutes; a broker that was
            # started anew refuses the old ones.
            self._admin = AdminClient(self._options)
            raise
        return offsets
