"""librdkafka's errors as Keylane's, under the names that Kafka itself gives them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from keylane.errors import (
    ConnectionRejected,
    KeylaneError,
    LogRefused,
    LogUnavailable,
    ProduceFailed,
    Unacknowledged,
    UnknownPartition,
    UnknownTopic,
)
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
"""librdkafka's name -> Kafka's own (org.apache.kafka.common.protocol.Errors), where the two differ."""

RETRIABLE = frozenset(
    {
        "BROKER_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "INVALID_PRODUCER_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "NOT_COORDINATOR",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "NOT_LEADER_OR_FOLLOWER",
        "OFFSET_NOT_AVAILABLE",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "REQUEST_TIMED_OUT",
        "THROTTLING_QUOTA_EXCEEDED",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_PRODUCER_ID",
    }
)
"""Kafka's names of transient errors: the same request may succeed later."""

UNCERTAIN = frozenset(
    {
        "INVALID_PRODUCER_EPOCH",
        "NETWORK_EXCEPTION",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "REQUEST_TIMED_OUT",
        "UNKNOWN_PRODUCER_ID",
    }
)
"""Kafka's names of errors after which a record may be in the log.

Those of sequences and producers are answers to a record that was sent again: the first answer was lost.
"""

INVALID_RECORD = (
    "Kafka refused the record: its timestamp is outside the topic's bounds, "
    "or it has no key and the topic is compacted"
)
"""The client passes on the code alone, which stands for these two reasons."""

# librdkafka's own codes are negative, and their names begin with an underscore without being private.
LOCAL_TIMED_OUT = KafkaError._TIMED_OUT  # noqa: SLF001
LOCAL_UNKNOWN_TOPIC = KafkaError._UNKNOWN_TOPIC  # noqa: SLF001
LOCAL_UNKNOWN_PARTITION = KafkaError._UNKNOWN_PARTITION  # noqa: SLF001
LOCAL_QUEUE_FULL = KafkaError._QUEUE_FULL  # noqa: SLF001
LOCAL_OTHER_INVALID = KafkaError._INVALID_DIFFERENT_RECORD  # noqa: SLF001
LOCAL_TRANSPORT = KafkaError._TRANSPORT  # noqa: SLF001
LOCAL_FATAL = KafkaError._FATAL  # noqa: SLF001
_INVALID_ARGUMENT = KafkaError._INVALID_ARG  # noqa: SLF001
_UNKNOWN_TOPIC = {LOCAL_UNKNOWN_TOPIC, LOCAL_UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}

SASL_FAILED, SSL_FAILED = "SASL_AUTHENTICATION_FAILED", "SSL_HANDSHAKE_FAILED"
_REJECTIONS = {
    KafkaError._AUTHENTICATION: SASL_FAILED,  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED: SASL_FAILED,
    KafkaError._SSL: SSL_FAILED,  # noqa: SLF001
}
"""librdkafka's code -> Keylane's. Kafka has no name for a failed handshake: no broker answered."""
_ALERT = re.compile(r"SSL routines::.*\balert\b")
_UNVERIFIED = "certificate verify failed"


def rejection_code(error: KafkaError) -> str | None:
    """SASL_FAILED or SSL_FAILED where a broker and the client did not accept each other, else None."""
    if error.code() == LOCAL_TRANSPORT and _ALERT.search(error.str()):
        # A broker that rejects the client's certificate says so after the client's side of the handshake.
        return SSL_FAILED
    return _REJECTIONS.get(error.code())


def is_fatal(error: KafkaError) -> bool:
    """Whether the client can send nothing any more. Refusing a record it says so by its code alone."""
    return bool(error.fatal()) or error.code() == LOCAL_FATAL


def rejection(error: KafkaError, *, uncertain: bool = False) -> ConnectionRejected:
    """The error of a rejected connection; its cause keeps librdkafka's words."""
    code = rejection_code(error) or ""
    if code == SASL_FAILED:
        reason = "Kafka rejected the credentials"
    elif _UNVERIFIED in error.str():
        reason = (
            "Kafka's certificate could not be verified: no trusted authority has signed it, "
            "it has expired, or it is for another host name"
        )
    elif _ALERT.search(error.str()):
        reason = "Kafka broke off the TLS handshake: it may require a client certificate that it trusts"
    else:
        reason = "the TLS handshake with Kafka failed"
    found = ConnectionRejected(code, reason, uncertain=uncertain)
    found.__cause__ = KafkaException(error)
    return found


@contextmanager
def translate_kafka_errors(topic: str = "") -> Iterator[None]:
    """Raise every error of a read or an admin request as one of Metadata's and LogReader's."""
    try:
        yield
    except TimeoutError as error:
        raise LogUnavailable("Kafka did not answer in time") from error
    except KafkaException as error:
        raise _read_error(error.args[0], topic) from error


def _read_error(error: KafkaError, topic: str) -> KeylaneError:
    code = error.code()
    if code in _UNKNOWN_TOPIC:
        return UnknownTopic(topic, "Kafka has no topic of this name")
    if code in _REJECTIONS:
        return rejection(error)
    if code < 0:
        # librdkafka's own words contain addresses: they go to the log, as the cause.
        return LogUnavailable("Kafka did not answer in time")
    name = kafka_name(error)
    return LogRefused(name, retriable=name in RETRIABLE, topic=topic)


def error_of(error: KafkaError, record: NewRecord, *, sent: bool = True) -> KeylaneError:
    """The record's error as one of Log's; its cause keeps librdkafka's words.

    `sent`: whether the client was given the record, which may then have been written in spite of the error.
    """
    found = _write_error(error, record, sent=sent)
    found.__cause__ = KafkaException(error)
    return found


def _write_error(error: KafkaError, record: NewRecord, *, sent: bool) -> KeylaneError:
    code = error.code()
    if code == LOCAL_UNKNOWN_PARTITION and record.partition is not None:
        return UnknownPartition(record.topic, record.partition)
    if code in _UNKNOWN_TOPIC:
        return UnknownTopic(record.topic, "Kafka has no topic of this name")
    if code in _REJECTIONS:
        return rejection(error, uncertain=sent)
    if code >= 0:
        name = kafka_name(error)
        uncertain = name in UNCERTAIN
        fault = "Kafka refused the record"
        if uncertain:
            fault = "Kafka did not confirm the record: it may or may not have been written"
        elif code == KafkaError.INVALID_RECORD:
            fault = INVALID_RECORD
        return ProduceFailed(name, fault, retriable=name in RETRIABLE, uncertain=uncertain)
    return _local_write_error(code, sent=sent)


def _local_write_error(code: int, *, sent: bool) -> KeylaneError:
    """The error of the client itself."""
    if code == _INVALID_ARGUMENT:
        return ProduceFailed("INVALID_REQUEST", "the record can't be sent", retriable=False)
    if code == LOCAL_OTHER_INVALID:
        fault = "the record was not written: Kafka refused another record of the same batch"
        return ProduceFailed("INVALID_RECORD", fault, retriable=True)
    if code == LOCAL_QUEUE_FULL:
        return LogUnavailable("too many records wait to be sent to Kafka: this one was not written")
    # Even a record purged from the queue may have been sent before and be there for a second try.
    return Unacknowledged() if sent else LogUnavailable("Kafka did not answer in time: nothing was written")


def kafka_name(error: KafkaError) -> str:
    """Kafka's own upper-case name; UNKNOWN_SERVER_ERROR for librdkafka's own errors (`_...`)."""
    name = error.name()
    return "UNKNOWN_SERVER_ERROR" if name.startswith("_") else KAFKA_NAMES.get(name, name)
