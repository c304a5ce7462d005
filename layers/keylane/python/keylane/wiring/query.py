"""Builds what the query function works with. It imports nothing of Kafka, of the log, or of AWS."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import keylane.adapters.redis.cluster  # noqa: F401 (the client library loads in the init phase)
from keylane.adapters.aws import references
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import QuerySettings, renewable, renewable_registry
from keylane.query.changes import ChangeReader
from keylane.query.decoding import ValueDecoder
from keylane.query.store import Store
from keylane.wiring import runtime
from keylane.wiring.metrics import check_metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.metrics.meter import Meter
    from keylane.model.changes import ChangeSource
    from keylane.ports import LogReader, Schemas


@dataclass(frozen=True, slots=True)
class QueryParts:
    """What the query function works with.

    `schemas` opens the Schema Registry for the first value of it, `log` Kafka for changes of whole topics.
    """

    settings: QuerySettings
    store: Store
    schemas: Callable[[], Schemas]
    log: Callable[[], LogReader]

    @property
    def now_ms(self) -> int:
        """The wall-clock time, ms since 1970."""
        return self.store.clock.now_ms()

    def decoder(self, *, as_bytes: bool) -> ValueDecoder:
        """Return a decoder for the values of one request."""
        timeout_ms = self.settings.registry_timeout_ms
        return ValueDecoder(self.schemas, self.store.clock, timeout_ms, as_bytes=as_bytes)

    @property
    def change_reader(self) -> ChangeReader:
        """What reads changes; values are decoded."""
        return ChangeReader(self.store, self.log, partial(self.decoder, as_bytes=False))

    def open_stream(self, source: ChangeSource, since: Any, prefix: bytes = b"") -> Any:
        """Return a stream of changes, of keys that begin with `prefix`. Raises as `Runtime.open_stream`."""
        return runtime.current().open_stream(source, since, lambda key: key.startswith(prefix))


def build_query(meter: Meter) -> QueryParts:
    """Build all from the environment. Raises SettingsError, SettingsUnavailable."""
    check_metrics()
    settings = QuerySettings.from_environment(references.resolved(os.environ))
    use = runtime.current()
    state = RedisState(use.open_cluster(renewable(settings.redis, os.environ), meter))
    meter.count("ColdStarts", 1, "query")
    store = Store(state, use.open_layouts(state, settings.layout_ttl_s), use.clock)
    return QueryParts(settings, store, cache(_open_schemas), cache(_open_log))


def _open_log() -> LogReader:
    return runtime.current().open_port(_make_log, is_single=True)


def _make_log() -> LogReader:
    from keylane.wiring.explore import open_reader  # noqa: PLC0415 (a function never needs it)

    return open_reader()


def _open_schemas() -> Schemas:
    return runtime.current().open_port(_make_schemas)


def _make_schemas() -> Schemas:
    from keylane.adapters.registry.client import RegistryClient  # noqa: PLC0415
    from keylane.adapters.registry.decoders import RegistryDecoders  # noqa: PLC0415

    return RegistryDecoders(RegistryClient(renewable_registry(os.environ)))
