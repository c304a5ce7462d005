"""The runtime of the server: requests are greenlets, and share connections, layouts and producers."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from keylane.errors import Unavailable
from keylane.ports import Clock, SchemaEncoder
from keylane.wiring.runtime import Runtime
from keylane_server import greenlets
from keylane_server.lines import LineBodies, LineBody
from keylane_server.redis.shared_cluster import SharedCluster
from keylane_server.redis.shared_layouts import SharedLayouts
from keylane_server.streams import ChangeStreams, EventStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    from keylane.adapters.kafka.options import KafkaSettings
    from keylane.adapters.redis.cluster import ClusterClient
    from keylane.adapters.redis.connections import RedisSettings
    from keylane.metrics.meter import Meter, MetricSink
    from keylane.model.changes import ChangeSource, Choose
    from keylane.ports import Log, State
    from keylane.query.layouts import Layouts
    from keylane_server.kafka.shared_producer import SharedProducer

T = TypeVar("T")


THREADS = 16
"""Of each port, and of the connections to Redis: for these nobody waits behind a registry that hangs."""
ENCODING_THREADS = 8
"""For encoders by schemas. Five at most wait for a process that checks a value (`json_schema_bounded`)."""


class ServerRuntime(Runtime):
    """See `Runtime`. `executor`: for what blocks, besides ports and connections to Redis.

    `callers_limit`: how many requests wait for a port that knows what to raise for further ones.
    """

    clock = Clock(pause_s=greenlets.pause_s, await_s=greenlets.await_s, give_way=greenlets.give_way)

    def __init__(self, executor: Executor, metrics: MetricSink, callers_limit: int) -> None:
        self._executor = executor
        self._callers_limit = callers_limit
        self._own_executors = [ThreadPoolExecutor(THREADS, "keylane-redis")]
        self._metrics = metrics
        self._producers: list[SharedProducer] = []
        self.streams = ChangeStreams(metrics)
        self.lines = LineBodies(metrics, self.streams.count_cut)

    def open_cluster(self, settings: RedisSettings, meter: Meter) -> ClusterClient:
        """See `Runtime.open_cluster`."""
        return SharedCluster(settings, self._own_executors[0], meter)

    def open_layouts(self, state: State, ttl_s: float) -> Layouts:
        """See `Runtime.open_layouts`."""
        return SharedLayouts(state, self.clock, ttl_s)

    def open_producer(
        self, settings: KafkaSettings, reload: Callable[[], KafkaSettings] | None, meter: Meter
    ) -> Log:
        """See `Runtime.open_producer`."""
        from keylane_server.kafka.shared_producer import SharedProducer  # noqa: PLC0415 (a reader needs no Kafka)

        producer = SharedProducer(settings, reload, self._executor, meter)
        self._producers.append(producer)
        return producer

    def close(self) -> None:
        """Let go of all producers; what is unsent still is."""
        for producer in self._producers:
            producer.close()
        for executor in self._own_executors:
            executor.shutdown(wait=False, cancel_futures=True)

    def open_port(
        self, make: Callable[[], T], *, is_single: bool = False, busy: type[Unavailable] | None = None
    ) -> T:
        """See `Runtime.open_port`: each thread has an adapter of its own."""
        executor = ThreadPoolExecutor(1 if is_single else THREADS, "keylane-port")
        self._own_executors.append(executor)
        port: Any = _PortInThreads(make, executor)
        if busy is not None:
            port.bound(self._callers_limit, busy)
        opened: T = port
        return opened

    def open_stream(
        self,
        source: ChangeSource,
        position: Any,
        is_wanted: Callable[[bytes], bool],
        choose: Choose | None,
    ) -> EventStream:
        """See `Runtime.open_stream`."""
        return self.streams.open(source, position, is_wanted, choose)

    def open_lines(self, begin: Callable[[], Iterator[bytes]], coding: str | None) -> LineBody:
        """See `Runtime.open_lines`."""
        return self.lines.open(begin, coding)

    def call_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """See `Runtime.call_all`."""
        return greenlets.call_all(calls)

    def open_metrics(self, namespace: str) -> MetricSink:  # noqa: ARG002 (of CloudWatch)
        """See `Runtime.open_metrics`."""
        return self._metrics


class _PortInThreads:
    """An adapter whose methods run in threads, while their requests are suspended."""

    def __init__(self, make: Callable[[], Any], executor: Executor) -> None:
        self._make = make
        self._executor = executor
        self._encoding = ThreadPoolExecutor(ENCODING_THREADS, "keylane-encoding")
        self._local = threading.local()
        self._callers = 0
        self._callers_limit: float = math.inf
        self._busy: type[Unavailable] = Unavailable
        make()  # raises what is wrong with its settings, now and to the caller

    def bound(self, callers_limit: int, busy: type[Unavailable]) -> None:
        """Have calls raise `busy` where so many wait already: else they would take the places of all."""
        self._callers_limit = callers_limit
        self._busy = busy

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*arguments: Any, **options: Any) -> Any:
            if self._callers >= self._callers_limit:
                raise self._busy(f"{self._callers} requests wait for its answers already")
            self._callers += 1
            try:
                found = greenlets.call_in_thread(self._executor, self._call, name, arguments, options)
            finally:
                self._callers -= 1
            return self._in_thread(found) if isinstance(found, SchemaEncoder) else found

        return call

    def _in_thread(self, encoder: SchemaEncoder) -> SchemaEncoder:
        """Return an encoder that runs in a thread: a schema's check may take its time."""
        return encoder._replace(encode=partial(greenlets.call_in_thread, self._encoding, encoder.encode))

    def _call(self, name: str, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
        if not hasattr(self._local, "adapter"):
            self._local.adapter = self._make()
        return getattr(self._local.adapter, name)(*arguments, **options)
