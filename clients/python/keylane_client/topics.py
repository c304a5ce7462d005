"""A topic, what is found in it and its snapshots, of the blocking and of the asynchronous client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from keylane_client.answers import V
from keylane_client.drivers import AsyncDriver, BlockingDriver
from keylane_client.finding import FindCalls
from keylane_client.methods import D, WithDriver, deriving, items_of, leading_to, result_of
from keylane_client.snapshots import SnapshotCalls
from keylane_client.synced_topics import AsyncSyncedTopic, SyncedTopic
from keylane_client.topic_calls import TopicCalls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator

    from keylane_client.answers import Absent, FoundPage, HistoryEntry, Position, Record, TopicVector
    from keylane_client.conditions import Conditions, Wanted
    from keylane_client.synced_records import OnChange
    from keylane_client.wire import AskedKey, Key, Moment


class _FindMethods(WithDriver[D, FindCalls]):
    # As with the methods of topics: what it gives depends on the model.
    if not TYPE_CHECKING:
        page = result_of(FindCalls.page)
    count = result_of(FindCalls.count)
    prefix = deriving(FindCalls.prefix)
    order_by = deriving(FindCalls.order_by)
    limit = deriving(FindCalls.limit)
    page_size = deriving(FindCalls.page_size)
    min_position = deriving(FindCalls.min_position)


class Find(_FindMethods[BlockingDriver], Generic[V]):
    """Records that are found by their fields: `for record in topic.find(...)` reads all pages."""

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[Record[V]]: ...
        def page(self, cursor: str | None = None) -> FoundPage[V]: ...

    else:
        __iter__ = items_of(FindCalls.records)


class AsyncFind(_FindMethods[AsyncDriver], Generic[V]):
    """Records that are found by their fields: `async for record in topic.find(...)` reads all pages."""

    if TYPE_CHECKING:

        def __aiter__(self) -> AsyncIterator[Record[V]]: ...
        def page(self, cursor: str | None = None) -> Awaitable[FoundPage[V]]: ...

    else:
        __aiter__ = items_of(FindCalls.records)


class _SnapshotMethods(WithDriver[D, SnapshotCalls]):
    @property
    def at(self) -> TopicVector | None:
        """Return where the records are, once the last one is read; before that where the reading began."""
        return self._calls.reader.at

    @property
    def is_over(self) -> bool:
        """Return whether all records have been read."""
        return self._calls.reader.is_over

    @property
    def lanes(self) -> int:
        """Return how many lanes there are; 0 before the first one is read."""
        return self._calls.reader.lanes

    @property
    def lanes_read(self) -> int:
        """Return how many lanes have been read."""
        return self._calls.reader.lanes_read

    @property
    def next_offset(self) -> int:
        """Return up to where the lane of the last record is read: it has all of its partition below this."""
        return self._calls.reader.next_offset

    parts = items_of(SnapshotCalls.parts)
    part = deriving(SnapshotCalls.part)


class Snapshot(_SnapshotMethods[BlockingDriver], Generic[V]):
    """All records of a topic: `for record in topic.snapshot()` reads them, then `at` says where they are."""

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[Record[V]]: ...

    else:
        __iter__ = items_of(SnapshotCalls.records)


class AsyncSnapshot(_SnapshotMethods[AsyncDriver], Generic[V]):
    """All records of a topic, as `Snapshot` has them, with `async for`."""

    if TYPE_CHECKING:

        def __aiter__(self) -> AsyncIterator[Record[V]]: ...

    else:
        __aiter__ = items_of(SnapshotCalls.records)


class _TopicMethods(WithDriver[D, TopicCalls]):
    # What these give depends on the topic's model, which `Method` cannot say: Topic and AsyncTopic do.
    if not TYPE_CHECKING:
        __getitem__ = result_of(TopicCalls.read)
        get = result_of(TopicCalls.get)
        get_many = result_of(TopicCalls.get_many)
        scan = items_of(TopicCalls.scan)
        find = leading_to(TopicCalls.find, Find, AsyncFind)
        history = items_of(TopicCalls.history)
        watch = items_of(TopicCalls.watch)
        snapshot = leading_to(TopicCalls.snapshot, Snapshot, AsyncSnapshot)
        sync = leading_to(TopicCalls.sync, SyncedTopic, AsyncSyncedTopic)
    contains = result_of(TopicCalls.contains)
    put = result_of(TopicCalls.put)
    delete = result_of(TopicCalls.delete)
    push = result_of(TopicCalls.push)
    keys = items_of(TopicCalls.keys)
    count = result_of(TopicCalls.count)
    log = items_of(TopicCalls.log)
    tail = items_of(TopicCalls.tail)
    layout = result_of(TopicCalls.layout)
    at = deriving(TopicCalls.at)
    reading = deriving(TopicCalls.reading)
    # A topic has keys without end: without this, `for` would try 0, 1, 2, ...
    __iter__ = None

    @property
    def name(self) -> str:
        """Return the topic's name."""
        return self._calls.name


class Topic(_TopicMethods[BlockingDriver], Generic[V]):
    """One topic. `topic[key]` is the key's record, or raises KeyAbsent, which is a KeyError.

    V: what its values are, the `model` with which it was made.
    """

    def __contains__(self, key: AskedKey) -> bool:
        """Return whether the key has a record, without reading its value."""
        return self.contains(key)

    if TYPE_CHECKING:

        def __getitem__(self, key: AskedKey) -> Record[V]: ...
        def get(
            self,
            key: AskedKey,
            *,
            min_position: Position | None = None,
            wait_s: float | None = None,
            if_match: Record[V] | Position | None = None,
            known: Record[V] | None = None,
        ) -> Record[V] | None: ...
        def get_many(
            self, keys: Iterable[AskedKey], *, atomic: bool = False
        ) -> dict[Key, Record[V] | None]: ...
        def scan(
            self,
            *,
            prefix: Key | None = None,
            start: Key | None = None,
            stop: Key | None = None,
            page_size: int | None = None,
        ) -> Iterator[Record[V]]: ...
        def find(self, conditions: Conditions | None = None, /, **fields: Wanted) -> Find[V]: ...
        def history(
            self,
            key: AskedKey,
            *,
            start: Moment | None = None,
            stop: Moment | None = None,
            page_size: int | None = None,
        ) -> Iterator[HistoryEntry[V]]: ...
        def watch(self, key: AskedKey, *, wait_s: float = 20.0) -> Iterator[Record[V] | Absent]: ...
        def snapshot(self, *, prefix: Key | None = None, where: Conditions | None = None) -> Snapshot[V]: ...
        def sync(
            self,
            *,
            prefix: Key | None = None,
            where: Conditions | None = None,
            on_change: OnChange | None = None,
        ) -> SyncedTopic[V]: ...


class AsyncTopic(_TopicMethods[AsyncDriver], Generic[V]):
    """One topic. `await topic[key]` is the key's record, or raises KeyAbsent, which is a KeyError.

    V: what its values are, the `model` with which it was made.
    """

    # `in` cannot be awaited: `await topic.contains(key)` can.
    __contains__ = None

    if TYPE_CHECKING:

        def __getitem__(self, key: AskedKey) -> Awaitable[Record[V]]: ...
        def get(
            self,
            key: AskedKey,
            *,
            min_position: Position | None = None,
            wait_s: float | None = None,
            if_match: Record[V] | Position | None = None,
            known: Record[V] | None = None,
        ) -> Awaitable[Record[V] | None]: ...
        def get_many(
            self, keys: Iterable[AskedKey], *, atomic: bool = False
        ) -> Awaitable[dict[Key, Record[V] | None]]: ...
        def scan(
            self,
            *,
            prefix: Key | None = None,
            start: Key | None = None,
            stop: Key | None = None,
            page_size: int | None = None,
        ) -> AsyncIterator[Record[V]]: ...
        def find(self, conditions: Conditions | None = None, /, **fields: Wanted) -> AsyncFind[V]: ...
        def history(
            self,
            key: AskedKey,
            *,
            start: Moment | None = None,
            stop: Moment | None = None,
            page_size: int | None = None,
        ) -> AsyncIterator[HistoryEntry[V]]: ...
        def watch(self, key: AskedKey, *, wait_s: float = 20.0) -> AsyncIterator[Record[V] | Absent]: ...
        def snapshot(
            self, *, prefix: Key | None = None, where: Conditions | None = None
        ) -> AsyncSnapshot[V]: ...
        def sync(
            self,
            *,
            prefix: Key | None = None,
            where: Conditions | None = None,
            on_change: OnChange | None = None,
        ) -> AsyncSyncedTopic[V]: ...
