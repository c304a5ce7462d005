"""Reads ranges of offsets from Kafka's logs, in the driver and in Spark's tasks.

Nothing ends a range but its end: it has been read once the batches of the log have passed its last offset,
whether or not they have a record there. Whatever happens before that raises an error, and Spark or the next
query reads the range again.

A leader that goes away, and records that can't be read, end the reading of their own ranges alone, by errors
of their own.

A range is read from one topic and one leader, those that the lanes were compared with: a new leader may lack
records that the lanes have (see `stream.leaders`), and a topic that was created again has other records.
"""

import contextlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from kafka import errors as kafka_errors

from keylane.adapters.kafka.options import Connection
from keylane.errors import LeaderChanged, LogUnavailable
from keylane.model.kafka import TopicPartition
from keylane.ports import Clock
from keylane_spark.log.broker_session import BrokerSession
from keylane_spark.log.broker_socket import BROKER_ERRORS, BrokerSocket, check, may_pass, words_of
from keylane_spark.log.fetches import (
    Fetched,
    FetchLimits,
    PartitionFetch,
    PlannedRange,
    answers_of,
    epoch_to_ask,
    fetch_request,
    fetched_of,
)
from keylane_spark.log.record_batches import BatchError, Piece, next_offset, parse_batches
from keylane_spark.log.small_ranges import parse_first, small_ranges
from keylane_spark.rows.records import Rows

RowsOfRange: TypeAlias = Generator[Rows, None, None]

_AT_ONCE = 256
"""Of so many ranges the beginnings are asked for at once."""
_BEGINS_BYTES = 16 * 1024 * 1024
"""The most that all leaders together return of them."""
FETCH_BYTES = 2 * 1024 * 1024
"""Of one partition. A broker returns a larger batch in full, if it is the first one."""
_OUT_OF_RANGE = kafka_errors.OffsetOutOfRangeError.errno
_PAUSE_S = 0.1
_NO_LEADER = (kafka_errors.NotLeaderForPartitionError, kafka_errors.LeaderNotAvailableError)
_ANYONE = -1
"""Stands for all brokers: none has said who leads."""


class LeaderAway(LogUnavailable):
    """The leader of a range does not answer: other ranges may be read, and this one later."""


class RangeUnreadable(LogUnavailable):
    """The leader of a range answers, and not with records that can be read: as of LeaderAway."""


class _Asked(NamedTuple):
    """A request that was sent: to whom, and for which partitions."""

    broker: BrokerSocket
    parts: Sequence[PartitionFetch]


@dataclass(slots=True)
class LogRangeReader:
    """Reads from one cluster, in one thread.

    `retry_budget_s`: from each progress of a range on. `away_s`: the same where the leader does not answer at
    all. `timeout_s`: how long a broker may take to answer, or to authenticate the connection.
    """

    connection: Connection
    retry_budget_s: float = 10.0
    away_s: float = 10.0
    timeout_s: float = 10.0
    fetch_bytes: int = FETCH_BYTES
    clock: Clock = field(default_factory=Clock)
    _session: BrokerSession | None = None
    _awaited: _Asked | None = None
    """The request for the next position, if it was sent already."""
    _epoch: int | None = None
    """Of the leader from which the range is read, once it is known."""
    _away: dict[int, str] = field(default_factory=dict)
    """Brokers that have not answered, among the ranges that are read together."""

    def read_each(
        self, ranges: Sequence[PlannedRange], *, committed: bool, with_headers: bool
    ) -> Iterator[tuple[PlannedRange, Iterator[Rows]]]:
        """Each range with its records, as of `read`: they are read to the end before the next range comes.

        A range whose records end by LeaderAway, RangeUnreadable or LeaderChanged ends alone: the next one
        comes all the same.
        A leader that is away is waited for once.
        """
        self._away.clear()
        try:
            yield from self._read_each(ranges, committed=committed, with_headers=with_headers)
        finally:
            self._away.clear()

    def _read_each(
        self, ranges: Sequence[PlannedRange], *, committed: bool, with_headers: bool
    ) -> Iterator[tuple[PlannedRange, Iterator[Rows]]]:
        begins: dict[TopicPartition, Fetched] = {}
        small: dict[TopicPartition, Piece] = {}
        parsed: dict[TopicPartition, Rows] = {}
        for number, each in enumerate(ranges):
            if not begins and number + 1 < len(ranges):
                some = ranges[number : number + _AT_ONCE]
                begins = self.fetch_begins(some, committed=committed)
                small = small_ranges(some, begins)
            if each.source in small:
                parsed = parse_first(small, with_headers=with_headers)
            begin = begins.pop(each.source, None)
            if (rows := parsed.pop(each.source, None)) is not None:
                yield each, iter([rows] if len(rows) else [])
                continue
            read = self.read(each, committed=committed, with_headers=with_headers, begin=begin)
            with contextlib.closing(read) as found:
                yield each, found

    def fetch_begins(
        self, ranges: Sequence[PlannedRange], *, committed: bool
    ) -> dict[TopicPartition, Fetched]:
        """Ask for the beginnings of several ranges, in one request to each leader, for `read`.

        Where nothing came `read` asks again, and meets the error if it lasts. Raises LogUnavailable,
        TopicChanged.
        """
        self._forget_awaited()
        found: dict[TopicPartition, Fetched] = {}
        try:
            of_node = self._by_leader(ranges)
            most_bytes = _BEGINS_BYTES // max(1, len(of_node))
            asked = [
                sent
                for parts in of_node.values()
                if (sent := self._try_send(parts, most_bytes=most_bytes, committed=committed))
            ]
            for each_asked in asked:
                for part, response in self._try_receive(each_asked):
                    if not response.error_code and response.records:
                        found[part.wanted.source] = fetched_of(part, response)
        except BROKER_ERRORS:
            self.close()
        except BaseException:
            self.close()
            raise
        return found

    def _by_leader(self, ranges: Sequence[PlannedRange]) -> dict[int, list[PartitionFetch]]:
        """What can be asked for, by leader. A range without a leader, or with a new one, is met by `read`."""
        for is_last in (False, True):
            of_node: dict[int, list[PartitionFetch]] = {}
            try:
                for each in ranges:
                    with contextlib.suppress(LeaderChanged, *(_NO_LEADER if is_last else ())):
                        part = self._part(each, each.begin, each.leader_epoch)
                        of_node.setdefault(part.leader.node, []).append(part)
            except _NO_LEADER:
                self.close()  # the leaders were found before they changed
            else:
                return of_node
        return {}

    def _try_send(
        self, parts: Sequence[PartitionFetch], *, most_bytes: int, committed: bool
    ) -> _Asked | None:
        """Ask a leader; None where that fails, which `read` meets again."""
        node = parts[0].leader.node
        try:
            return self._send(parts, most_bytes=most_bytes, committed=committed)
        except BROKER_ERRORS as error:
            self._drop(node, error)
            return None

    def _try_receive(self, asked: _Asked) -> list[tuple[PartitionFetch, Any]]:
        try:
            return self._receive(asked)
        except BROKER_ERRORS as error:
            self._drop(asked.parts[0].leader.node, error)
            return []

    def _drop(self, node: int, error: Exception) -> None:
        """Close the connection to a broker, which is not waited for again if it was silent."""
        self._brokers().drop(node)
        if isinstance(error, TimeoutError):
            self._away[node] = words_of(error)

    def read(
        self, wanted: PlannedRange, *, committed: bool, with_headers: bool, begin: Fetched | None = None
    ) -> RowsOfRange:
        """The records of a range, in offset order; it ends only behind the last of them.

        `committed`: without aborted transactions. `begin`: what `fetch_begins` has found. Raises LeaderAway,
        RangeUnreadable and other errors of LogUnavailable, LeaderChanged and others of TopicChanged.
        """
        self._forget_awaited()
        self._epoch = begin.leader_epoch if begin else wanted.leader_epoch
        try:
            yield from self._read(wanted, begin, committed=committed, with_headers=with_headers)
        except (LeaderAway, LeaderChanged):
            raise  # before anything was sent, or after all connections were closed
        except BaseException:
            # A response that nobody has read would be taken for the next request's.
            self.close()
            raise

    def close(self) -> None:
        """Close all connections; the next read makes new ones."""
        self._awaited = None
        if self._session is not None:
            self._session.close()
            self._session = None

    def _forget_awaited(self) -> None:
        """Close the connections if the range before was left in the middle: its response would come first."""
        if self._awaited is not None:
            self.close()

    def _read(
        self, wanted: PlannedRange, begin: Fetched | None, *, committed: bool, with_headers: bool
    ) -> RowsOfRange:
        position, until_s = wanted.begin, self.clock.monotonic_s() + self.retry_budget_s
        while position < wanted.end:
            fetched = begin or self._fetch_within_budget(wanted, position, committed=committed)
            begin = None
            following = next_offset(fetched.data, position)
            if following < wanted.end and following > position:
                # The broker reads on while this batch is parsed and written.
                self._send_ahead(wanted, following, committed=committed)
            try:
                yield from parse_batches(
                    fetched.data, position, wanted.end, aborted=fetched.aborted, with_headers=with_headers
                )
            except BatchError as error:
                raise RangeUnreadable(f"{wanted} can't be read: {error}", 2) from error
            if following > position:
                position, until_s = following, self.clock.monotonic_s() + self.retry_budget_s
            elif self.clock.monotonic_s() > until_s:
                raise LogUnavailable(
                    f"{wanted} ends at offset {fetched.log_end}: nothing came from {position} on, though the "
                    f"batch ends at {wanted.end}",
                    2,
                )

    def _fetch_within_budget(self, wanted: PlannedRange, position: int, *, committed: bool) -> Fetched:
        until_s = self.clock.monotonic_s() + self.away_s
        while True:
            node = _ANYONE
            try:
                self._check_away(wanted, node)
                node = self._brokers().leader(wanted.topic, wanted.partition).node
                self._check_away(wanted, node)
                asked = self._awaited or self._send_one(wanted, position, committed=committed)
                self._awaited = None
                ((part, response),) = self._receive(asked)
                if response.error_code == _OUT_OF_RANGE:
                    raise LogUnavailable(
                        f"{wanted} no longer has offset {position}, or not yet: records of the batch, which "
                        f"ends at {wanted.end}, were lost or removed",
                        2,
                    )
                _check_range(wanted, response.error_code)
                fetched = fetched_of(part, response)
            except BROKER_ERRORS as error:
                self.close()
                why = f"{wanted} can't be read: {words_of(error)}"
                if not may_pass(error):
                    raise LogUnavailable(why, 2) from error
                if self.clock.monotonic_s() > until_s:
                    self._away[node] = words_of(error)
                    raise LeaderAway(why, 2) from error
                self.clock.pause_s(_PAUSE_S)
            else:
                self._epoch = fetched.leader_epoch
                return fetched

    def _check_away(self, wanted: PlannedRange, node: int) -> None:
        """Raise LeaderAway if this broker did not answer before."""
        if node in self._away:
            raise LeaderAway(f"{wanted} can't be read: {self._away[node]}", 2)

    def _send_ahead(self, wanted: PlannedRange, position: int, *, committed: bool) -> None:
        try:
            self._awaited = self._send_one(wanted, position, committed=committed)
        except BROKER_ERRORS:
            self.close()  # the next fetch makes a new connection, and meets the error if it lasts

    def _send_one(self, wanted: PlannedRange, position: int, *, committed: bool) -> _Asked:
        part = self._part(wanted, position, self._epoch)
        return self._send([part], most_bytes=self.fetch_bytes, committed=committed)

    def _brokers(self) -> BrokerSession:
        if self._session is None:
            self._session = BrokerSession(self.connection, self.timeout_s)
        return self._session

    def _part(self, wanted: PlannedRange, position: int, known: int | None) -> PartitionFetch:
        leader = self._brokers().leader(wanted.topic, wanted.partition)
        return PartitionFetch(wanted, position, leader, epoch_to_ask(wanted, leader, known))

    def _send(self, parts: Sequence[PartitionFetch], *, most_bytes: int, committed: bool) -> _Asked:
        """Ask the leader of these partitions."""
        limits = FetchLimits(most_bytes, self.fetch_bytes, committed=committed)
        broker = self._brokers().broker(parts[0].leader.node)
        broker.send(fetch_request(parts, limits))
        return _Asked(broker, parts)

    def _receive(self, asked: _Asked) -> list[tuple[PartitionFetch, Any]]:
        """What the leader answers for each partition."""
        response = asked.broker.receive()
        check(getattr(response, "error_code", 0))
        if response.throttle_time_ms:
            self.clock.pause_s(min(response.throttle_time_ms / 1000, self.retry_budget_s))
        return answers_of(response, asked.parts)


def _check_range(wanted: PlannedRange, code: int) -> None:
    """Raise what a leader answers for a range: RangeUnreadable if that will not pass by itself."""
    try:
        check(code)
    except kafka_errors.KafkaError as error:
        if may_pass(error):
            raise
        raise RangeUnreadable(f"{wanted} can't be read: {words_of(error)}", 2) from error
