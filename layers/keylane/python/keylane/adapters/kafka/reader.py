"""The port LogReader over confluent-kafka: offsets by its admin client, records by assigned consumers.

A consumer is kept between requests and has no partition between them: each request assigns its own, so none
begins where another one ended. librdkafka wants a group's name; the group is never joined, nothing committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from keylane.adapters.kafka.clients import RejectionListener, make
from keylane.adapters.kafka.errors import LOCAL_TIMED_OUT, translate_read_errors
from keylane.errors import ConnectionRejected, LogRefused, LogUnavailable, OffsetOutOfRange
from keylane.model.kafka import EARLIEST, LATEST, MAX, READ_COMMITTED, Batch, LogRecord, OffsetFound
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.adapters.kafka.admin import Asked, KafkaAdmin
    from keylane.model.kafka import At, Wanted

# librdkafka's own codes begin with an underscore without being private.
_END_OF_PARTITION = KafkaError._PARTITION_EOF  # noqa: SLF001
_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001
_TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}
FETCH_BYTES = 1024 * 1024
QUEUED_KIB = 8 * 1024
"""How much may be fetched ahead of what is read: a request takes 4 MiB at most."""
FETCH_WAIT_MS = 10
"""How long a broker may keep a fetch at the end of a partition: nothing is waited for there."""

LOOK_S = 0.25
"""How often to look whether a broker has refused the consumer."""


class KafkaReader:
    """One request at a time."""

    def __init__(self, admin: KafkaAdmin) -> None:
        """`admin`: whose settings hold for consumers too."""
        self._admin = admin
        self._consumers: dict[str, tuple[Consumer, RejectionListener]] = {}

    def offsets(
        self, topic: str, partition: int, ats: Sequence[At], isolation: str, deadline: Deadline
    ) -> list[OffsetFound | None]:
        """As `LogReader.offsets` has it; all places are asked for at once."""
        level = (
            IsolationLevel.READ_COMMITTED if isolation == READ_COMMITTED else IsolationLevel.READ_UNCOMMITTED
        )

        def ask(asked: Asked) -> list[Any]:
            futures = [
                asked.client.list_offsets(
                    {TopicPartition(topic, partition): _spec(at)},
                    isolation_level=level,
                    request_timeout=asked.timeout_s,
                )
                for at in ats
            ]
            return [asked.result(next(iter(each.values()))) for each in futures]

        return [_offset(found) for found in self._admin.ask(topic, ask, deadline)]

    def read(self, wanted: Wanted, deadline: Deadline) -> Batch:
        """As `LogReader.read` has it.

        A consumer that was used before has half of the time: the topic may have been made anew since, or the
        connection be dead. A new one has what is left.
        """
        if wanted.isolation in self._consumers:
            half = Deadline.after_ms(deadline.remaining_s * 500, deadline.clock)
            batch = self._read(wanted, half)
            if batch is not None:
                return batch
        batch = self._read(wanted, deadline)
        if batch is None and deadline.remaining_s:
            # What a new one failed for passes: a password that was changed a moment ago.
            batch = self._read(wanted, deadline)
        if batch is None:
            raise LogUnavailable("Kafka did not give a record in time")
        return batch

    def close(self) -> None:
        """Close the consumers; the next request makes others."""
        for isolation in list(self._consumers):
            self._drop(isolation)

    def _read(self, wanted: Wanted, deadline: Deadline) -> Batch | None:
        """Read by the kept consumer; None, and the consumer is dropped, where nothing came in time."""
        batch = None
        is_new = wanted.isolation not in self._consumers
        try:
            with translate_read_errors(wanted.topic):
                consumer, entrance = self._consumer(wanted.isolation)
                consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.offset)])
                try:
                    batch = _collect(consumer, wanted, deadline, entrance)
                finally:
                    consumer.unassign()
                if batch is None:
                    entrance.check()
        except ConnectionRejected:
            # The admin client was let in; another password may hold since, or a token has ended.
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
            entrance = RejectionListener(security)
            found = make(Consumer, self._configuration(isolation), security, entrance), entrance
            self._consumers[isolation] = found
        return found

    def _configuration(self, isolation: str) -> dict[str, Any]:
        return {
            "group.id": "keylane-explore",
            # Without brokers it tries about a hundred times a second, and would log each; the admin client,
            # which is asked first, logs what is wrong.
            "log_level": 2,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "fetch.error.backoff.ms": 20,
            # At its default of 1000 a request that comes soon after a full page waits for a second.
            "fetch.queue.backoff.ms": 10,
            "fetch.message.max.bytes": FETCH_BYTES,
            "queued.min.messages": 1_000,
            "queued.max.messages.kbytes": QUEUED_KIB,
            **self._admin.settings.configuration(),
        }


def _spec(at: At) -> OffsetSpec:
    named: dict[At, Any] = {
        EARLIEST: OffsetSpec.earliest,
        LATEST: OffsetSpec.latest,
        MAX: OffsetSpec.max_timestamp,
    }
    spec: OffsetSpec = named[at]() if at in named else OffsetSpec.for_timestamp(int(at))
    return spec


def _offset(found: Any) -> OffsetFound | None:
    if found.offset < 0:
        return None
    return OffsetFound(found.offset, found.timestamp if found.timestamp >= 0 else None)


def _collect(
    consumer: Consumer, wanted: Wanted, deadline: Deadline, entrance: RejectionListener
) -> Batch | None:
    """Poll until the page is full, the partition ends or time is over; None where that came first."""
    records: list[LogRecord] = []
    size_bytes, next_offset = 0, wanted.offset
    while next_offset < wanted.end and len(records) < wanted.limit:
        message: Any = consumer.poll(min(deadline.remaining_s, LOOK_S))
        if message is None:
            if deadline.remaining_s and entrance.refusal is None:
                continue
            return Batch(tuple(records), next_offset) if records else None
        error = message.error()
        if error is not None:
            if error.code() == _END_OF_PARTITION:
                next_offset = message.offset()
                break
            _check(error, message, wanted)
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
    return Batch(tuple(records), next_offset)


def _check(error: KafkaError, message: Any, wanted: Wanted) -> None:
    """Raise what an error means for the partition.

    Those that name none are about the group's coordinator, whom librdkafka asks for unbidden, and who may be
    away or refuse; or about a connection, which it makes anew by itself.
    """
    if error.code() in _OUT_OF_RANGE:
        raise OffsetOutOfRange(wanted.topic, wanted.partition, wanted.offset, wanted.offset, wanted.end)
    if message.topic() is not None and error.code() != LOCAL_TIMED_OUT:
        raise KafkaException(error)


def _record(message: Any) -> LogRecord:
    kind, timestamp_ms = message.timestamp()
    name = _TIMESTAMP_TYPES.get(kind)
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
        # The C code reads names as UTF-8, and returns in spite of the error that this raises.
        return None


def _size(record: LogRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers or ())
    return len(record.key or b"") + len(record.value or b"") + headers
