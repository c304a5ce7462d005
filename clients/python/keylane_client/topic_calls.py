"""All that a client can ask about a topic, as conversations and streams (`wire`)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from keylane_client import batching, following, pages, reads, writes
from keylane_client.answers import (
    Absent,
    HistoryEntry,
    LogRecord,
    Position,
    Record,
    TopicLayout,
    WriteFailed,
    Written,
)
from keylane_client.conditions import Conditions, Wanted, condition_of, texts_of
from keylane_client.context import TopicScope
from keylane_client.errors import InvalidArgument, KeyAbsent
from keylane_client.finding import FindCalls
from keylane_client.parsing import parse_document, parse_layout
from keylane_client.snapshots import ChosenRecords, SnapshotCalls
from keylane_client.synced_records import OnChange
from keylane_client.syncing import SyncCalls
from keylane_client.wire import (
    ApiRequest,
    AskedKey,
    Conversation,
    Key,
    Moment,
    Stream,
    encode_key,
    encode_value,
    plain_key,
    segment,
)
from keylane_client.writes import NewRecord


@dataclass(frozen=True, slots=True)
class TopicCalls(TopicScope):
    """The calls about a topic."""

    def reading(
        self,
        *,
        fields: Sequence[str] | None = None,
        max_age: timedelta | None = None,
        partial: bool | None = None,
        headers: bool | None = None,
        event: bool | None = None,
    ) -> TopicCalls:
        """Return the topic with other terms for its reads; what is None stays as it is.

        `fields`: only these of JSON objects. `max_age`: an older state is Unavailable. `partial`: also read
        lanes that are being built. `headers`: the records' headers, which a read of one key else leaves out.
        `event`: of a database's topic the change events, not their rows.
        """
        changes = {
            "fields": None if fields is None else tuple(fields),
            "max_age": max_age,
            "is_partial": partial,
            "has_headers": headers,
            "has_events": event,
        }
        given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
        return replace(self, terms=replace(self.terms, **given))

    def contains(self, key: AskedKey) -> Conversation[bool]:
        """Return whether the key has a record, without reading its value. `key in topic` is the same."""
        return reads.has_key(self, plain_key(key))

    def at(self, moment: Moment) -> TopicCalls:
        """Return the topic as of a moment: a time, or for reads of one key a position."""
        return replace(self, terms=replace(self.terms, as_of=moment))

    def read(self, key: AskedKey) -> Conversation[Record]:
        """Read a key's record. Raises KeyAbsent if there is none."""
        return self.shaped((yield from reads.read_key(self, plain_key(key), reads.KeyRead())))

    def get(
        self,
        key: AskedKey,
        *,
        min_position: Position | None = None,
        wait_s: float | None = None,
        if_match: Record | Position | None = None,
        known: Record | None = None,
    ) -> Conversation[Record | None]:
        """Read a key's record, or None. Of a topic with typed keys `key` may be its number, or its fields.

        `min_position`: wait until the state has it, for `wait_s` seconds (5 by default, 20 at most).
        `if_match`: raise PreconditionFailed if the record is another one. `known`: if it is still the record,
        it is not sent again, and is returned as fresh as it is now; with `wait_s` a change is waited for.
        """
        key, read = plain_key(key), reads.KeyRead(min_position, wait_s, if_match, known)
        try:
            if self._batches(key) and read == reads.KeyRead():
                return self.shaped((yield from batching.get(self, key)))
            return self.shaped((yield from reads.read_key(self, key, read)))
        except KeyAbsent:
            return None

    def get_many(
        self, keys: Iterable[AskedKey], *, atomic: bool = False
    ) -> Conversation[dict[Key, Record | None]]:
        """Read any number of keys, 1,000 in a request; in one request, at one moment, if `atomic`.

        A key that is given as a number or by its fields is a text in the result, as `plain_key` returns it.
        """
        self.terms.require_now("get_many")
        found = yield from reads.read_many(self, list(map(plain_key, keys)), atomic=atomic)
        return {key: self.shaped(record) for key, record in found.items()}

    def put(
        self,
        key: Key,
        value: Any,
        *,
        headers: writes.RecordHeaders = (),
        idempotency_key: str | None = None,
        respond_async: bool = False,
        schema: int | str | None = None,
    ) -> Conversation[Written]:
        """Write a record. Bytes and strings are written as they are, all else as JSON.

        `headers`: for Kafka, by name or as pairs. With `respond_async` the answer comes once the record is in
        the write-ahead log, if there is one. `schema`: the value is JSON, and is written by this schema of
        the topic's subject, its id or "latest"; with "raw" it is written though readers could not read it.
        """
        given = self.context.write_headers(idempotency_key, is_async=respond_async)
        if schema is not None:
            if headers:
                raise InvalidArgument("a record with headers takes no schema")
            return (yield from writes.put(self, key, value, given, schema))
        if headers:
            encode_key(key)
            return (
                yield from writes.write_record(
                    self, NewRecord(key, encode_value(value)[0], headers=headers), given
                )
            )
        if not given and self._batches(key):
            data, _ = encode_value(value)
            if written := (yield from batching.write(self, NewRecord(key, data))):
                return written
        return (yield from writes.put(self, key, value, given))

    def delete(
        self,
        key: Key,
        *,
        headers: writes.RecordHeaders = (),
        idempotency_key: str | None = None,
        respond_async: bool = False,
    ) -> Conversation[Written]:
        """Write a tombstone: the key is absent from then on."""
        given = self.context.write_headers(idempotency_key, is_async=respond_async)
        if headers:
            encode_key(key)
            return (yield from writes.write_record(self, NewRecord(key, None, headers=headers), given))
        if (
            not given
            and self._batches(key)
            and (written := (yield from batching.write(self, NewRecord(key, None))))
        ):
            return written
        return (yield from writes.delete(self, key, given))

    def _batches(self, key: Key) -> bool:
        """Whether what is asked of this key now may be asked together with others. Raises as `encode_key`."""
        return self.context.is_batching and self.terms.as_of is None and bool(encode_key(key))

    def push(
        self, records: Iterable[NewRecord], *, idempotency_key: str | None = None
    ) -> Conversation[list[Written | WriteFailed]]:
        """Write up to 10,000 records in one request; each has a result of its own, in the same order."""
        headers = self.context.write_headers(idempotency_key, is_async=False)
        return writes.push(self, list(records), headers)

    def scan(
        self,
        *,
        prefix: Key | None = None,
        start: Key | None = None,
        stop: Key | None = None,
        page_size: int | None = None,
    ) -> Stream[Record]:
        """Read the records of a prefix, or of the keys from `start` on and below `stop`, in bytewise order.

        The topic needs `index = true`. As of a time, a key whose history is too short is HistoryTooShort.
        """
        return self.shaped_stream(pages.scan(self, pages.KeyRange(prefix, start, stop), page_size))

    def keys(
        self,
        *,
        prefix: Key | None = None,
        start: Key | None = None,
        stop: Key | None = None,
        page_size: int | None = None,
    ) -> Stream[str | bytes]:
        """Read keys without their records, as `scan` does."""
        return pages.scan_keys(self, pages.KeyRange(prefix, start, stop), page_size)

    def count(self) -> Conversation[int]:
        """Count the keys that have a record. The topic needs `index = true`."""
        self.terms.require_now("a count")
        return reads.count_keys(self)

    def find(self, conditions: Conditions | None = None, /, **fields: Wanted) -> FindCalls:
        """Return what finds records by fields: iterate over it, or call `count` or `page`. Nothing is sent.

        All conditions must be met: values, or what `between`, `starting_with` and `all_of` return. A mapping
        takes names with a dot, as in `{"customer.country": "NL"}`. The topic needs `fields`.
        """
        self.terms.require_now("find")
        asked: dict[str, tuple[str, ...]] = {}
        for name, wanted in (*(conditions or {}).items(), *fields.items()):
            asked[name] = asked.get(name, ()) + condition_of(wanted).texts
        return FindCalls(self, asked)

    def history(
        self,
        key: AskedKey,
        *,
        start: Moment | None = None,
        stop: Moment | None = None,
        page_size: int | None = None,
    ) -> Stream[HistoryEntry]:
        """Read a key's records from `start` on and before `stop`, newest first.

        The topic needs `history_count` or `history_age`.
        """
        self.terms.require_now("a history")
        return self.shaped_stream(pages.history(self, plain_key(key), (start, stop), page_size))

    def watch(self, key: AskedKey, *, wait_s: float = 20.0) -> Stream[Record | Absent]:
        """Read a key's record, then each change as it arrives, without end. Absent: it is not there (now).

        Where the service does not stream changes, each request waits up to `wait_s` for one. Several changes
        in a short time are seen as one.
        """
        self.terms.require_now("a watch")
        return self.shaped_stream(following.KeyWatch(self, plain_key(key), wait_s).stream())

    def snapshot(self, *, prefix: Key | None = None, where: Conditions | None = None) -> SnapshotCalls:
        """Return all records of the topic as of one position: iterate over it. Nothing is sent.

        `prefix`: of keys that begin with this. `where`: conditions on fields, as `find` takes them.
        """
        return SnapshotCalls(ChosenRecords(self, prefix, texts_of(where or {})))

    def sync(
        self,
        *,
        prefix: Key | None = None,
        where: Conditions | None = None,
        on_change: OnChange | None = None,
    ) -> SyncCalls:
        """Return a mapping that has all records of the topic, and stays current within a `with` statement.

        `prefix` and `where`: as of a snapshot. `on_change` is called with each record that is put or changed,
        and with an Absent for each that goes, once the mapping has it; not for what is there at first. Raises
        InvalidArgument for one that would have to be awaited.
        """
        if inspect.iscoroutinefunction(on_change):
            raise InvalidArgument("on_change is called, and not awaited: let a function start a task")
        return SyncCalls(ChosenRecords(self, prefix, texts_of(where or {})), on_change)

    def log(
        self, partition: int, offset: int | str = following.EARLIEST, *, page_size: int | None = None
    ) -> Stream[LogRecord]:
        """Read raw records of a partition from an offset (or `earliest`, `latest`) up to its present end."""
        return pages.log(self, partition, offset, page_size)

    def tail(self, start: Moment = following.LATEST, *, pause_s: float = 1.0) -> Stream[LogRecord]:
        """Read Kafka's records from `start` on, then new ones as they arrive, without end.

        `start`: a time, `earliest` or `latest`. Each partition is polled; `pause_s` is the pause after polls
        that brought nothing. The records of a partition are in order; retention may remove some unread.
        """
        self.terms.require_now("a tail")
        return following.tail(self, start, pause_s)

    def layout(self) -> Conversation[TopicLayout]:
        """Read how the topic is kept: its lanes, their shards, and how far behind Kafka they are."""
        return parse_layout(parse_document((yield ApiRequest("GET", f"/topics/{segment(self.name)}"))))
