"""The records of a topic as a mapping that stays current: in a thread, or in a task of the event loop."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic

from keylane_client.answers import Record, TopicVector, V
from keylane_client.drivers import AsyncDriver, BlockingDriver, Halt
from keylane_client.errors import SyncFailed
from keylane_client.synced_records import SyncedRecords
from keylane_client.syncing import SyncCalls
from keylane_client.wire import Key, normal_key

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

_LEAVE_S = 5.0
"""How long the thread may take to end; what it waits for then has a timeout of its own."""


class _SyncedMapping(Mapping[Key, Record[V]], Generic[V]):
    """Key -> record, read-only. Iterations are over the records as they were when these began.

    Every read raises SyncFailed once the records are not kept current any more.
    """

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def __getitem__(self, key: Any) -> Record[V]:
        found = self._current.get(normal_key(key))
        if found is None:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        return self._current.get(normal_key(key)) is not None  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Key]:
        return iter(self.copy())

    def __len__(self) -> int:
        return self._current.count()

    def items(self) -> ItemsView[Key, Record[V]]:
        """Return keys and records, as they are at this moment."""
        return self.copy().items()

    def values(self) -> ValuesView[Record[V]]:
        """Return the records, as they are at this moment."""
        return self.copy().values()

    def copy(self) -> dict[Key, Record[V]]:
        """Return all records, as they are at this moment."""
        return self._current.copy()

    @property
    def at(self) -> TopicVector:
        """Return where the records are: they have at least all below it."""
        at = self._current.at
        if at is None:
            raise SyncFailed("the records are read within a `with` statement")
        return at

    @property
    def age(self) -> timedelta:
        """Return how long ago the service last said where its changes are, or that there are no others.

        It does so every 15 s at least. The age grows while the service cannot be reached.
        """
        return timedelta(seconds=time.monotonic() - self._current.confirmed_s)

    @property
    def trouble(self) -> BaseException | None:
        """Return why the records are not current just now; None while they are."""
        return self._current.trouble

    def _failure_to_begin(self) -> BaseException | None:
        """Return why there are no records at all. What has failed since they came is for those who read."""
        records = self._calls.records
        return records.failure if records.at is None else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._calls.name!r}, at={str(self._calls.records.at)!r})"

    @property
    def _current(self) -> SyncedRecords:
        records = self._calls.records
        if records.failure is not None:
            raise SyncFailed(
                f"topic {self._calls.name!r} is not kept current any more: {records.failure}"
            ) from records.failure
        return records


class SyncedTopic(_SyncedMapping[V]):
    """The records of a topic as a mapping that a thread keeps current: `with topic.sync() as orders:`.

    It begins once all records are there. After the `with` statement it stays as it is.
    """

    def __init__(self, driver: BlockingDriver, calls: SyncCalls) -> None:
        super().__init__(calls)
        self._driver = driver
        self._halt = Halt()
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"keylane-sync-{calls.name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._is_ready.wait()
        except BaseException:
            self._halt.set()
            raise
        if (failure := self._failure_to_begin()) is not None:
            raise failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._halt.set()
        self._thread.join(_LEAVE_S)

    def _run(self) -> None:
        try:
            for _ in self._driver.iterate(self._calls.stream(), self._halt):
                self._is_ready.set()
        except BaseException as error:  # noqa: BLE001 (also of the caller's hook: whoever reads gets it)
            # Such as SystemExit, which ends a thread without a word.
            if not self._halt.is_set:
                self._calls.records.failure = error
        finally:
            self._is_ready.set()


class AsyncSyncedTopic(_SyncedMapping[V]):
    """As `SyncedTopic`, kept current by a task: `async with topic.sync() as orders:`. Reads do not wait."""

    def __init__(self, driver: AsyncDriver, calls: SyncCalls) -> None:
        super().__init__(calls)
        self._driver = driver
        self._group: Any = None
        self._is_ready: Any = None

    async def __aenter__(self) -> Self:
        import anyio  # noqa: PLC0415 (as in `drivers`: for asynchronous clients alone)

        self._is_ready = anyio.Event()
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(self._run)
        try:
            await self._is_ready.wait()
        except BaseException:
            await self.__aexit__(*sys.exc_info())
            raise
        if (failure := self._failure_to_begin()) is not None:
            await self.__aexit__(None, None, None)
            raise failure
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._group.cancel_scope.cancel()
        # Without the error, which the group would put into a group of errors.
        await self._group.__aexit__(None, None, None)

    async def _run(self) -> None:
        try:
            async for _ in self._driver.iterate(self._calls.stream()):
                self._is_ready.set()
        except Exception as error:  # noqa: BLE001 (also of the caller's hook: whoever reads gets it)
            self._calls.records.failure = error
        finally:
            self._is_ready.set()
