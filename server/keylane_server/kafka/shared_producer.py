"""The port `Log` for all requests of the process: `KafkaProducer` over one shared client."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any

from keylane.adapters.kafka.options import KafkaSettings
from keylane.adapters.kafka.producer import KafkaProducer, OpenClient
from keylane.metrics.meter import NO_METER, Meter
from keylane_server.greenlets import call_in_thread
from keylane_server.kafka.shared_client import SharedClient

LINGER_MS = 1
"""A request can't have its records sent at once, as `flush` does; more would be waited for by each write."""


class SharedProducer(KafkaProducer):
    """See `KafkaProducer`: the same resolution of partitions, results and repetitions."""

    shares_batches = True

    def __init__(
        self,
        settings: KafkaSettings,
        reload: Callable[[], KafkaSettings] | None,
        executor: Executor,
        meter: Meter = NO_METER,
    ) -> None:
        reload_here = None
        if reload is not None:
            read = reload
            reload_here = lambda: bounded(call_in_thread(executor, read))  # noqa: E731
        super().__init__(bounded(settings), reload_here, meter)
        self._executor = executor
        self._loop = asyncio.get_running_loop()

    def _make_client(self, *, is_alone: bool) -> OpenClient:
        made = super()._make_client(is_alone=is_alone)
        client: Any = SharedClient(made.client, self._executor)
        return OpenClient(client, made.listener)

    def _client_of_request(self, used: OpenClient) -> Any:
        client: Any = used.client  # what _make_client made
        return client.of_request()

    def _drop(self, used: OpenClient) -> None:
        if used in self._open.values():
            used.client.close()
        super()._drop(used)

    def _take_statistics(self, text: str) -> None:
        """Librdkafka's callback, in the client's thread: the meter is for the loop's."""
        self._loop.call_soon_threadsafe(partial(super()._take_statistics, text))


def bounded(settings: KafkaSettings) -> KafkaSettings:
    """Return the settings with which no record outlives its request for long, and none waits for others.

    A function purges what is unsent when its time is over. Here a record expires by itself, so its time may
    not be longer than the request's.
    """
    given = settings.producer
    timeout_ms = min(given.message_timeout_ms or settings.timeout_ms, settings.timeout_ms)
    return replace(
        settings,
        producer=replace(given, message_timeout_ms=timeout_ms, linger_ms=min(given.linger_ms, LINGER_MS)),
    )
