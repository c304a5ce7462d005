"""What a leader is asked of ranges of offsets, and what its response has: requests and responses, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka import errors as kafka_errors
from kafka.protocol.consumer import FetchRequest

from keylane.errors import LeaderChanged, TopicChanged
from keylane.model.kafka import TopicPartition
from keylane_spark.log.broker_session import PartitionLeader, id_text
from keylane_spark.log.record_batches import AbortedTransaction

_WAIT_MS = 100
_OLDEST, _NEWEST_BY_NAME = 4, 12


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """Offsets [begin, end) of a partition. `leader_epoch`, `topic_id`: what to read from, if known."""

    topic: str
    partition: int
    begin: int
    end: int
    leader_epoch: int | None = None
    topic_id: str | None = None

    @property
    def source(self) -> TopicPartition:
        """The topic and the partition."""
        return self.topic, self.partition

    def __str__(self) -> str:
        return f"partition {self.partition} of topic {self.topic!r}"


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a leader has returned: its record batches, which may begin before the position asked for."""

    data: bytes
    aborted: list[AbortedTransaction]
    log_end: int
    leader_epoch: int


class PartitionFetch(NamedTuple):
    """What a request asks of a partition: to read from a position on, from the leader of this epoch."""

    wanted: PlannedRange
    position: int
    leader: PartitionLeader
    epoch: int


class FetchLimits(NamedTuple):
    """How much a leader returns in all and of each partition; `committed`: without aborted transactions."""

    most_bytes: int
    partition_bytes: int
    committed: bool


def fetch_request(parts: Sequence[PartitionFetch], limits: FetchLimits) -> FetchRequest:
    """A request to the leader of these partitions."""
    kind = FetchRequest.FetchTopic
    topics: dict[str, Any] = {}
    for wanted, position, leader, epoch in parts:
        topic = topics.setdefault(
            wanted.topic, kind(topic=wanted.topic, topic_id=leader.topic_id, partitions=[])
        )
        topic.partitions.append(
            kind.FetchPartition(
                partition=wanted.partition,
                current_leader_epoch=epoch,
                fetch_offset=position,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=limits.partition_bytes,
            )
        )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=_WAIT_MS,
        min_bytes=1,
        max_bytes=limits.most_bytes,
        isolation_level=int(limits.committed),
        session_id=0,
        session_epoch=-1,
        topics=list(topics.values()),
        forgotten_topics_data=[],
        rack_id="",
        min_version=_OLDEST,
        max_version=None if all(_has_id(part.leader) for part in parts) else _NEWEST_BY_NAME,
    )


def answers_of(response: Any, parts: Sequence[PartitionFetch]) -> list[tuple[PartitionFetch, Any]]:
    """What a response has of each partition. It names a topic by its id, or by its name."""
    by_source: dict[tuple[object, int], Any] = {
        (name, answer.partition_index): answer
        for each in response.responses
        for name in (each.topic, each.topic_id)
        for answer in each.partitions
    }
    found = []
    for part in parts:
        answer = by_source.get((part.wanted.topic, part.wanted.partition))
        found.append((part, answer or by_source[part.leader.topic_id, part.wanted.partition]))
    return found


def fetched_of(part: PartitionFetch, response: Any) -> Fetched:
    """What a response has of a partition, which is not an error."""
    aborted = [
        AbortedTransaction(each.producer_id, each.first_offset)
        for each in response.aborted_transactions or ()
    ]
    return Fetched(response.records or b"", aborted, response.high_watermark, part.epoch)


def epoch_to_ask(wanted: PlannedRange, leader: PartitionLeader, known: int | None) -> int:
    """The epoch in which the leader must be; it refuses the request if it is not."""
    if wanted.topic_id and _has_id(leader) and id_text(leader.topic_id) != wanted.topic_id:
        raise TopicChanged(f"topic {wanted.topic!r} was deleted and created again")
    if known is None:
        return leader.epoch
    if leader.epoch > known:
        raise LeaderChanged(f"{wanted} has a new leader, of epoch {leader.epoch} after {known}")
    if leader.epoch < known:
        raise kafka_errors.NotLeaderForPartitionError(f"metadata of epoch {leader.epoch}, before {known}")
    return known


def _has_id(leader: PartitionLeader) -> bool:
    return leader.topic_id is not None and leader.topic_id.int != 0
