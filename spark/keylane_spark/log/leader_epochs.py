"""Where the records of a leader epoch end in a partition's log now: OffsetsForLeaderEpoch (KIP-101, KIP-320).

A leader epoch numbers a partition's leaders, and each record's batch carries the one in which it was
written. One request to each leader asks for all its partitions, over connections as the job's tasks have
them: 20 ms for 1,000 partitions. An answer that is not from the present leader is asked for again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from keylane.adapters.kafka.options import Connection
from keylane.errors import LogUnavailable
from keylane.model.kafka import TopicPartition
from keylane.ports import Clock
from keylane_spark.log.broker_session import BrokerSession
from keylane_spark.log.broker_socket import BROKER_ERRORS, check, may_pass, words_of
from keylane_spark.log.fetch_options import portable

_OLDEST = 3  # may be asked by who may describe the topic: before, by brokers alone
_CONSUMER = -1
_UNDEFINED = -1
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The newest epoch in a log that is not above the one asked for, and the offset at which it ends."""

    epoch: int
    offset: int


def epoch_ends(
    connection: Connection,
    epochs: Mapping[TopicPartition, int],
    clock: Clock,
    timeout_s: float = 10.0,
) -> dict[TopicPartition, EpochEnd | None]:
    """For each partition the end of an epoch in its log; None: the log's epochs are all below it.

    An epoch older than all that the log still has ends where the log begins. All partitions are left out if a
    broker cannot be asked (Kafka before 2.3). Raises LogUnavailable.
    """
    found: dict[TopicPartition, EpochEnd | None] = {}
    until_s = clock.monotonic_s() + timeout_s
    while missing := {partition: epoch for partition, epoch in epochs.items() if partition not in found}:
        try:
            with contextlib.closing(BrokerSession(portable(connection), timeout_s)) as session:
                _ask(session, missing, found)
        except kafka_errors.IncompatibleBrokerVersion:
            return {}
        except BROKER_ERRORS as error:
            if not may_pass(error) or clock.monotonic_s() > until_s:
                raise LogUnavailable(
                    f"the ends of leader epochs are not known: {words_of(error)}", 2
                ) from error
            clock.pause_s(_PAUSE_S)
    return found


def _ask(
    session: BrokerSession,
    epochs: Mapping[TopicPartition, int],
    found: dict[TopicPartition, EpochEnd | None],
) -> None:
    """Add what the leaders answer, until the first error. Raises OSError, KafkaError."""
    of_leader = session.by_leader(epochs)
    brokers = [session.broker(node) for node in of_leader]
    for broker, partitions in zip(brokers, of_leader.values(), strict=True):
        broker.send(_request(session, {each: epochs[each] for each in partitions}))
    for broker in brokers:
        for topic in broker.receive().topics:
            for each in topic.partitions:
                check(each.error_code)
                end = EpochEnd(each.leader_epoch, each.end_offset)
                found[topic.topic, each.partition] = None if end.offset == _UNDEFINED else end


def _request(session: BrokerSession, epochs: Mapping[TopicPartition, int]) -> OffsetForLeaderEpochRequest:
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    of_topic: dict[str, list[Any]] = {}
    for (topic, partition), epoch in epochs.items():
        current = session.leader(topic, partition).epoch
        of_topic.setdefault(topic, []).append(
            kind.OffsetForLeaderPartition(
                partition=partition, current_leader_epoch=current, leader_epoch=epoch
            )
        )
    topics = [kind(topic=name, partitions=partitions) for name, partitions in of_topic.items()]
    return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics, min_version=_OLDEST)
