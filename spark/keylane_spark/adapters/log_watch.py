"""Asks Kafka the same again and again: where logs end, and whether the topics are as they were.

The heartbeat asks twice a second, and each batch once. librdkafka's admin client makes objects for every
partition of every answer, 36 ms of CPU at 1,000 partitions. Here a request is encoded once, and an answer
with the same bytes as the one before is not parsed: what is idle costs what its bytes cost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kafka import errors as kafka_errors
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from keylane.adapters.kafka.options import Connection
from keylane.errors import LogUnavailable
from keylane.model.kafka import TopicPartition
from keylane_spark.adapters.broker_session import BrokerSession, EncodedRequest, check, may_pass, words_of
from keylane_spark.adapters.kafka_admin import LogEnd
from keylane_spark.engine.fetch_options import portable

T = TypeVar("T")
_CONSUMER = -1
_LATEST = -1


@dataclass(slots=True)
class _Question:
    """A request, the broker that is asked, and what it answered last."""

    node: int
    request: EncodedRequest
    answer: memoryview = field(default_factory=lambda: memoryview(b""))


@dataclass(slots=True)
class _Session:
    """What is asked over one session. Its answers are forgotten with it."""

    broker: BrokerSession
    ends: list[_Question] = field(default_factory=list)
    topics: _Question | None = None
    found: dict[TopicPartition, LogEnd] = field(default_factory=dict)


class LogWatch:
    """Watches for one query. Several threads may use it, one at a time.

    `connection` returns how Kafka is reached, with the present secrets. `counts`: the partition counts of the
    topics whose ends are asked for. `topics`: those of which `topics` asks.
    """

    def __init__(
        self,
        connection: Callable[[], Connection],
        counts: Mapping[str, int],
        topics: Collection[str],
        timeout_s: float = 10.0,
    ) -> None:
        self._connection = connection
        self._counts = counts
        self._topics = topics
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._session: _Session | None = None

    def ends(self) -> dict[TopicPartition, LogEnd]:
        """The next offset of each partition, its high watermark, and the epoch of the leader that says so.

        Raises LogUnavailable.
        """
        return self._ask(self._find_ends)

    def topics(self) -> memoryview:
        """What a broker says of the topics: other bytes where anything of them has changed.

        Raises LogUnavailable.
        """
        return self._ask(self._find_topics)

    def close(self) -> None:
        """Close the connections. The next request finds the brokers and the leaders again."""
        with self._lock:
            self._drop()

    def _ask(self, method: Callable[[_Session], T]) -> T:
        """Call a method; a session that was kept may be out of date, and is replaced at once."""
        with self._lock:
            while True:
                is_kept = self._session is not None
                try:
                    if self._session is None:
                        self._session = _Session(BrokerSession(portable(self._connection()), self._timeout_s))
                    return method(self._session)
                except (kafka_errors.KafkaError, OSError) as error:
                    self._drop()
                    if not is_kept or not may_pass(error) or isinstance(error, TimeoutError):
                        raise LogUnavailable(f"Kafka can't be asked: {words_of(error)}", 2) from error
                except BaseException:
                    self._drop()
                    raise

    def _drop(self) -> None:
        if self._session is not None:
            self._session.broker.close()
        self._session = None

    def _find_ends(self, session: _Session) -> dict[TopicPartition, LogEnd]:
        broker = session.broker
        if not session.ends:
            places = ((topic, number) for topic, count in self._counts.items() for number in range(count))
            session.ends = [
                _Question(node, broker.broker(node).encode(_ends_request(broker, partitions)))
                for node, partitions in broker.by_leader(places).items()
            ]
        for asked in session.ends:
            broker.broker(asked.node).send_encoded(asked.request)
        for asked in session.ends:
            answer = broker.broker(asked.node).receive_bytes()
            if answer != asked.answer:
                for each_topic in asked.request.decode(answer).topics:
                    for each in each_topic.partitions:
                        check(each.error_code)
                        epoch = each.leader_epoch if each.leader_epoch >= 0 else None
                        session.found[each_topic.name, each.partition_index] = LogEnd(each.offset, epoch)
                asked.answer = answer
        return session.found.copy()

    def _find_topics(self, session: _Session) -> memoryview:
        """No leader is needed for it: a topic that is gone has none."""
        broker = session.broker
        if session.topics is None:
            node = broker.anyone()
            session.topics = _Question(node, broker.broker(node).encode(_topics_request(self._topics)))
        asked = session.topics
        broker.broker(asked.node).send_encoded(asked.request)
        return broker.broker(asked.node).receive_bytes()


def _ends_request(session: BrokerSession, partitions: Collection[TopicPartition]) -> ListOffsetsRequest:
    kind = ListOffsetsRequest.ListOffsetsTopic
    of_topic: dict[str, list[Any]] = {}
    for topic, partition in partitions:
        epoch = session.leader(topic, partition).epoch
        of_topic.setdefault(topic, []).append(
            kind.ListOffsetsPartition(
                partition_index=partition, current_leader_epoch=epoch, timestamp=_LATEST
            )
        )
    topics = [kind(name=name, partitions=each) for name, each in of_topic.items()]
    return ListOffsetsRequest(replica_id=_CONSUMER, isolation_level=0, topics=topics)


def _topics_request(topics: Collection[str]) -> MetadataRequest:
    kind = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(topics=[kind(name=name) for name in topics], allow_auto_topic_creation=False)
