"""librdkafka's errors as Keylane's, under the names that Kafka itself gives them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from keylane.adapters.kafka.clients import CODES, not_let_in
from keylane.errors import (
    LogRefused,
    LogUnavailable,
    ProduceFailed,
    Unacknowledged,
    UnknownPartition,
    UnknownTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane.errors import KeylaneError
    from keylane.model.records import NewRecord

KAFKA_NAMES = {
    "INVALID_MSG": "CORRUPT_MESSAGE",
    "INVALID_MSG_SIZE": "INVALID_FETCH_SIZE",
    "MSG_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "NO_ERROR": "NONE",
    "STALE_CTRL_EPOCH": "STALE_CONTROLLER_EPOCH",
    "TOPIC_EXCEPTION": "INVALID_TOPIC_EXCEPTION",
    "UNKNOWN": "UNKNOWN_SERVER_ERROR",
    "UNKNOWN_TOPIC_OR_PART": "UNKNOWN_TOPIC_OR_PARTITION",
}
"""librdkafka's name -> Kafka's own (org.apache.kafka.common.protocol.Errors) where they differ."""

RETRIABLE = frozenset(
    {
        "BROKER_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "NOT_LEADER_OR_FOLLOWER",
        "OFFSET_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "THROTTLING_QUOTA_EXCEEDED",
        "UNKNOWN_LEADER_EPOCH",
    }
)
"""Kafka's names of errors that pass: the same request may be taken later."""

INVALID_RECORD = (
    "Kafka refused the record: its timestamp is out of the topic's bounds, "
    "or it has no key in a compacted topic"
)
"""The client passes no more on than the code, which stands for these two."""

# librdkafka's own codes are negative, and their names begin with an underscore without being private.
LOCAL_TIMED_OUT = KafkaError._TIMED_OUT  # noqa: SLF001
LOCAL_UNKNOWN_TOPIC = KafkaError._UNKNOWN_TOPIC  # noqa: SLF001
LOCAL_UNKNOWN_PARTITION = KafkaError._UNKNOWN_PARTITION  # noqa: SLF001
LOCAL_QUEUE_FULL = KafkaError._QUEUE_FULL  # noqa: SLF001
LOCAL_OTHER_INVALID = KafkaError._INVALID_DIFFERENT_RECORD  # noqa: SLF001
UNKNOWN_TOPIC = {LOCAL_UNKNOWN_TOPIC, LOCAL_UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}
_INVALID_ARGUMENT = KafkaError._INVALID_ARG  # noqa: SLF001


def kafka_name(error: KafkaError) -> str:
    """Kafka's own upper-case name; UNKNOWN_SERVER_ERROR for those that librdkafka made up (`_...`)."""
    name = error.name()
    return "UNKNOWN_SERVER_ERROR" if name.startswith("_") else KAFKA_NAMES.get(name, name)


def error_of(error: KafkaError, record: NewRecord, *, sent: bool = True) -> KeylaneError:
    """Say it as one of Log's errors; its cause keeps librdkafka's words.

    `sent`: whether the client was given the record: then it may have been written in spite of the error.
    """
    found = _translated(error, record, sent=sent)
    found.__cause__ = KafkaException(error)
    return found


@contextmanager
def translate_read_errors(topic: str) -> Iterator[None]:
    """Every error of a request that reads becomes one of Metadata's and LogReader's."""
    try:
        yield
    except TimeoutError as error:
        raise LogUnavailable("Kafka did not answer in time") from error
    except KafkaException as error:
        raise _read_error(error.args[0], topic) from error


def _read_error(error: KafkaError, topic: str) -> KeylaneError:
    code = error.code()
    if code in UNKNOWN_TOPIC:
        return UnknownTopic(topic, "Kafka has no topic of this name")
    if code in CODES:
        return not_let_in(error)
    if code < 0:
        # librdkafka's own words would tell addresses: they are in the log, as the cause.
        return LogUnavailable("Kafka did not answer in time")
    name = kafka_name(error)
    return LogRefused(name, retriable=name in RETRIABLE)


def _translated(error: KafkaError, record: NewRecord, *, sent: bool) -> KeylaneError:
    code = error.code()
    if code == LOCAL_UNKNOWN_PARTITION and record.partition is not None:
        return UnknownPartition(record.topic, record.partition)
    if code in UNKNOWN_TOPIC:
        return UnknownTopic(record.topic, "Kafka has no topic of this name")
    if code in CODES:
        return not_let_in(error)
    if code >= 0:
        name = kafka_name(error)
        fault = INVALID_RECORD if code == KafkaError.INVALID_RECORD else "Kafka refused the record"
        return ProduceFailed(name, fault, retriable=name in RETRIABLE)
    return _local(code, sent=sent)


def _local(code: int, *, sent: bool) -> KeylaneError:
    """Errors of the client itself."""
    if code == _INVALID_ARGUMENT:
        return ProduceFailed("INVALID_REQUEST", "the record can't be sent", retriable=False)
    if code == LOCAL_OTHER_INVALID:
        fault = "it was not written, as another record that was sent with it was refused"
        return ProduceFailed("INVALID_RECORD", fault, retriable=True)
    if code == LOCAL_QUEUE_FULL:
        return LogUnavailable("too many records are on their way to Kafka: this one was not written")
    # Even a record purged from the queue may have been sent before and be there for a second try.
    return Unacknowledged() if sent else LogUnavailable("Kafka did not answer in time: nothing was written")
