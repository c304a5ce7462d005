"""Every error that Keylane raises on purpose.

    KeylaneError
    ├── BadRequest                  what the caller sent can't be served as it is
    │   ├── NullKey                 a null or empty key has no home
    │   ├── BadField                a field of the body is missing or wrong: nothing was written
    │   │   └── SchemaFault         or is not by its schema, or the schema is none
    │   └── UnsupportedMediaType    a body of a kind that is not taken here
    ├── NotFound
    │   ├── UnknownTopic            no layout, or not a topic of the broker
    │   ├── UnknownPartition        the topic has no partition of this number
    │   ├── UnknownView             no view of this name
    │   ├── OffsetOutOfRange        the partition has no record there: not yet, or no more
    │   └── KeyAbsent               the topic is there, the key isn't
    ├── TooLarge                    a key or value over its limit
    ├── NotKept                     the topic's state does not keep what was asked for
    │   ├── NoIndex                 its keys in order
    │   └── NoHistory               its keys' earlier records
    ├── HistoryTooShort             a time before what a history holds
    ├── NoJsonObject                fields were asked for of a value that has none
    ├── PositionNotReached          a read waited for a position, and it did not come in time
    ├── ValueLeftInKafka            a value over its topic's limit: the state has its position alone
    ├── ValueNotDecodable           a value is not what its topic's value_format says
    ├── IdempotencyKeyReused        the key stands for another request
    ├── RequestInProgress           the request that has the key is not answered yet
    ├── RateLimited                 a limit of a topic or a caller is reached; carries `retry_after_s`
    ├── ValueInvalid                a value that is to be written is not as its topic's schema has it
    ├── Unavailable                 try again later; carries `retry_after_s`
    │   ├── StateUnavailable        Redis did not answer
    │   ├── LaneBuilding            the lane isn't whole yet
    │   ├── StateTooOld             the state is older than the caller takes
    │   ├── SettingsUnavailable     AWS did not tell what a setting refers to
    │   ├── RegistryUnavailable     the Schema Registry did not answer, or with nonsense
    │   ├── QueueUnavailable        the write-ahead log did not take the record
    │   │   └── Unconfirmed         or did not answer in time: the record may be in it
    │   └── LogUnavailable          Kafka did not answer: nothing was written
    │       ├── Unacknowledged      or not in time: the record may have been written
    │       └── ConnectionRejected  a broker and the client did not accept each other
    ├── CorruptState                bytes under a lane's key that aren't ours
    ├── ProduceFailed               Kafka refused the record; carries Kafka's own name for it
    │   └── PartitionMissing        the topic's records must name their partition
    ├── LogRefused                  Kafka refused a request to read; carries Kafka's own name for why
    ├── BadConfig                   `keylane.toml` or the environment is invalid
    │   └── SettingsError           one variable of the environment
    └── WriterError                 the writer's side
        ├── Fenced                  a newer writer has taken over
        ├── TopicChanged            a topic is not as it was when its lanes were opened: open them anew
        └── LaneBehind              a lane expects older records than it was given: repair it
            └── StraysLost          a lane may lack records of other partitions: repair it

Sentences are for people and may go to clients: no secret and no address in them.
"""

from __future__ import annotations

from typing import Self


def called(topic: str) -> str:
    """What people call it: `topic 'flights'`, or `view 'delays'` of a view's name in the state."""
    return f"view {topic[1:]!r}" if topic.startswith("~") else f"topic {topic!r}"


class KeylaneError(Exception):
    """The root: whoever catches this catches all that is ours."""


class BadRequest(KeylaneError):
    """What the caller sent can't be served as it is; `parameter` names the part at fault."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class NullKey(BadRequest):
    """A null or empty key has no home."""

    def __init__(self) -> None:
        super().__init__("the key is empty: a record without a key has no home and can't be read", "key")


class BadField(BadRequest):
    """A field of the body is missing or wrong, so none of its records was written.

    `index`: of the record that has it, None where it is no record's.
    """

    def __init__(self, fault: str, field: str, index: int | None = None) -> None:
        where = field if index is None else f"records[{index}].{field}" if field else f"records[{index}]"
        super().__init__(f"{where} {fault}; no record was written", where)
        self.index = index


class SchemaFault(BadField):
    """A schema of the request is of no use, or a key or value is not by it; `error_code`: REST Proxy's."""

    def __init__(self, fault: str, field: str, error_code: int, index: int | None = None) -> None:
        super().__init__(fault, field, index)
        self.error_code = error_code


class UnsupportedMediaType(BadRequest):
    """The body is of a kind that is not taken here."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "Content-Type")


class NotFound(KeylaneError):
    """What was asked for isn't there."""


class UnknownTopic(NotFound):
    """The topic has no layout (on reads), or the broker does not know it (on writes)."""

    def __init__(self, topic: str, advice: str = "is it in keylane.toml, and does the job run?") -> None:
        super().__init__(f"topic {topic!r} is not known here: {advice}")
        self.topic = topic


class UnknownPartition(NotFound):
    """The topic has no partition of this number."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(f"topic {topic!r} has no partition {partition}")
        self.topic = topic
        self.partition = partition


class UnknownView(NotFound):
    """There is no view of this name."""

    def __init__(self, view: str) -> None:
        super().__init__(f"view {view!r} is not known here: is it in keylane.toml, and does the job run?")


class OffsetOutOfRange(NotFound):
    """The partition holds `low` to `high` - 1: the offset is removed already, or not written yet."""

    parameter = "offset"

    def __init__(self, topic: str, partition: int, offset: int, low: int, high: int) -> None:
        super().__init__(
            f"partition {partition} of topic {topic!r} begins at offset {low}, the next one that it gets is "
            f"{high}: {offset} is outside"
        )
        self.low = low
        self.high = high


class KeyAbsent(NotFound):
    """The topic is there and whole, the key isn't in it (never written, or deleted)."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} holds no record under this key")
        self.topic = topic


class TooLarge(KeylaneError):
    """A key or value over its limit."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"the {what} has {size_bytes} bytes, {limit_bytes} at most go through")
        self.what = what
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class NotKept(KeylaneError):
    """The topic's state does not keep what was asked for; the sentence names the option that would."""


class NoIndex(NotKept):
    """The topic's keys are not kept in order."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} has no index: `index = true` in keylane.toml makes one")
        self.topic = topic


class NoHistory(NotKept):
    """The topic's earlier records are not kept."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"topic {topic!r} keeps no history: `history_count` or `history_age` in keylane.toml makes one"
        )
        self.topic = topic


class HistoryTooShort(KeylaneError):
    """A time before what histories hold: they know all from `since_ms` on."""

    def __init__(self, topic: str, since_ms: int) -> None:
        super().__init__(f"topic {topic!r} holds the history asked for from {since_ms} on (ms since 1970)")
        self.topic = topic
        self.since_ms = since_ms


class NoJsonObject(KeylaneError):
    """Fields were asked for of a value that is no JSON object."""

    parameter = "fields"

    def __init__(self) -> None:
        super().__init__("the value is no JSON object, so it has no fields: ask without them")


class PositionNotReached(KeylaneError):
    """A read waited for a position, and the state did not reach it in time."""

    def __init__(self, wanted: str, next_offset: int, waited_ms: int) -> None:
        super().__init__(
            f"position {wanted} is not in the state after {waited_ms} ms: it holds all below {next_offset}"
        )
        self.wanted = wanted
        self.next_offset = next_offset


class ValueLeftInKafka(KeylaneError):
    """The record's value is over the topic's limit: the state has its position and size alone."""

    def __init__(self, position: str, size_bytes: int) -> None:
        super().__init__(
            f"the value has {size_bytes} bytes, more than the topic's state keeps: "
            f"it is in Kafka alone, at position {position}"
        )
        self.position = position
        self.size_bytes = size_bytes


class ValueNotDecodable(KeylaneError):
    """A value is not what its topic's `value_format` says; `schema_id` is None where it names no schema."""

    def __init__(self, position: str, reason: str, schema_id: int | None = None) -> None:
        schema = "" if schema_id is None else f" by schema {schema_id}"
        super().__init__(f"the value at position {position} can't be decoded{schema}: {reason}")
        self.position = position
        self.reason = reason
        self.schema_id = schema_id


class IdempotencyKeyReused(KeylaneError):
    """The key came with another request before."""

    parameter = "Idempotency-Key"

    def __init__(self) -> None:
        super().__init__("this Idempotency-Key came with another request: each has one of its own")


class RequestInProgress(KeylaneError):
    """The same request, with the same key, is being served."""

    parameter = "Idempotency-Key"
    retry_after_s = 1

    def __init__(self) -> None:
        super().__init__("the request with this Idempotency-Key is being written: ask again for its answer")


class RateLimited(KeylaneError):
    """A limit is reached; `headers` tell of it. For records: those that it refuses are not written.

    `pattern`: of the rule, as the settings have it.
    """

    retriable = True
    field = "topic"

    def __init__(self, message: str, retry_after_s: int, headers: dict[str, str], pattern: str) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.headers = headers
        self.pattern = pattern


class ValueInvalid(KeylaneError):
    """A value that is to be written is not as its topic's schema has it; `path` is a JSON Pointer.

    `schema_id`: of the schema that the value names, None where it names none.
    """

    def __init__(self, topic: str, path: str, reason: str, schema_id: int | None = None) -> None:
        where = f" at {path}" if path else ""
        super().__init__(f"the value is not as the schema of topic {topic!r} has it{where}: {reason}")
        self.path = path
        self.schema_id = schema_id


class Unavailable(KeylaneError):
    """A part is away for now: the same request may do later."""

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StateUnavailable(Unavailable):
    """Redis did not answer, or not in time."""


class LaneBuilding(Unavailable):
    """The lane isn't whole yet: an answer now could be older than what the caller has seen.

    `next_offset` is None when it has not begun, `log_end` 0 when nobody has seen where the log ends.
    """

    def __init__(self, topic: str, partition: int, next_offset: int | None, log_end: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.next_offset = next_offset
        self.log_end = log_end
        progress = "has not begun" if next_offset is None else f"stands at offset {next_offset}"
        if self.percent is not None:
            progress += f" of {log_end} ({self.percent} %)"
        super().__init__(f"partition {partition} of {called(topic)} is being built: it {progress}", 2)

    @property
    def percent(self) -> int | None:
        """How much of the partition is in the state, None where that isn't known."""
        if self.next_offset is None or not self.log_end:
            return None
        return min(100, self.next_offset * 100 // self.log_end)


class StateTooOld(Unavailable):
    """The state is older than the caller takes; `age_ms` is None where it was never whole."""

    def __init__(self, age_ms: int | None, max_age_ms: int) -> None:
        age = "was never whole" if age_ms is None else f"may be {age_ms} ms old"
        super().__init__(f"the state {age}, at most {max_age_ms} ms are asked for")
        self.age_ms = age_ms
        self.max_age_ms = max_age_ms


class RegistryUnavailable(Unavailable):
    """The Schema Registry did not answer in time, or with nonsense: a value's schema is not known."""


class SettingsUnavailable(Unavailable):
    """AWS's store of parameters or secrets did not answer: what a setting refers to is not known."""


class QueueUnavailable(Unavailable):
    """The write-ahead log did not take the record, or can't be read."""


class Unconfirmed(QueueUnavailable):
    """The write-ahead log was given the record and did not answer in time: it may have it, or may not."""

    def __init__(self) -> None:
        super().__init__("the queue did not answer in time: the record may be written later, or may not")
        self.uncertain = True


class LogUnavailable(Unavailable):
    """Kafka did not answer, or not in time."""


class Unacknowledged(LogUnavailable):
    """Kafka was given the record and did not acknowledge it: it may have been written, or may not."""

    def __init__(self) -> None:
        super().__init__("Kafka did not acknowledge the record in time: it may have been written, or may not")


class ConnectionRejected(LogUnavailable):
    """A broker and the client did not accept each other.

    `code`: SASL_AUTHENTICATION_FAILED or SSL_HANDSHAKE_FAILED. `uncertain`: the client had been connected
    before, so a record may have been written.
    """

    def __init__(self, code: str, reason: str, *, uncertain: bool = False) -> None:
        super().__init__(f"{code}: {reason}", 10)
        self.code = code
        self.uncertain = uncertain


class CorruptState(KeylaneError):
    """Bytes under a lane's key that aren't ours; `where` names the key in Redis."""

    def __init__(self, where: str, fault: str) -> None:
        super().__init__(f"the state under {where} can't be read: {fault}")
        self.where = where
        self.fault = fault


class ProduceFailed(KeylaneError):
    """Kafka refused the record; `code` is Kafka's own name, as in MESSAGE_TOO_LARGE."""

    def __init__(self, code: str, message: str, *, retriable: bool) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.retriable = retriable


class PartitionMissing(ProduceFailed):
    """The topic's partitioner is `explicit`: its records must name their partition, and this one does not."""

    def __init__(self, topic: str) -> None:
        what = f"records of topic {topic!r} must name their partition"
        super().__init__("INVALID_REQUEST", what, retriable=False)


class LogRefused(KeylaneError):
    """Kafka refused a request to read; `code` is Kafka's own name, as in TOPIC_AUTHORIZATION_FAILED."""

    def __init__(self, code: str, *, retriable: bool) -> None:
        super().__init__(f"{code}: Kafka refused the request")
        self.code = code
        self.retriable = retriable


class BadConfig(KeylaneError):
    """`keylane.toml` or the environment is invalid; the sentence names line and field."""


class SettingsError(BadConfig):
    """A variable is missing or wrong; `variable` names it. For logs: clients get another sentence."""

    def __init__(self, variable: str, fault: str) -> None:
        super().__init__(f"{variable} {fault}")
        self.variable = variable
        self.fault = fault


class WriterError(KeylaneError):
    """The writer's side of the lane protocol."""


class Fenced(WriterError):
    """A newer writer has taken over: stop, and write nothing more. `lane` may be a whole topic's name."""

    def __init__(self, lane: str, epoch: int, newer_epoch: int) -> None:
        super().__init__(f"lane {lane} is written by epoch {newer_epoch} now, this writer is epoch {epoch}")
        self.lane = lane
        self.epoch = epoch
        self.newer_epoch = newer_epoch

    def by(self, successor: str) -> Self:
        """Give the same error, its sentence saying who took over."""
        self.args = (f"{self.args[0]}: {successor} took over",)
        return self


class TopicChanged(WriterError):
    """A topic is not as it was when its lanes were opened (grown, made anew, back): open them anew."""


class LaneBehind(WriterError):
    """The lane expects `next_offset`, the chunk begins at `given`: what lies between must come first."""

    def __init__(self, lane: str, next_offset: int | None, given: int) -> None:
        super().__init__(f"lane {lane} stands at {next_offset}, it was given records from {given}")
        self.lane = lane
        self.next_offset = next_offset
        self.given = given


class StraysLost(LaneBehind):
    """A failover may have taken records of other partitions from this lane: they come before newer ones."""

    def __init__(self, lane: str) -> None:
        super().__init__(lane, None, 0)
        self.args = (f"lane {lane} has failed over: strays that it had taken may be lost",)
