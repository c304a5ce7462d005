"""Builds what the query function works with. It imports nothing of Kafka, of the log, or of AWS."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import keylane.adapters.redis.cluster  # noqa: F401 (the client library loads in the init phase)
from keylane.access.scopes import Scope
from keylane.adapters.aws import references
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import QuerySettings, renewable_redis
from keylane.metrics.meter import Meter
from keylane.model.changes import ChangeSource, Choose
from keylane.model.records import Layout, Record
from keylane.ports import Deadline, LogReader, Schemas, WaitBudget
from keylane.query.changes import ChangeReader
from keylane.query.decoding import ValueDecoder
from keylane.query.store import Reading, Store, begin_reading
from keylane.query.typed_keys import KeyFinder
from keylane.wiring.application import check_metrics
from keylane.wiring.runtime import Runtime
from keylane.wiring.schemas import reading_schemas

OpenStream = Callable[[ChangeSource, Any, Callable[[bytes], bool], Choose | None], Any]
MOST_CALLERS = 1_024
OpenLines = Callable[[Callable[[], Iterator[bytes]], str | None], Any]


@dataclass(frozen=True, slots=True)
class QueryParts:
    """What the query function works with.

    `schemas` opens the Schema Registry for the first value of it, `log` Kafka for changes of whole topics.
    `open_stream`, `open_lines`, `write`: those of `Runtime`. `of_callers`: by the `id` of a scope, which is
    kept, what its caller reads with: the server has one scope for a token and topic.
    """

    settings: QuerySettings
    store: Store
    schemas: Callable[[], Schemas]
    log: Callable[[], LogReader]
    open_stream: OpenStream
    open_lines: OpenLines
    write: Callable[[Any], Any] | None = None
    of_callers: "dict[int, tuple[Scope, QueryParts]]" = field(default_factory=dict)

    @property
    def now_ms(self) -> int:
        """The wall-clock time, ms since 1970."""
        return self.store.clock.now_ms()

    def within(self, scope: Scope) -> "QueryParts":
        """Return what a caller with this scope reads with: as if there were nothing else."""
        known = self.of_callers.get(id(scope))
        if known is None:
            if len(self.of_callers) >= MOST_CALLERS:
                self.of_callers.clear()
            known = self.of_callers[id(scope)] = scope, self._within(scope)
        return known[1]

    def _within(self, scope: Scope) -> "QueryParts":
        from keylane.query.row_scopes import RowScopes  # noqa: PLC0415 (few callers have one)

        def decode(layout: Layout, record: Record) -> Record:
            return self.decoder(self.registry_wait(), as_bytes=False).decode(layout, record)

        def keys_of(layout: Layout, key: bytes) -> tuple[bytes, ...]:
            return self.keys(self.registry_wait()).keys_shown_as(layout, key)

        return replace(self, store=replace(self.store, scopes=RowScopes(scope, decode, keys_of)))

    def reading(self, topic: str) -> Reading:
        """Begin to read a topic. Raises UnknownTopic, StateUnavailable, CorruptState."""
        deadline = Deadline.after_ms(self.settings.state_timeout_ms, self.store.clock)
        return begin_reading(self.store, topic, deadline)

    def registry_wait(self) -> WaitBudget:
        """Return what one request may wait for the Schema Registry, in all."""
        return WaitBudget(self.settings.registry_timeout_ms, self.store.clock)

    def decoder(
        self, registry_wait: WaitBudget, *, as_bytes: bool, events: bool = False, raw_keys: bool = False
    ) -> ValueDecoder:
        """Return a decoder for the values and keys of one request."""
        given = {"as_bytes": as_bytes, "events": events, "raw_keys": raw_keys}
        asked = ValueDecoder(self.schemas, registry_wait, **given)
        if self.store.scopes is None:
            return asked
        from keylane.query.scoped_decoding import ScopedDecoder  # noqa: PLC0415 (as above)

        return ScopedDecoder(asked, ValueDecoder(self.schemas, registry_wait), self.store.scopes)

    def keys(self, registry_wait: WaitBudget) -> KeyFinder:
        """Return what finds the keys of records, from those of one request."""
        return KeyFinder(self.schemas, registry_wait)

    @property
    def change_reader(self) -> ChangeReader:
        """What reads changes; values are decoded, those of each page within a budget of their own."""

        def open_decoder(*, raw_keys: bool = False) -> ValueDecoder:
            return self.decoder(self.registry_wait(), as_bytes=False, raw_keys=raw_keys)

        return ChangeReader(self.store, self.log, open_decoder)


def build_query(runtime: Runtime, environment: Mapping[str, str], meter: Meter) -> QueryParts:
    """Build all from the environment. Raises SettingsError, SettingsUnavailable."""
    check_metrics(environment)
    redis = renewable_redis(environment)
    settings = QuerySettings.from_environment(references.resolved(environment))
    state = RedisState(runtime.open_cluster(redis, meter))
    meter.count("ColdStarts", 1, "query")
    store = Store(state, runtime.open_layouts(state, settings.layout_ttl_s), runtime.clock)
    open_schemas = reading_schemas(runtime, environment, settings.registry_timeout_ms)
    open_log = cache(partial(runtime.open_port, partial(_make_log, environment), is_single=True))
    return QueryParts(
        *(settings, store, open_schemas, open_log, runtime.open_stream, runtime.open_lines, runtime.write)
    )


def _make_log(environment: Mapping[str, str]) -> LogReader:
    from keylane.wiring.explore import open_reader  # noqa: PLC0415 (a function never needs it)

    return open_reader(environment)
