"""Every error that Keylane raises deliberately: each says itself what it is.

    KeylaneError
    ├── BadRequest
    │   ├── NullKey
    │   ├── BadField
    │   │   ├── BadValue
    │   │   ├── SchemaFault
    │   │   └── BatchRefused
    │   ├── RecordRejected
    │   │   └── RecordMalformed
    │   ├── UnsupportedMediaType
    │   └── UnsupportedEncoding
    ├── NotAcceptable
    ├── NotStreamed
    ├── PreconditionFailed
    ├── NotFound
    │   ├── UnknownTopic
    │   ├── UnknownPartition
    │   ├── UnknownView
    │   ├── ViewNotOpened
    │   ├── UnknownCluster
    │   ├── NotInKafka
    │   ├── OffsetOutOfRange
    │   └── KeyAbsent
    ├── ForeignOrigin
    ├── TopicNotServed
    ├── OutsideScope
    ├── ScopeTooWide
    ├── TooLarge
    ├── NotKept
    │   ├── NoIndex
    │   ├── NoHistory
    │   └── NoFields
    ├── HistoryTooShort
    ├── NoJsonObject
    ├── PositionNotReached
    ├── SnapshotOutdated
    ├── ValueLeftInKafka
    ├── ValueNotDecodable
    ├── IdempotencyKeyReused
    ├── RequestInProgress
    ├── RateLimited
    ├── ValueInvalid
    │   └── ValueUnreadable
    ├── KeyUnreadable
    ├── Unavailable
    │   ├── StateUnavailable
    │   ├── LaneBuilding
    │   ├── StateTooOld
    │   ├── SettingsUnavailable
    │   ├── IssuerUnavailable
    │   ├── RegistryUnavailable
    │   ├── QueueUnavailable
    │   │   └── Unconfirmed
    │   └── LogUnavailable
    │       ├── Unacknowledged
    │       └── ConnectionRejected
    ├── CorruptState
    ├── ProduceFailed
    │   └── PartitionMissing
    ├── Superseded
    ├── LogRefused
    ├── BadConfig
    │   └── SettingsError
    └── WriterError
        ├── Fenced
        ├── EngineEnded
        ├── TopicChanged
        │   └── LeaderChanged
        └── LaneBehind
            └── StraysLost

Clients may see the messages: they contain no secret and no address.
"""

from collections.abc import Iterable
from types import MappingProxyType
from typing import Self


def called(topic: str) -> str:
    """Return what people call it: `topic 'flights'`, or `view 'delays'` for a view's name in the state."""
    return f"view {topic[1:]!r}" if topic.startswith("~") else f"topic {topic!r}"


def ask_meant(given: str, known: Iterable[str], *, quoted: bool = False) -> str:
    """Return the end of a sentence about an unknown name: `: did you mean flights?`, "" if none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 (for the few who make a mistake)

    near = get_close_matches(given, sorted(known), 1)
    return f": did you mean {repr(near[0]) if quoted else near[0]}?" if near else ""


class KeylaneError(Exception):
    """The root of all errors that Keylane raises."""


class BadRequest(KeylaneError):
    """The request is invalid; `parameter` names the part at fault."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class NullKey(BadRequest):
    """A null or empty key belongs to no lane."""

    def __init__(self) -> None:
        super().__init__(
            "the key is empty: a record without a key belongs to no lane and cannot be read", "key"
        )


class BadField(BadRequest):
    """A field of the body is missing or invalid, so no record of the request was written.

    `index`: the record's index in the request, None if the field belongs to no record.
    """

    def __init__(self, fault: str, field: str, index: int | None = None) -> None:
        where = field if index is None else f"records[{index}].{field}" if field else f"records[{index}]"
        super().__init__(f"{where} {fault}; no record was written", where)
        self.index = index


class BadValue(BadField):
    """A field's value has another type than the field, or can't be decoded."""


class SchemaFault(BadField):
    """A schema is invalid, or a key or value does not match it; `error_code` is REST Proxy's."""

    def __init__(self, fault: str, field: str, error_code: int, index: int | None = None) -> None:
        super().__init__(fault, field, index)
        self.error_code = error_code


class RecordRejected(BadRequest):
    """One record of a stream is invalid; `error_code` is REST Proxy's."""

    def __init__(self, message: str, error_code: int = 400) -> None:
        super().__init__(message, "body")
        self.error_code = error_code


class RecordMalformed(RecordRejected):
    """A record of a stream does not have the form of one: a batch with it is refused as a whole."""


class BatchRefused(BadField):
    """A batch of records is refused as a whole for its entries' ids or their number."""

    error_code = 42208


class UnsupportedMediaType(BadRequest):
    """The body's media type is not supported."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "Content-Type")


class UnsupportedEncoding(BadRequest):
    """The body's content coding is not supported; `headers` name those that are."""

    headers = MappingProxyType({"Accept-Encoding": "gzip"})

    def __init__(self, coding: str) -> None:
        super().__init__(
            f"the body's Content-Encoding is {coding[:50]!r}: gzip is supported, and none at all",
            "Content-Encoding",
        )


class NotAcceptable(KeylaneError):
    """What the request accepts is not what there is; `media_types` name that."""

    parameter = "Accept"

    def __init__(self, accept: str, media_types: str) -> None:
        super().__init__(f"the request accepts {accept[:100]!r}, the answer is {media_types}")


class NotStreamed(KeylaneError):
    """A function answers once and ends, so it can't stream; `instead` says what to request."""

    def __init__(self, instead: str) -> None:
        super().__init__(f"`keylane serve` streams, and this is a function: {instead}")


class PreconditionFailed(KeylaneError):
    """The record is not one that the request's condition expects; `parameter` is the condition's header."""

    def __init__(self, header: str, found: str) -> None:
        super().__init__(f"{header} is not met: {found}")
        self.parameter = header


class NotFound(KeylaneError):
    """The requested resource does not exist."""


class UnknownTopic(NotFound):
    """The topic has no layout (on reads), or the broker does not know it (on writes)."""

    def __init__(self, topic: str, advice: str = "is it in keylane.toml, and is the job running?") -> None:
        super().__init__(f"topic {topic!r} is unknown: {advice}")
        self.topic = topic


class UnknownPartition(NotFound):
    """The topic has no partition of this number."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(f"topic {topic!r} has no partition {partition}")
        self.topic = topic
        self.partition = partition


class UnknownView(NotFound):
    """There is no view with this name."""

    def __init__(self, view: str) -> None:
        super().__init__(f"view {view!r} is unknown: is it in keylane.toml, and is the job running?")


class ViewNotOpened(NotFound):
    """The view is one of the job's, which could never open it: there are no windows."""

    def __init__(self, view: str, reason: str) -> None:
        super().__init__(f"view {view!r} was never opened: {reason}")


class UnknownCluster(NotFound):
    """No Kafka cluster of the service has this id."""

    def __init__(self, cluster: str) -> None:
        super().__init__(f"cluster {cluster[:100]!r} is unknown: `/clusters` lists the ids")


class NotInKafka(NotFound):
    """The Kafka cluster has no broker, setting or consumer group of this name."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(f"Kafka has no {what} {name[:100]!r}")


class ForeignOrigin(KeylaneError):
    """A page of another site sends the request from a browser; `origin`: the site."""

    parameter = "Origin"

    def __init__(self, origin: str) -> None:
        super().__init__(
            f"a page of {origin[:100]!r} sends the request: it is neither of the host that is asked, nor of"
            " KEYLANE_CORS_ORIGIN"
        )


class TopicNotServed(KeylaneError):
    """The deployment does not serve this topic; `use`: "read" or "written"."""

    def __init__(self, topic: str, use: str) -> None:
        super().__init__(
            f"topic {topic!r} can't be {use} here: the setting KEYLANE_TOPICS does not include it"
        )
        self.topic = topic


class OutsideScope(KeylaneError):
    """The rules of the access policy that apply to the caller do not permit this; it names no row."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class ScopeTooWide(KeylaneError):
    """To find the rows that the caller may see takes longer than one request may take."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"too few of the records of {called(topic)} that one request may look at are of this caller: find"
            " them by a field that tells them apart, or read them by their keys"
        )


class OffsetOutOfRange(NotFound):
    """The partition holds offsets `low` to `high` - 1: this one was removed, or is not written yet."""

    parameter = "offset"

    def __init__(self, topic: str, partition: int, offset: int, low: int, high: int) -> None:
        super().__init__(
            f"partition {partition} of topic {topic!r} begins at offset {low}, the next one that it gets is "
            f"{high}: {offset} is outside"
        )
        self.partition = partition
        self.low = low
        self.high = high


class KeyAbsent(NotFound):
    """The topic exists and is complete; the key was never written, or was deleted."""

    def __init__(self, topic: str, *, was_absent: bool = False) -> None:
        """`was_absent`: the read was one as of a time or a position."""
        held, when = ("held", " at that time") if was_absent else ("holds", "")
        super().__init__(f"topic {topic!r} {held} no record under this key{when}")
        self.topic = topic


class TooLarge(KeylaneError):
    """A key or value over its limit."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"the {what} has {size_bytes} bytes, the limit is {limit_bytes}")
        self.what = what
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class NotKept(KeylaneError):
    """The topic is not configured to keep this; the message names the option."""


class NoIndex(NotKept):
    """The topic has no index, so its keys can't be read in order or counted."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} has no index: set `index = true` in keylane.toml")
        self.topic = topic


class NoHistory(NotKept):
    """The topic's earlier records are not kept."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"topic {topic!r} keeps no history: set `history_count` or `history_age` in keylane.toml"
        )
        self.topic = topic


class NoFields(NotKept):
    """The topic's records can't be found by the fields of their values."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"topic {topic!r} has no fields: name them in [topics.{topic}.fields] in keylane.toml"
        )
        self.topic = topic


class HistoryTooShort(KeylaneError):
    """A time before the history begins: it is complete from `since_ms` on."""

    def __init__(self, topic: str, since_ms: int) -> None:
        super().__init__(f"topic {topic!r} holds this history from {since_ms} on (ms since 1970)")
        self.topic = topic
        self.since_ms = since_ms


class SnapshotOutdated(KeylaneError):
    """What was read of a topic does not belong to what there is now; `reason` says why."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"the snapshot of topic {topic!r} can't go on: {reason}. Begin a new one")


class NoJsonObject(KeylaneError):
    """`fields` was given for a value that is not a JSON object."""

    parameter = "fields"

    def __init__(self) -> None:
        super().__init__("the value is not a JSON object, so it has no fields: leave out `fields`")


class PositionNotReached(KeylaneError):
    """A read waited for a position, and the state did not reach it in time."""

    def __init__(self, wanted: str, next_offset: int, waited_ms: int) -> None:
        super().__init__(
            f"position {wanted} is not in the state after {waited_ms} ms: "
            f"it holds offsets below {next_offset}"
        )
        self.wanted = wanted
        self.next_offset = next_offset


class ValueLeftInKafka(KeylaneError):
    """The record's value is over the topic's limit: the state holds only its position and size."""

    def __init__(self, position: str, size_bytes: int) -> None:
        super().__init__(
            f"the value has {size_bytes} bytes, more than the topic's state keeps: "
            f"read it from Kafka, at position {position}"
        )
        self.position = position
        self.size_bytes = size_bytes


class ValueNotDecodable(KeylaneError):
    """A value does not match its topic's `value_format`; `schema_id` is None if it names no schema."""

    def __init__(self, position: str, reason: str, schema_id: int | None = None) -> None:
        schema = "" if schema_id is None else f" by schema {schema_id}"
        super().__init__(f"the value at position {position} cannot be decoded{schema}: {reason}")
        self.position = position
        self.reason = reason
        self.schema_id = schema_id


class IdempotencyKeyReused(KeylaneError):
    """The idempotency key was used before, with a different request."""

    parameter = "Idempotency-Key"

    def __init__(self) -> None:
        super().__init__("this Idempotency-Key was used for another request: use a new key for each request")


class RequestInProgress(KeylaneError):
    """The same request, with the same key, is still running."""

    parameter = "Idempotency-Key"
    retry_after_s = 1

    def __init__(self) -> None:
        super().__init__("a request with this Idempotency-Key is still running: repeat it to get its answer")


class RateLimited(KeylaneError):
    """A limit is reached; `headers` report it. Records over the limit are not written.

    `pattern`: of the rule, as in the settings.
    """

    retriable = True
    field = "topic"

    def __init__(self, message: str, retry_after_s: int, headers: dict[str, str], pattern: str) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.headers = headers
        self.pattern = pattern


class ValueInvalid(KeylaneError):
    """A value to be written does not match its topic's schema; `path` is a JSON Pointer.

    `schema_id`: the schema that the value names, None if it names none.
    """

    def __init__(self, topic: str, path: str, reason: str, schema_id: int | None = None) -> None:
        where = f" at {path}" if path else ""
        super().__init__(f"the value does not match the schema of topic {topic!r}{where}: {reason}")
        self.path = path
        self.schema_id = schema_id


class ValueUnreadable(ValueInvalid):
    """Readers of the topic could not read the value; `by_schema`: they read it by a schema of a registry."""

    def __init__(self, topic: str, reason: str, *, by_schema: bool = False, path: str = "") -> None:
        super().__init__(topic, path, reason)
        instead = "give JSON and a schema for it (schema=latest), or write" if by_schema else "write"
        where = f" at {path}" if path else ""
        what = f"readers of topic {topic!r} could not read the value{where}: {reason}"
        self.args = (f"{what}; {instead} it as it is with raw=true",)


class KeyUnreadable(KeylaneError):
    """Readers of the topic could not find the record by its key."""

    field = "key"

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(
            f"readers of topic {topic!r} could not find the key: {reason}; write it as it is with raw=true"
        )


class Unavailable(KeylaneError):
    """A part of the service is unavailable: the same request may succeed later."""

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StateUnavailable(Unavailable):
    """Redis did not answer, or not in time."""


class LaneBuilding(Unavailable):
    """The lane is still being built: its answer could be older than one that the caller has seen.

    `next_offset`: the first offset that is not in the lane yet, None before the build begins. `log_end`: the
    partition's end offset, 0 while it is unknown.
    """

    def __init__(self, topic: str, partition: int, next_offset: int | None, log_end: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.next_offset = next_offset
        self.log_end = log_end
        progress = "has not begun" if next_offset is None else f"is at offset {next_offset}"
        if self.percent is not None:
            progress += f" of {log_end} ({self.percent} %)"
        super().__init__(f"partition {partition} of {called(topic)} is being built: it {progress}", 2)

    @property
    def percent(self) -> int | None:
        """How much of the partition is in the state, None if unknown."""
        if self.next_offset is None or not self.log_end:
            return None
        return min(100, self.next_offset * 100 // self.log_end)


class StateTooOld(Unavailable):
    """The state is older than the caller accepts; `age_ms` is None if it was never complete."""

    def __init__(self, age_ms: int | None, max_age_ms: int) -> None:
        age = "was never complete" if age_ms is None else f"may be {age_ms} ms old"
        super().__init__(f"the state {age}, the request accepts {max_age_ms} ms")
        self.age_ms = age_ms
        self.max_age_ms = max_age_ms


class IssuerUnavailable(Unavailable):
    """The keys of a token's issuer are not known, and can't be fetched: who asks is not known."""


class RegistryUnavailable(Unavailable):
    """The Schema Registry did not answer in time, or not correctly: a value's schema is unknown."""


class SettingsUnavailable(Unavailable):
    """Parameter Store or Secrets Manager did not answer: a setting's value is unknown."""


class QueueUnavailable(Unavailable):
    """The write-ahead log did not accept the record, or cannot be read."""


class Unconfirmed(QueueUnavailable):
    """The write-ahead log did not answer in time: the record may be queued, or not."""

    def __init__(self) -> None:
        super().__init__("the queue did not answer in time: the record may or may not be written later")
        self.uncertain = True


class LogUnavailable(Unavailable):
    """Kafka did not answer, or not in time."""


class Unacknowledged(LogUnavailable):
    """Kafka did not acknowledge the record: it may or may not have been written."""

    uncertain = True

    def __init__(
        self,
        message: str = "Kafka did not acknowledge the record in time: it may or may not have been written",
    ) -> None:
        super().__init__(message)


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
    """Bytes under a lane's key that Keylane did not write; `where` names the key in Redis."""

    def __init__(self, where: str, fault: str) -> None:
        super().__init__(f"the state under {where} cannot be read: {fault}")
        self.where = where
        self.fault = fault


class ProduceFailed(KeylaneError):
    """Kafka refused the record; `code` is Kafka's name for it, such as MESSAGE_TOO_LARGE.

    `uncertain`: it may have been written in spite of the error.
    """

    def __init__(self, code: str, message: str, *, retriable: bool, uncertain: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.retriable = retriable
        self.uncertain = uncertain


class PartitionMissing(ProduceFailed):
    """The topic's partitioner is `explicit`, and the record does not name its partition."""

    def __init__(self, topic: str) -> None:
        what = f"records of topic {topic!r} must name their partition"
        super().__init__("INVALID_REQUEST", what, retriable=False)


class Superseded(KeylaneError):
    """The record failed, and a newer one of its key was written: sent again, it would turn the key back.

    `reason`: why it failed. `uncertain`: as the reason's.
    """

    retriable = False

    def __init__(self, reason: KeylaneError) -> None:
        super().__init__(f"{reason}; a newer record of its key was written: do not send this one again")
        self.reason = reason
        self.uncertain = getattr(reason, "uncertain", False)
        self.__cause__ = reason.__cause__


class LogRefused(KeylaneError):
    """Kafka refused to be read; `code` is Kafka's name for it, such as TOPIC_AUTHORIZATION_FAILED.

    `topic`: that of the request, if it was about one. For logs: a client may not know the name.
    """

    def __init__(self, code: str, *, retriable: bool, topic: str = "") -> None:
        super().__init__(f"{code}: Kafka refused the request")
        self.code = code
        self.retriable = retriable
        self.topic = topic


class BadConfig(KeylaneError):
    """`keylane.toml` or the environment is invalid; the message names the line and the field."""


class SettingsError(BadConfig):
    """A variable is missing or invalid; `variable` names it. For logs: clients see a general message."""

    def __init__(self, variable: str, fault: str) -> None:
        super().__init__(f"{variable} {fault}")
        self.variable = variable
        self.fault = fault


class WriterError(KeylaneError):
    """An error of the lane protocol, on the writer's side."""


class Fenced(WriterError):
    """A newer writer has taken over: this writer must stop. `lane` may be the name of a topic."""

    def __init__(self, lane: str, epoch: int, newer_epoch: int) -> None:
        super().__init__(f"lane {lane} is written by epoch {newer_epoch} now, this writer is epoch {epoch}")
        self.lane = lane
        self.epoch = epoch
        self.newer_epoch = newer_epoch

    def by(self, successor: str) -> Self:
        """Return the same error, with the successor named in its message."""
        self.args = (f"{self.args[0]}: {successor} took over",)
        return self


class EngineEnded(WriterError):
    """Spark has ended the job's application, or its JVM is gone: only another process can go on."""


class TopicChanged(WriterError):
    """A topic grew, was recreated or returned after its lanes were opened: open them again."""


class LeaderChanged(TopicChanged):
    """A partition has a new leader, with whose log the lanes have not been compared."""


class LaneBehind(WriterError):
    """The lane expects `next_offset`, the chunk begins at `given`: the records between must come first."""

    def __init__(self, lane: str, next_offset: int | None, given: int) -> None:
        super().__init__(f"lane {lane} is at offset {next_offset} and received records from {given}")
        self.lane = lane
        self.next_offset = next_offset
        self.given = given


class StraysLost(LaneBehind):
    """A failover may have lost this lane's records of other partitions: they must come before newer ones."""

    def __init__(self, lane: str) -> None:
        super().__init__(lane, None, 0)
        self.args = (f"lane {lane} has failed over and may have lost strays",)
