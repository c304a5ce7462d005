"""What the job asks of the Kafka cluster itself: partition counts, and the offsets that a topic has."""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from keylane.adapters.kafka_errors import UNKNOWN_TOPIC
from keylane.errors import LogUnavailable, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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

    def __init__(self, bootstrap: str, options: Mapping[str, str], *, timeout_s: float = 10.0) -> None:
        self._admin = AdminClient(
            {"bootstrap.servers": bootstrap, "log_level": 3, "socket.timeout.ms": 10_000, **options}
        )
        self._timeout_s = timeout_s

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has. Raises UnknownTopic, LogUnavailable."""
        with translate_kafka_errors(topic):
            described = self._admin.describe_topics(TopicCollection([topic]), request_timeout=self._timeout_s)
            return len(described[topic].result(self._timeout_s).partitions)

    def oldest_offsets(self, counts: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """The oldest offset that each partition still has. Raises UnknownTopic, LogUnavailable."""
        return self._offsets(counts, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def end_offsets(self, counts: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """The next offset of each partition, without what an open transaction holds back."""
        return self._offsets(counts, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def _offsets(self, counts: Mapping[str, int], spec: OffsetSpec) -> dict[tuple[str, int], int]:
        asked = {
            TopicPartition(topic, partition): spec
            for topic, count in counts.items()
            for partition in range(count)
        }
        futures = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._timeout_s
        )
        offsets = {}
        for place, future in futures.items():
            with translate_kafka_errors(place.topic):
                offsets[place.topic, place.partition] = future.result(self._timeout_s).offset
        return offsets
