"""Everything that a client can say about one topic, as conversations and streams (`wire`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from keylane_client import pages, reads, writes
from keylane_client.context import TopicScope
from keylane_client.encoding import segment
from keylane_client.errors import KeyAbsent
from keylane_client.parsing import parse_document, parse_layout
from keylane_client.tail import LATEST, tail_topic
from keylane_client.watch import watch_key
from keylane_client.wire import ApiRequest, Conversation, Stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

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
    from keylane_client.encoding import Key, Moment
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
    ) -> TopicCalls:
        """Return the topic with other terms for its reads; what is None stays as it is.

        `fields`: only these of JSON objects. `max_age`: an older state is Unavailable. `partial`: also read
        lanes that are being built. `headers`: the records' headers, which a read of one key else leaves out.
        """
        terms = self.terms
        return replace(
            self,
            terms=replace(
                terms,
                fields=terms.fields if fields is None else tuple(fields),
                max_age=terms.max_age if max_age is None else max_age,
                is_partial=terms.is_partial if partial is None else partial,
                has_headers=terms.has_headers if headers is None else headers,
            ),
        )

    def at(self, moment: Moment) -> TopicCalls:
        """Return the topic as of a moment: a time, or for reads of one key a position."""
        return replace(self, terms=replace(self.terms, as_of=moment))

    def read(self, key: Key) -> Conversation[Record]:
        """Read a key's record. Raises KeyAbsent if there is none."""
        return reads.read_key(self, key, reads.KeyRead())

    def get(
        self,
        key: Key,
        *,
        min_position: Position | None = None,
        wait_s: float | None = None,
        if_match: Record | Position | None = None,
        known: Record | None = None,
    ) -> Conversation[Record | None]:
        """Read a key's record, or None.

        `min_position`: wait until the state has it, for `wait_s` seconds (5 by default, 20 at most).
        `if_match`: raise PreconditionFailed if the record is another one. `known`: if it is still the record,
        it is not sent again, and is returned as fresh as it is now; with `wait_s` a change is waited for.
        """
        try:
            return (
                yield from reads.read_key(self, key, reads.KeyRead(min_position, wait_s, if_match, known))
            )
        except KeyAbsent:
            return None

    def get_many(
        self, keys: Iterable[Key], *, atomic: bool = False
    ) -> Conversation[dict[Key, Record | None]]:
        """Read any number of keys, 1,000 in a request; in one request, at one moment, if `atomic`."""
        self.terms.require_now("get_many")
        return (yield from reads.read_many(self, list(keys), atomic=atomic))

    def put(
        self, key: Key, value: Any, *, idempotency_key: str | None = None, respond_async: bool = False
    ) -> Conversation[Written]:
        """Write a record. Bytes and strings are written as they are, all else as JSON.

        With `respond_async` the answer comes once the record is in the write-ahead log, if there is one.
        """
        headers = self.context.write_headers(idempotency_key, is_async=respond_async)
        return (yield from writes.put(self, key, value, headers))

    def delete(
        self, key: Key, *, idempotency_key: str | None = None, respond_async: bool = False
    ) -> Conversation[Written]:
        """Write a tombstone: the key is absent from then on."""
        headers = self.context.write_headers(idempotency_key, is_async=respond_async)
        return (yield from writes.delete(self, key, headers))

    def push(
        self, records: Iterable[NewRecord], *, idempotency_key: str | None = None
    ) -> Conversation[list[Written | WriteFailed]]:
        """Write up to 10,000 records in one request; each has a result of its own, in the same order."""
        return (
            yield from writes.push(
                self, list(records), self.context.write_headers(idempotency_key, is_async=False)
            )
        )

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
        return pages.scan(self, pages.KeyRange(prefix, start, stop), page_size)

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

    def history(
        self,
        key: Key,
        *,
        start: Moment | None = None,
        stop: Moment | None = None,
        page_size: int | None = None,
    ) -> Stream[HistoryEntry]:
        """Read a key's records from `start` on and before `stop`, newest first.

        The topic needs `history_count` or `history_age`.
        """
        self.terms.require_now("a history")
        return pages.history(self, key, (start, stop), page_size)

    def watch(self, key: Key, *, wait_s: float = 20.0) -> Stream[Record | Absent]:
        """Read a key's record, then each change as it arrives, without end. Absent: it is not there (now).

        Where the service does not stream changes, each request waits up to `wait_s` for one. Several changes
        in a short time are seen as one.
        """
        self.terms.require_now("a watch")
        return watch_key(self, key, wait_s)

    def log(self, partition: int, offset: int | str = "earliest", *, limit: int = 100) -> Stream[LogRecord]:
        """Read raw records of a partition from an offset (or `earliest`, `latest`) up to its present end."""
        return pages.log(self, partition, offset, limit)

    def tail(self, start: Moment = LATEST, *, pause_s: float = 1.0) -> Stream[LogRecord]:
        """Read Kafka's records from `start` on, then new ones as they arrive, without end.

        `start`: a time, `earliest` or `latest`. Each partition is polled; `pause_s` is the pause after polls
        that brought nothing. The records of a partition are in order; retention may remove some unread.
        """
        self.terms.require_now("a tail")
        return tail_topic(self, start, pause_s)

    def layout(self) -> Conversation[TopicLayout]:
        """Read how the topic is kept: its lanes, their shards, and how far behind Kafka they are."""
        return parse_layout(parse_document((yield ApiRequest("GET", f"/topics/{segment(self.name)}"))))
