"""The job's requests to the Kafka cluster: topic ids, partition counts, and the offsets that topics have."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaException

from keylane.adapters.kafka.admin import KafkaAdmin
from keylane.adapters.kafka.admin_session import AdminSession
from keylane.adapters.kafka.options import Connection
from keylane.errors import BadConfig, ConnectionRejected, KeylaneError, LogRefused, LogUnavailable
from keylane.model.kafka import EARLIEST, LATEST, READ_UNCOMMITTED, At, NewTopic, OffsetQuery, TopicPartition
from keylane.ports import Clock, Deadline


@dataclass(frozen=True, slots=True)
class TopicShape:
    """What a topic is at the moment; a topic that is deleted and created again has another `topic_id`."""

    topic_id: str
    partition_count: int


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a partition ended when its leader answered, and the epoch of that leader; None: not known."""

    offset: int
    leader_epoch: int | None


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

    def create_topics(self, topics: Mapping[str, NewTopic]) -> None:
        """Create topics. Raises LogUnavailable, BadConfig with Kafka's reason if it refuses one."""
        try:
            self._admin.request_once(self._deadline(), AdminSession.create_topics, topics)
        except LogRefused as error:
            words = _words_of(error) or str(error)
            raise BadConfig(f"topics {', '.join(topics)} can't be created: {words}") from error

    def is_compacted(self, topic: str) -> bool | None:
        """Whether compaction may remove records of a topic; None: Kafka refuses to say.

        Raises UnknownTopic, LogUnavailable, ConnectionRejected.
        """
        settings = self._settings(topic)
        return None if settings is None else _is_compacted(settings)

    def tombstones_last_ms(self, topic: str) -> float | None:
        """How long compaction leaves tombstones in the log; inf: it removes none; None: Kafka refuses to say.

        Errors as `is_compacted`.
        """
        settings = self._settings(topic)
        if settings is None:
            return None
        return float(settings.get("delete.retention.ms") or 0) if _is_compacted(settings) else math.inf

    def _settings(self, topic: str) -> Mapping[str, str | None] | None:
        try:
            return self._admin.request_once(self._deadline(), AdminSession.topic_settings, topic)
        except ConnectionRejected:
            raise
        except LogRefused:
            return None

    def oldest_offsets(self, counts: Mapping[str, int]) -> dict[TopicPartition, int]:
        """The oldest offset of each partition, for partition counts by topic.

        Raises UnknownTopic, LogUnavailable.
        """
        return _offsets(self._find(counts, EARLIEST))

    def end_offsets(self, counts: Mapping[str, int]) -> dict[TopicPartition, int]:
        """The next offset of each partition, its high watermark: records of open transactions are below it.

        Every record that all in-sync replicas have acknowledged is below it too. The last stable offset may
        not be used for that: acknowledged records lie beyond it while a transaction is open.
        """
        return _offsets(self.ends(counts))

    def ends(self, counts: Mapping[str, int]) -> dict[TopicPartition, LogEnd]:
        """As `end_offsets`, with the epochs of the leaders."""
        return self._find(counts, LATEST)

    def _find(self, counts: Mapping[str, int], at: At) -> dict[TopicPartition, LogEnd]:
        queries = [
            OffsetQuery(topic, partition, at) for topic, count in counts.items() for partition in range(count)
        ]
        with retriable_errors():
            found = self._admin.request_once(
                self._deadline(), AdminSession.list_offsets, queries, READ_UNCOMMITTED
            )
        ends = {}
        for query, each in zip(queries, found, strict=True):
            if each is None:
                # It has no leader: librdkafka may answer so, without an error.
                raise LogUnavailable(f"partition {query.partition} of {query.topic!r} has no leader", 2)
            ends[query.topic, query.partition] = LogEnd(each.offset, each.leader_epoch)
        return ends

    def _deadline(self) -> Deadline:
        return Deadline.after_ms(self._timeout_s * 1000, Clock())


def _is_compacted(settings: Mapping[str, str | None]) -> bool:
    return "compact" in (settings.get("cleanup.policy") or "")


def _offsets(ends: Mapping[TopicPartition, LogEnd]) -> dict[TopicPartition, int]:
    return {partition: end.offset for partition, end in ends.items()}


@contextmanager
def retriable_errors() -> Iterator[None]:
    """Raise what Kafka refuses as LogUnavailable too: the job retries, and logs librdkafka's words."""
    try:
        yield
    except ConnectionRejected:
        raise
    except (LogRefused, LogUnavailable) as error:
        topic = f"topic {error.topic!r}: " if isinstance(error, LogRefused) and error.topic else ""
        words = _words_of(error)
        raise LogUnavailable(f"{topic}{error}: {words}" if words else f"{topic}{error}", 2) from error


def _words_of(error: KeylaneError) -> str:
    """The words of librdkafka, "" for an error without any."""
    cause = error.__cause__
    return str(cause.args[0].str()) if isinstance(cause, KafkaException) else ""
