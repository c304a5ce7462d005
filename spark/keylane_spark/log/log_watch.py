"""Asks Kafka the same again and again: where logs end, and whether the topics are as they were.

The heartbeat asks twice a second, and a query that plans its batches up to a hundred times. librdkafka's
admin client makes objects for every partition of every answer, 36 ms of CPU at 1,000 partitions. Here a
request is encoded once, and an answer with the same bytes as the one before is not parsed: what is idle costs
what its bytes cost.

Each leader answers for itself. One that does not is waited for once, for a second at most, and then not asked
any more: a thread looks for it, and for new leaders, and what it finds replaces what was asked before.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from keylane.adapters.kafka.options import Connection
from keylane.errors import LogUnavailable
from keylane.model.kafka import TopicPartition
from keylane_spark.log.broker_session import BrokerSession, id_text
from keylane_spark.log.broker_socket import BROKER_ERRORS, EncodedRequest, check, may_pass, words_of
from keylane_spark.log.fetch_options import portable
from keylane_spark.log.kafka_admin import LogEnd, TopicShape

ANSWER_S = 1.0
"""How long a leader may take: it is away after that."""
_LOOK_PAUSES_S = 0.1, 0.5
"""The pauses of the thread that looks for leaders: the first, and the longest."""
_CONSUMER = -1
_LATEST = -1
_MISSING = {
    kafka_errors.UnknownTopicOrPartitionError.errno,
    kafka_errors.UnknownTopicIdError.errno,
}


@dataclass(frozen=True, slots=True)
class LeaderAnswers:
    """`ends`: of the partitions whose leaders have answered. `away`: why nobody has, for the others."""

    ends: Mapping[TopicPartition, LogEnd]
    away: Mapping[TopicPartition, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Question:
    """A request, the broker that is asked for which partitions, and what it answered last."""

    node: int
    request: EncodedRequest
    partitions: Collection[TopicPartition] = ()
    answer: memoryview = field(default_factory=lambda: memoryview(b""))


@dataclass(slots=True)
class _EndQuestions:
    """What leaders are asked at one isolation level, and what they have answered so far."""

    asked: list[_Question]
    found: dict[TopicPartition, LogEnd] = field(default_factory=dict)
    answers: LeaderAnswers | None = None
    """The last ones: they are the same object as long as nothing has changed."""


class _LeaderSession:
    """What is asked over one session. `away`: partitions without a leader that answers, and why.

    A broker in `lost` is not asked any more. `failure`: an error that will not pass, until it is taken.
    """

    def __init__(self, broker: BrokerSession, counts: Mapping[str, int], topics: Collection[str]) -> None:
        self._broker = broker
        self._counts = counts
        self._topics = topics
        self._questions: dict[bool, _EndQuestions] = {}
        self._metadata: dict[int, _Question] = {}
        self._lost: dict[int, str] = {}
        self._speaker = -1
        self.away: dict[TopicPartition, str] = {}
        self.failure: Exception | None = None

    def close(self) -> None:
        """Close all connections."""
        self._broker.close()

    def ends(self, *, committed: bool) -> LeaderAnswers:
        """Ask all leaders that are there. Raises KafkaError, OSError where no broker knows the leaders."""
        if committed not in self._questions:
            self._questions[committed] = _EndQuestions(self._ask_leaders(committed=committed))
        questions = self._questions[committed]
        asked = [each for each in questions.asked if self._is_sent(each)]
        until_s = time.monotonic() + ANSWER_S
        has_changed = False
        for each in asked:
            answer = self._receive(each, max(0.05, until_s - time.monotonic()))
            if answer is not None and answer != each.answer:
                self._note(each.request.decode(answer), questions.found)
                each.answer = answer
                has_changed = True
        before = questions.answers
        if before is None or has_changed or before.away != self.away:
            ends = {each: end for each, end in questions.found.items() if each not in self.away}
            questions.answers = before = LeaderAnswers(ends, self.away.copy())
        return before

    def topics(self, last: memoryview) -> tuple[memoryview, Any]:
        """What a broker says of the topics, as bytes and decoded; None where the bytes are those of `last`.

        No leader is needed for it: a topic that is gone has none.
        """
        failure: Exception = kafka_errors.BrokerNotAvailableError("no broker answers")
        # Always the same one: others may list the brokers in another order.
        for node in sorted(self._broker.anyone(), key=lambda node: node != self._speaker):
            if node in self._lost:
                continue
            try:
                if node not in self._metadata:
                    request = self._broker.broker(node, ANSWER_S).encode(_topics_request(self._topics))
                    self._metadata[node] = _Question(node, request)
                asked = self._metadata[node]
            except BROKER_ERRORS as error:
                failure = self._failed(node, error)
                continue
            if not self._is_sent(asked) or (answer := self._receive(asked, ANSWER_S)) is None:
                failure = ConnectionError(self._lost.get(node, ""))
                continue
            self._speaker = node
            return answer, None if answer == last else asked.request.decode(answer)
        raise failure

    def _ask_leaders(self, *, committed: bool) -> list[_Question]:
        """The questions to the leaders that can be reached."""
        of_node: dict[int, list[TopicPartition]] = {}
        for topic, count in self._counts.items():
            try:
                leaders = self._broker.leaders(topic)
            except kafka_errors.BrokerResponseError as error:
                if not may_pass(error):
                    self.failure = error
                self.away |= {(topic, partition): words_of(error) for partition in range(count)}
                continue
            for partition in range(count):
                leader = leaders.get(partition)
                if leader is None or leader.node < 0:
                    self.away[topic, partition] = "it has no leader"
                else:
                    of_node.setdefault(leader.node, []).append((topic, partition))
        questions = []
        for node, partitions in of_node.items():
            try:
                broker = self._broker.broker(node, ANSWER_S)
                request = broker.encode(_ends_request(self._broker, partitions, committed=committed))
            except BROKER_ERRORS as error:
                self._failed(node, error, partitions)
            else:
                questions.append(_Question(node, request, partitions))
        return questions

    def _is_sent(self, asked: _Question) -> bool:
        """Send a question, if need be over a new connection; False where the broker is lost."""
        if asked.node in self._lost:
            return False
        for is_last in (False, True):
            try:
                self._broker.broker(asked.node, ANSWER_S).send_encoded(asked.request)
            except BROKER_ERRORS as error:
                self._broker.drop(asked.node)
                if is_last:
                    self._failed(asked.node, error)
            else:
                return True
        return False

    def _receive(self, asked: _Question, within_s: float) -> memoryview | None:
        """The answer; None where the broker is lost. A kept connection that has broken is replaced once."""
        broker = self._broker
        try:
            return broker.broker(asked.node, ANSWER_S).receive_bytes(within_s)
        except BROKER_ERRORS as error:
            broker.drop(asked.node)
            if isinstance(error, TimeoutError) or not may_pass(error):
                self._failed(asked.node, error)
                return None
        if not self._is_sent(asked):
            return None
        try:
            return broker.broker(asked.node).receive_bytes(within_s)
        except BROKER_ERRORS as error:
            self._failed(asked.node, error)
        return None

    def _failed(self, node: int, error: Exception, partitions: Collection[TopicPartition] = ()) -> Exception:
        """Note that a broker is away."""
        self._broker.drop(node)
        if isinstance(error, BROKER_ERRORS) and not may_pass(error):
            self.failure = error
        why = self._lost[node] = f"broker {node} does not answer: {words_of(error)}"
        asked = [each for questions in self._questions.values() for each in questions.asked]
        led = [*partitions, *(each for ask in asked if ask.node == node for each in ask.partitions)]
        self.away |= dict.fromkeys(led, why)
        return error

    def _note(self, response: Any, found: dict[TopicPartition, LogEnd]) -> None:
        for topic in response.topics:
            for each in topic.partitions:
                source = topic.name, each.partition_index
                try:
                    check(each.error_code)
                except kafka_errors.KafkaError as error:
                    if not may_pass(error):
                        self.failure = error
                    self.away[source] = words_of(error)
                else:
                    epoch = each.leader_epoch if each.leader_epoch >= 0 else None
                    found[source] = LogEnd(each.offset, epoch)
                    self.away.pop(source, None)


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
        """`timeout_s`: how long finding the brokers may take."""
        self._connection = connection
        self._counts = counts
        self._topics = topics
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._session: _LeaderSession | None = None
        self._closed = threading.Event()
        self._is_looking = False
        self._is_doubted = False
        self._failure: Exception | None = None
        self._levels: set[bool] = set()
        self._seen = memoryview(b"")
        self._shapes: dict[str, TopicShape] = {}

    def ends(self, *, committed: bool = False) -> LeaderAnswers:
        """The next offset of each partition, and the epoch of the leader that says so.

        It is the high watermark, or with `committed` the last stable offset. Raises LogUnavailable where no
        broker can be asked, or for what will not pass.
        """
        with self._lock, self._translated():
            self._levels.add(committed)
            session = self._open()
            found = session.ends(committed=committed)
            self._look_for()
            self._raise_failure(session)
            return found

    def topics(self) -> Mapping[str, TopicShape]:
        """The topics that there are: another object only where anything of them may have changed.

        Raises LogUnavailable where no broker answers.
        """
        with self._lock, self._translated():
            self._seen, response = self._open().topics(self._seen)
            if response is not None:
                self._shapes = _shapes_of(response)
            self._look_for()
            return self._shapes

    def doubt(self) -> None:
        """Look for the leaders again: one that has answered may not lead any more."""
        with self._lock:
            self._is_doubted = True
            self._look_for()

    def close(self) -> None:
        """Close the connections; nothing may be asked any more."""
        self._closed.set()
        with self._lock:
            self._drop()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except BROKER_ERRORS as error:
            raise LogUnavailable(f"Kafka can't be asked: {words_of(error)}", 2) from error
        except BaseException:
            # What was sent has no reader: its answer would be taken for another one.
            self._drop()
            raise

    def _raise_failure(self, session: _LeaderSession) -> None:
        """Raise what a leader, or the thread that looks for them, has met and will not pass."""
        failure = session.failure or self._failure
        session.failure = self._failure = None
        if failure is not None:
            raise failure

    def _open(self) -> _LeaderSession:
        if self._session is None:
            self._session = self._new_session()
        return self._session

    def _new_session(self) -> _LeaderSession:
        broker = BrokerSession(portable(self._connection()), self._timeout_s)
        return _LeaderSession(broker, self._counts, self._topics)

    def _drop(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None

    def _look_for(self) -> None:
        """Start the thread that looks for leaders, if it is needed. The lock is held."""
        is_away = self._session is not None and self._session.away
        if (is_away or self._is_doubted) and not self._is_looking and not self._closed.is_set():
            self._is_looking = True
            threading.Thread(target=self._look, name="leaders", daemon=True).start()

    def _look(self) -> None:
        pause_s, longest_s = _LOOK_PAUSES_S
        while True:
            try:
                self._look_once()
            except Exception as error:  # noqa: BLE001 (who asks next meets what will not pass)
                if not (isinstance(error, BROKER_ERRORS) and may_pass(error)):
                    self._failure = error
            with self._lock:
                session = self._session
                is_over = self._closed.is_set() or session is None
                if is_over or not (self._is_doubted or (session and session.away)):
                    self._is_looking = False
                    return
            self._closed.wait(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    def _look_once(self) -> None:
        """Ask all leaders over a session of its own; it replaces the one in use if more of them answer."""
        found = self._new_session()
        try:
            for committed in sorted(self._levels):
                found.ends(committed=committed)
            with self._lock:
                before = self._session
                if before is None or self._closed.is_set():
                    return
                more = len(before.away) - len(found.away)
                if more > 0 or (self._is_doubted and more == 0):
                    self._session, found = found, before
                    self._is_doubted = False
        finally:
            found.close()


def _ends_request(
    session: BrokerSession, partitions: Collection[TopicPartition], *, committed: bool
) -> ListOffsetsRequest:
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
    return ListOffsetsRequest(replica_id=_CONSUMER, isolation_level=int(committed), topics=topics)


def _topics_request(topics: Collection[str]) -> MetadataRequest:
    kind = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(topics=[kind(name=name) for name in topics], allow_auto_topic_creation=False)


def _shapes_of(response: Any) -> dict[str, TopicShape]:
    """The topics of a response that has them. Raises KafkaError."""
    found = {}
    for topic in response.topics:
        if topic.error_code in _MISSING:
            continue
        check(topic.error_code)
        found[topic.name] = TopicShape(id_text(getattr(topic, "topic_id", None)), len(topic.partitions))
    return found
