"""The port `Log` for all requests of the process: `KafkaProducer` over one shared client."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from keylane.adapters.kafka.options import PLAINTEXT, KafkaSettings
from keylane.adapters.kafka.producer import IDLE_S, Begun, KafkaProducer, OpenClient
from keylane.adapters.kafka.shipment import Group, Shipment
from keylane.metrics.meter import NO_METER, Meter
from keylane.model.records import NewRecord
from keylane.ports import AppendResult, Deadline
from keylane_server.greenlets import call_in_thread, run_request
from keylane_server.kafka.shared_client import RequestClient, SharedClient

LINGER_MS = 1
"""A request can't have its records sent at once, as `flush` does; more would be waited for by each write."""


class BegunWrite(NamedTuple):
    """A record that was handed over: `begun_s` is as of `Clock.monotonic_s`."""

    shipment: Shipment
    begun: Begun
    client: RequestClient
    deadline: Deadline
    begun_s: float


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

    def begin(self, record: NewRecord, deadline: Deadline) -> "BegunWrite | None":
        """Hand a record over without waiting for anything.

        None where something has to be asked, looked at or waited for first: `append_all` does so.
        """
        used, begun_s = self._open.get(False), deadline.clock.monotonic_s()
        if used is None or used.listener.refusal is not None:
            return None
        if self._refusals and self._refusals.is_like_refused(record, deadline.clock):
            return None
        if begun_s - self._used_s > IDLE_S and self._settings.security.protocol != PLAINTEXT:
            return None
        partition = self._partitions.known(record, begun_s)
        if partition is None:
            return None
        client: Any = self._client_of_request(used)
        shipment = self._ship([record], deadline)
        attempt = shipment.begin(client, partition, used.listener)
        if attempt is None:
            return None
        self._used_s = begun_s
        return BegunWrite(shipment, Begun(used, attempt, Group([0])), client, deadline, begun_s)

    async def result(self, write: "BegunWrite") -> AppendResult:
        """Wait for a record that was handed over; return its result. Raises KeylaneError as `append_all`."""
        shipment, begun_s = write.shipment, write.begun_s
        await write.client.reported(write.deadline, write.begun.used.listener)
        results = shipment.written
        if results is None:
            go_on = partial(self._send_all, shipment, write.deadline, begun_s, write.begun)
            results = await run_request(go_on)
        else:
            self._note_sent(shipment.records, results, (write.deadline.clock.monotonic_s() - begun_s) * 1000)
        return results[0]

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
