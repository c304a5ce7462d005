"""The port LogReader over confluent-kafka: offsets by its admin client, records by assigned consumers.

A consumer is kept between requests, without a partition: each request assigns its own, so none begins where
another one ended. librdkafka requires a group's name; the group is never joined, and nothing is committed.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

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
"""How much a broker may send at once: of a partition, and of all of them."""
QUEUED_KIB = 8 * 1024
"""How much the consumer may prefetch: a request reads 4 MiB at most."""
FETCH_WAIT_MS = 0
"""How long a broker may hold a fetch at the end of a partition: a request waits for no new record."""
LOOK_S = 0.25
"""How often to check whether a broker has rejected the consumer, and how long to ask for leaders."""
MET_S, MET_LIMIT = 300.0, 256
"""How long a consumer knows the leaders of a topic that it has met, and how many topics."""
SILENT_LOOKS = 4
"""After how many without a record what was read is enough: of several partitions one may have no leader."""


class _Kept(NamedTuple):
    """A consumer. `met`: topics whose leaders it knows, and until when, in monotonic seconds."""

    consumer: Consumer
    listener: RejectionListener
    met: dict[str, float]

    def meet(self, topic: str, deadline: Deadline) -> None:
        """Ask for a topic's leaders, as librdkafka itself does only at its next look, once a second."""
        now_s = deadline.clock.monotonic_s()
        if self.met.get(topic, 0.0) > now_s:
            return
        with suppress(KafkaException):  # it looks by itself, and reports what is wrong
            self.consumer.list_topics(topic, min(deadline.remaining_s, LOOK_S))
            if len(self.met) >= MET_LIMIT:
                self.met.clear()
            self.met[topic] = now_s + MET_S


class KafkaReader:
    """See `ports.LogReader`. It serves one request at a time."""

    def __init__(self, admin: KafkaAdmin[ReaderSettings]) -> None:
        """`admin`: its settings apply to consumers too."""
        self._admin = admin
        self._consumers: dict[str, _Kept] = {}

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
                found = self._consumer(READ_UNCOMMITTED).consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=deadline.remaining_s
                )
        except (LogUnavailable, LogRefused):
            self._drop(READ_UNCOMMITTED)
            raise
        if found is None:
            raise LogUnavailable("Kafka did not answer in time")
        return found[0]

    def read(self, wanted: Sequence[LogRange], max_bytes: int, deadline: Deadline) -> list[LogBatch]:
        """See `ports.LogReader`.

        A kept consumer may use half of the time: since its last request the topic may have been recreated, or
        its connection may have died. A new consumer gets the rest.
        """
        if wanted[0].isolation in self._consumers:
            half = Deadline.after_ms(deadline.remaining_s * 500, deadline.clock)
            batches = self._read(wanted, max_bytes, half)
            if batches is not None:
                return batches
        batches = self._read(wanted, max_bytes, deadline)
        if batches is None and deadline.remaining_s:
            # A new one fails for transient reasons alone, such as a password that has just changed.
            batches = self._read(wanted, max_bytes, deadline)
        if batches is None:
            raise LogUnavailable("Kafka returned no record in time")
        return batches

    def close(self) -> None:
        """Close the consumers; the next request makes new ones."""
        for isolation in list(self._consumers):
            self._drop(isolation)

    def _read(self, wanted: Sequence[LogRange], max_bytes: int, deadline: Deadline) -> list[LogBatch] | None:
        """Read by the kept consumer; None if nothing came in time, and the consumer is dropped."""
        batches = None
        topic, isolation = wanted[0].topic, wanted[0].isolation
        is_new = isolation not in self._consumers
        try:
            with translate_kafka_errors(topic):
                kept = self._consumer(isolation)
                consumer, listener, _ = kept
                kept.meet(topic, deadline)
                consumer.assign([TopicPartition(topic, each.partition, each.offset) for each in wanted])
                try:
                    batches = _collect(consumer, wanted, max_bytes, deadline, listener)
                finally:
                    consumer.unassign()
                if batches is None:
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
            if batches is None:
                self._drop(isolation)
        return batches

    def _drop(self, isolation: str) -> None:
        if isolation in self._consumers:
            self._consumers.pop(isolation).consumer.close()

    def _consumer(self, isolation: str) -> _Kept:
        found = self._consumers.get(isolation)
        if found is None:
            security = self._admin.settings.security
            listener = RejectionListener(security)
            consumer = make_client(Consumer, self._configuration(isolation), security, listener)
            found = self._consumers[isolation] = _Kept(consumer, listener, {})
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
            "fetch.max.bytes": FETCH_BYTES,
            "queued.min.messages": 1_000,
            "queued.max.messages.kbytes": QUEUED_KIB,
            **self._admin.settings.configuration(),
        }


class _Part:
    """What has come of one range. `is_read`: there is no more of it."""

    def __init__(self, wanted: LogRange) -> None:
        self.wanted = wanted
        self.records: list[LogRecord] = []
        self.next_offset = wanted.offset
        self.is_read = False

    def end_at(self, offset: int) -> None:
        """Note that the next read begins there."""
        self.next_offset = offset
        self.is_read = True

    def add(self, record: LogRecord) -> None:
        """Take the next record."""
        self.records.append(record)
        self.next_offset = record.offset + 1
        self.is_read = self.next_offset >= self.wanted.end or len(self.records) >= self.wanted.limit


def _collect(
    consumer: Consumer,
    wanted: Sequence[LogRange],
    max_bytes: int,
    deadline: Deadline,
    listener: RejectionListener,
) -> list[LogBatch] | None:
    """Poll until all ranges are read, there are enough bytes, or the time is up; None if nothing has come."""
    parts = {each.partition: _Part(each) for each in wanted}
    size_bytes = silent = 0
    unread, has_records = set(parts), False
    while unread:
        message: Any = consumer.poll(min(deadline.remaining_s, LOOK_S))
        if message is None:
            silent += 1
            has_some = has_records or any(part.is_read for part in parts.values())
            if (
                deadline.remaining_s
                and listener.refusal is None
                and not (has_some and silent >= SILENT_LOOKS)
            ):
                continue
            if not has_some:
                return None
            break
        silent = 0
        error = message.error()
        is_end = error is not None and error.code() == _END_OF_PARTITION
        if error is not None and not is_end:
            _raise_partition_error(error, message, parts)
            continue
        if message.partition() not in unread:
            continue
        part = parts[message.partition()]
        if is_end or message.offset() >= part.wanted.end:
            part.end_at(message.offset() if is_end else part.wanted.end)
        else:
            record = _record(message)
            size_bytes += _size(record)
            if size_bytes > max_bytes and has_records:
                break
            part.add(record)
            has_records = True
        if part.is_read:
            unread.discard(message.partition())
    return [LogBatch(tuple(part.records), part.next_offset) for part in parts.values()]


def _raise_partition_error(error: KafkaError, message: Any, parts: Mapping[int, _Part]) -> None:
    """Raise an error that concerns a partition.

    Errors that name no topic concern the group's coordinator, which librdkafka looks up although no group is
    joined, or a connection, which it opens again by itself.
    """
    if error.code() in _OUT_OF_RANGE and message.partition() in parts:
        of = parts[message.partition()].wanted
        raise OffsetOutOfRange(of.topic, of.partition, of.offset, of.offset, of.end)
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
