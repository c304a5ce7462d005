"""What all leaders and one broker are asked again and again, over one session: requests are encoded once."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from keylane.model.kafka import TopicPartition
from keylane_spark.log.broker_session import BrokerSession
from keylane_spark.log.broker_socket import BROKER_ERRORS, EncodedRequest, check, may_pass, words_of
from keylane_spark.log.kafka_admin import LogEnd

ANSWER_S = 1.0
"""How long a leader may take: it is away after that."""
_CONSUMER = -1
_LATEST = -1


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


class LeaderSession:
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
