"""How a process waits, and what its requests share: the one difference between Lambda and the server.

On Lambda a process has one request at a time, so each client is used by one request, and waits by blocking.
The standing server (`keylane_server`) has a runtime of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from keylane.errors import NotStreamed, Unavailable
from keylane.metrics.emf import EmfLog
from keylane.ports import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from keylane.adapters.kafka.options import KafkaSettings
    from keylane.adapters.redis.cluster import ClusterClient
    from keylane.adapters.redis.connections import RedisSettings
    from keylane.metrics.meter import Meter, MetricSink
    from keylane.model.changes import ChangeSource, Choose
    from keylane.ports import Log, State
    from keylane.query.layouts import Layouts

T = TypeVar("T")


class Runtime:
    """One request at a time. Client libraries are imported when they are first needed."""

    clock = Clock()
    write: Callable[[Any], Any] | None = None
    """Answers requests that write, for those that only read themselves; None where this process has none."""

    def open_cluster(self, settings: RedisSettings, meter: Meter) -> ClusterClient:
        """Return the client of a Redis Cluster."""
        from keylane.adapters.redis.cluster import Cluster  # noqa: PLC0415

        return Cluster(settings, meter)

    def open_layouts(self, state: State, ttl_s: float) -> Layouts:
        """Return the topics' layouts, which are kept for `ttl_s`."""
        from keylane.query.layouts import Layouts  # noqa: PLC0415

        return Layouts(state, self.clock, ttl_s)

    def open_producer(
        self, settings: KafkaSettings, reload: Callable[[], KafkaSettings] | None, meter: Meter
    ) -> Log:
        """Return the producer of a Kafka cluster; `reload` reads its settings again."""
        from keylane.adapters.kafka.producer import KafkaProducer  # noqa: PLC0415

        return KafkaProducer(settings, reload, meter)

    def open_port(
        self,
        make: Callable[[], T],
        *,
        is_single: bool = False,  # noqa: ARG002 (of the server, as the next one)
        busy: type[Unavailable] | None = None,  # noqa: ARG002
    ) -> T:
        """Return what `make` makes: an adapter whose methods block, for one caller at a time.

        `is_single`: there is to be only one, because it has connections of its own. `busy`: what its methods
        raise where many requests wait for them already; None: all of them wait.
        """
        return make()

    def open_stream(
        self,
        source: ChangeSource,
        position: Any,  # noqa: ARG002 (of the server, as the next one)
        is_wanted: Callable[[bytes], bool],  # noqa: ARG002
        choose: Choose | None,  # noqa: ARG002
    ) -> Any:
        """Return the body of a response that is a stream of changes. Raises NotStreamed, and as the source.

        `position`: from where on; `is_wanted`: of which keys; `choose`: which of their events, None for all.
        """
        raise NotStreamed(source.instead)

    def open_lines(
        self,
        begin: Callable[[], Iterator[bytes]],  # noqa: ARG002 (of the server, as the next one)
        coding: str | None,  # noqa: ARG002
    ) -> Any:
        """Return the body of a response that is as long as it takes. Raises NotStreamed, and as `begin`.

        `begin`: returns the body's pieces, each made when it is asked for; `coding`: a content coding.
        """
        raise NotStreamed("read the topic's keys page by page at /topics/{topic}/keys")

    def call_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make calls at the same time; return what they return. They raise nothing."""
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

        with ThreadPoolExecutor(len(calls) or 1) as pool:
            return [each.result() for each in [pool.submit(call) for call in calls]]

    def open_metrics(self, namespace: str) -> MetricSink:
        """Return where the numbers of meters go. `namespace`: that of CloudWatch."""
        return EmfLog(namespace)
