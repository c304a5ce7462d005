"""What the job asks of the Kafka cluster itself: ids, partition counts, and the offsets that a topic has."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from keylane.adapters.kafka.clients import CODES, RejectionListener, make, not_let_in, renewal, result
from keylane.adapters.kafka.errors import UNKNOWN_TOPIC
from keylane.errors import ConnectionRejected, LogUnavailable, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from keylane.adapters.kafka.options import Connection


@dataclass(frozen=True, slots=True)
class TopicShape:
    """What a topic is at the moment; `topic_id` is another one once it was deleted and created again."""

    topic_id: str
    partition_count: int


@contextmanager
def translate_kafka_errors(topic: str) -> Iterator[None]:
    """Errors of the admin client become UnknownTopic or LogUnavailable, ConnectionRejected among them."""
    try:
        yield
    except KafkaException as error:
        code = error.args[0]
        if code.code() in UNKNOWN_TOPIC:
            raise UnknownTopic(topic, "Kafka has no topic of this name") from error
        if code.code() in CODES:
            raise not_let_in(code) from error
        raise LogUnavailable(f"Kafka did not answer: {code.str()}", 2) from error
    except TimeoutError as error:
        raise LogUnavailable("Kafka did not answer in time", 2) from error


class Broker:
    """Metadata and offsets, by confluent-kafka's admin client. May be used by several threads."""

    def __init__(
        self,
        connection: Connection,
        *,
        timeout_s: float = 10.0,
        committed_only: bool = True,
        renewed: Callable[[], Connection] | None = None,
    ) -> None:
        """`renewed` gives the connection with secrets as they are now, see `renew`. Raises BadConfig."""
        self.connection = connection
        self._renewed = renewed
        self._client = self._made()
        self._timeout_s = timeout_s
        self._isolation = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED

    def renew(self) -> None:
        """Take the secrets as they are now: the job does it where something has failed."""
        if self._renewed is None:
            return
        connection = renewal(self._renewed, self.connection)
        if connection != self.connection:
            self.connection = connection
            self._client = self._made()

    def describe(self, topics: Iterable[str]) -> dict[str, TopicShape]:
        """The shapes of those topics that there are. Raises LogUnavailable."""
        admin, entrance = self._client
        futures = admin.describe_topics(TopicCollection(list(topics)), request_timeout=self._timeout_s)
        shapes = {}
        try:
            for topic, future in futures.items():
                with suppress(UnknownTopic), translate_kafka_errors(topic):
                    described = result(admin, future, self._timeout_s, entrance)
                    shapes[topic] = TopicShape(str(described.topic_id), len(described.partitions))
        except ConnectionRejected:
            self._client = self._made()
            raise
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
        admin, entrance = self._client
        futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=self._timeout_s)
        offsets = {}
        try:
            for place, future in futures.items():
                with translate_kafka_errors(place.topic):
                    found = result(admin, future, self._timeout_s, entrance)
                    offsets[place.topic, place.partition] = found.offset
        except LogUnavailable:
            # A client asks by the leader epochs that it has, and keeps them for minutes; a broker that was
            # started anew refuses the old ones.
            self._client = self._made()
            raise
        return offsets

    def _made(self) -> tuple[AdminClient, RejectionListener]:
        options: dict[str, Any] = {
            "bootstrap.servers": self.connection.bootstrap,
            "log_level": 3,
            "socket.timeout.ms": 10_000,
            **self.connection.client.configuration(),
        }
        security = self.connection.security
        entrance = RejectionListener(security)
        return make(AdminClient, options, security, entrance), entrance
