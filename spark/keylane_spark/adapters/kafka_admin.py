"""The job's requests to the Kafka cluster: topic ids, partition counts, and the offsets that topics have."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from keylane.adapters.kafka.admin import AdminSession, KafkaAdmin
from keylane.errors import ConnectionRejected, LogRefused, LogUnavailable
from keylane.model.kafka import EARLIEST, LATEST, READ_UNCOMMITTED, OffsetQuery
from keylane.ports import Clock, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from keylane.adapters.kafka.options import Connection
    from keylane.model.kafka import At


@dataclass(frozen=True, slots=True)
class TopicShape:
    """What a topic is at the moment; a topic that is deleted and created again has another `topic_id`."""

    topic_id: str
    partition_count: int


class JobKafka:
    """Topics and offsets of one cluster. Several threads may use it."""

    def __init__(
        self,
        connection: Connection,
        *,
        timeout_s: float = 10.0,
        renewed: Callable[[], Connection] | None = None,
    ) -> None:
        """`timeout_s` bounds one request; `renewed` returns the connection with the current secrets."""
        self._admin = KafkaAdmin(connection, renewed)
        self._timeout_s = timeout_s

    @property
    def connection(self) -> Connection:
        """How to reach the cluster, for Spark's own consumers."""
        return self._admin.settings

    def renew(self) -> None:
        """Re-read the secrets, which may have been rotated; the job calls this after a failure."""
        self._admin.renew()

    def describe(self, topics: Iterable[str]) -> dict[str, TopicShape]:
        """The shapes of the topics that exist. Raises LogUnavailable."""
        with retriable_errors():
            found = self._admin.request_once(self._deadline(), AdminSession.describe_topics, topics)
        return {name: TopicShape(each.topic_id, len(each.partitions)) for name, each in found.items()}

    def oldest_offsets(self, counts: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """The oldest offset of each partition, for partition counts by topic.

        Raises UnknownTopic, LogUnavailable.
        """
        return self._offsets(counts, EARLIEST)

    def end_offsets(self, counts: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """The next offset of each partition, its high watermark: records of open transactions are below it.

        Every record that all in-sync replicas have acknowledged is below it too. The last stable offset may
        not be used for that: acknowledged records lie beyond it while a transaction is open.
        """
        return self._offsets(counts, LATEST)

    def _offsets(self, counts: Mapping[str, int], at: At) -> dict[tuple[str, int], int]:
        queries = [
            OffsetQuery(topic, partition, at) for topic, count in counts.items() for partition in range(count)
        ]
        with retriable_errors():
            found = self._admin.request_once(
                self._deadline(), AdminSession.list_offsets, queries, READ_UNCOMMITTED
            )
        return {
            (query.topic, query.partition): each.offset if each else 0
            for query, each in zip(queries, found, strict=True)
        }

    def _deadline(self) -> Deadline:
        return Deadline.after_ms(self._timeout_s * 1000, Clock())


@contextmanager
def retriable_errors() -> Iterator[None]:
    """Raise what Kafka refuses as LogUnavailable too: the job retries, and logs librdkafka's words."""
    try:
        yield
    except ConnectionRejected:
        raise
    except (LogRefused, LogUnavailable) as error:
        cause = error.__cause__
        words = f": {cause.args[0].str()}" if isinstance(cause, KafkaException) else ""
        raise LogUnavailable(f"{error}{words}", 2) from error
