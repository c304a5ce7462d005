"""Settings and consumer groups of a Kafka cluster, as values."""

from typing import NamedTuple

from keylane.model.kafka import TopicPartition

TOPIC, BROKER = "topic", "broker"


class SettingOwner(NamedTuple):
    """What has settings: a TOPIC by its name, or a BROKER by its number."""

    kind: str
    name: str


class SettingSource(NamedTuple):
    """A value that a setting has in one of its sources, under the name that it has there."""

    name: str
    value: str | None
    source: str


class KafkaSetting(NamedTuple):
    """A setting of a topic or a broker. `source` is Kafka's name; the value of a sensitive one is None."""

    name: str
    value: str | None
    source: str
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[SettingSource, ...] = ()


class GroupMember(NamedTuple):
    """A consumer of a group, and the partitions that it reads. `instance_id`: of a static member."""

    member_id: str
    client_id: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]


class ConsumerGroup(NamedTuple):
    """A consumer group. `coordinator`: the number of its broker; `state`: Kafka's name, in capitals."""

    group_id: str
    state: str
    is_simple: bool
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]


class GroupLag(NamedTuple):
    """How far a group is behind in a partition. `member`: the one that reads it, None while none does."""

    partition: TopicPartition
    committed: int
    end: int
    member: GroupMember | None

    @property
    def lag(self) -> int:
        """How many offsets there are from the committed one to the end."""
        return max(0, self.end - self.committed)
