"""The port LogReader over confluent-kafka: offsets by its admin client, records by assigned consumers.

A consumer is kept between requests, without a partition: each request assigns its own, so none begins where
another one ended. librdkafka requires a group's name; the group is never joined, and nothing is committed.
"""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from keylane.adapters.kafka.admin import KafkaAdmin, ReaderSettings
from keylane.adapters.kafka.admin_session import AdminSession
from keylane.adapters.kafka.clients import RejectionListener, make_client
from keylane.adapters.kafka.errors import LOCAL_TIMED_OUT, translate_kafka_errors
from keylane.errors import ConnectionRejected, LogRefused, LogUnavailable, OffsetOutOfRange
from keylane.model.kafka import (
    READ_UNCOMMITTED,
    At,
    LogBatch,
    LogRange,
    LogRecord,
    OffsetFound,
    OffsetQuery,
)
from keylane.ports import Deadline

# librdkafka's own codes begin with an underscore without being private.
_END_OF_PARTITION = KafkaError._PARTITION_EOF  # noqa: SLF001
_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001
_TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}
FETCH_BYTES = 1024 * 1024
QUEUED_KIB = 8 * 1024
"""How much the consumer may prefetch: a request reads 4 MiB at most."""
FETCH_WAIT_MS = 0
"""How long a broker may hold a fetch at the end of a partition: a request waits for no new record, and the
next partition's would wait behind it. Ten milliseconds were ten for each partition of a stream."""
LOOK_S = 0.25
"""How often to check whether a broker has rejected the consumer."""


class KafkaReader:
    """See `ports.LogReader`. It serves one request at a time."""

    def __init__(self, admin: KafkaAdmin[ReaderSettings]) -> None:
        """`admin`: its settings apply to consumers too."""
        self._admin = admin
        self._consumers: dict[str, tuple[Consumer, RejectionListener]] = {}

    def offsets(
        self, topic: str, partition: int, ats: Sequence[At], isolation: str, deadline: Deadline
    ) -> list[OffsetFound | None]:
        """See `ports.LogReader`; one request asks for all offsets."""
        queries = [OffsetQuery(topic, partition, at) for at in ats]
        return self._admin.request(deadline, AdminSession.list_offsets, queries, isolation)

    def first_offset(self, topic: str, partition: int, deadline: Deadline) -> int:
        """See `ports.LogReader`. A consumer asks, not the admin client: that may abort its process."""
        try:
            with translate_kafka_errors(topic):
                consumer, _ = self._consumer(READ_UNCOMMITTED)
                found = consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=deadline.remaining_s
                )
        except (LogUnavailable, LogRefused):
            self._drop(READ_UNCOMMITTED)
            raise
        if found is None:
            raise LogUnavailable("Kafka did not answer in time")
        return found[0]

    def read(self, wanted: LogRange, deadline: Deadline) -> LogBatch:
        """See `ports.LogReader`.

        A kept consumer may use half of the time: since its last request the topic may have been recreated, or
        its connection may have died. A new consumer gets the rest.
        """
        if wanted.isolation in self._consumers:
            half = Deadline.after_ms(deadline.remaining_s * 500, deadline.clock)
            batch = self._read(wanted, half)
            if batch is not None:
                return batch
        batch = self._read(wanted, deadline)
        if batch is None and deadline.remaining_s:
            # A new one fails for transient reasons alone, such as a password that has just changed.
            batch = self._read(wanted, deadline)
        if batch is None:
            raise LogUnavailable("Kafka returned no record in time")
        return batch

    def close(self) -> None:
        """Close the consumers; the next request makes new ones."""
        for isolation in list(self._consumers):
            self._drop(isolation)

    def _read(self, wanted: LogRange, deadline: Deadline) -> LogBatch | None:
        """Read by the kept consumer; None if nothing came in time, and the consumer is dropped."""
        batch = None
        is_new = wanted.isolation not in self._consumers
        try:
            with translate_kafka_errors(wanted.topic):
                consumer, listener = self._consumer(wanted.isolation)
                consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.offset)])
                try:
                    batch = _collect(consumer, wanted, deadline, listener)
                finally:
                    consumer.unassign()
                if batch is None:
                    listener.check()
        except ConnectionRejected:
            # The admin client was accepted; since then the password may have changed, or a token expired.
            if not self._admin.renew() and is_new:
                raise
        except LogUnavailable:
            pass
        except LogRefused as error:
            if not error.retriable:
                raise
        finally:
            if batch is None:
                self._drop(wanted.isolation)
        return batch

    def _drop(self, isolation: str) -> None:
        if isolation in self._consumers:
            self._consumers.pop(isolation)[0].close()

    def _consumer(self, isolation: str) -> tuple[Consumer, RejectionListener]:
        found = self._consumers.get(isolation)
        if found is None:
            security = self._admin.settings.security
            listener = RejectionListener(security)
            found = make_client(Consumer, self._configuration(isolation), security, listener), listener
            self._consumers[isolation] = found
        return found

    def _configuration(self, isolation: str) -> dict[str, Any]:
        return {
            "group.id": "keylane-explore",
            # Without brokers it retries about a hundred times a second and would log each attempt; the
            # admin client, which is used first, logs what is wrong.
            "log_level": 2,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "fetch.error.backoff.ms": 20,
            # With the default of 1000 a request soon after a full page waits for a second.
            "fetch.queue.backoff.ms": 10,
            "fetch.message.max.bytes": FETCH_BYTES,
            "queued.min.messages": 1_000,
            "queued.max.messages.kbytes": QUEUED_KIB,
            **self._admin.settings.configuration(),
        }


def _collect(
    consumer: Consumer, wanted: LogRange, deadline: Deadline, listener: RejectionListener
) -> LogBatch | None:
    """Poll until the batch is full, the partition ends or the time is up; None if it is up with no record."""
    records: list[LogRecord] = []
    size_bytes, next_offset = 0, wanted.offset
    while next_offset < wanted.end and len(records) < wanted.limit:
        message: Any = consumer.poll(min(deadline.remaining_s, LOOK_S))
        if message is None:
            if deadline.remaining_s and listener.refusal is None:
                continue
            return LogBatch(tuple(records), next_offset) if records else None
        error = message.error()
        if error is not None:
            if error.code() == _END_OF_PARTITION:
                next_offset = message.offset()
                break
            _raise_partition_error(error, message, wanted)
            continue
        if message.offset() >= wanted.end:
            next_offset = wanted.end
            break
        record = _record(message)
        size_bytes += _size(record)
        if records and size_bytes > wanted.max_bytes:
            break
        records.append(record)
        next_offset = record.offset + 1
    return LogBatch(tuple(records), next_offset)


def _raise_partition_error(error: KafkaError, message: Any, wanted: LogRange) -> None:
    """Raise an error that concerns the partition.

    Errors that name no topic concern the group's coordinator, which librdkafka looks up although no group is
    joined, or a connection, which it opens again by itself.
    """
    if error.code() in _OUT_OF_RANGE:
        raise OffsetOutOfRange(wanted.topic, wanted.partition, wanted.offset, wanted.offset, wanted.end)
    if message.topic() is not None and error.code() != LOCAL_TIMED_OUT:
        raise KafkaException(error)


def _record(message: Any) -> LogRecord:
    kind, timestamp_ms = message.timestamp()
    name = _TIMESTAMP_TYPES.get(kind) if timestamp_ms > 0 else None
    return LogRecord(
        message.offset(),
        message.key(),
        message.value(),
        timestamp_ms if name else None,
        name,
        _headers(message),
    )


def _headers(message: Any) -> tuple[tuple[str, bytes | None], ...] | None:
    try:
        return tuple(message.headers() or ())
    except (SystemError, UnicodeDecodeError):
        # The C code decodes names as UTF-8, and returns although that has raised an error.
        return None


def _size(record: LogRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers or ())
    return len(record.key or b"") + len(record.value or b"") + headers
