"""The port `Log` over Kafka: each record has its own acknowledgement, and its own position or error."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaException, Producer

from keylane.adapters.kafka.clients import RejectionListener, fetch_metadata, make_client, reload_settings
from keylane.adapters.kafka.metrics import KafkaMetrics
from keylane.adapters.kafka.options import WAIT, KafkaSettings
from keylane.adapters.kafka.partitions import PartitionResolver
from keylane.adapters.kafka.shipment import Shipment
from keylane.errors import ConnectionRejected, UnknownTopic
from keylane.metrics.meter import NO_METER, Meter
from keylane.model.records import NewRecord
from keylane.ports import AppendResult, Deadline

UNKNOWN_TOPICS_LIMIT = 1_000
"""The client keeps each topic name that Kafka doesn't have (3 KB) and looks them all up again and again."""

STATISTICS_MS = 10_000
"""How often the client emits its statistics. A request reads them: between requests nothing runs."""

_METER_LOCK = threading.Lock()
"""The meter is for one thread; producers of several clusters work at the same time."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenClient:
    """A client, and what its brokers say of it."""

    client: Producer
    listener: RejectionListener


class KafkaProducer:
    """The producer of one cluster, for one request at a time: a deadline purges all that is unsent.

    `keylane_server.kafka.shared_producer` shares its client among requests: what is read of `self` before a
    request waits may be another client afterwards.

    1. Resolve the partition of each record.
    2. Hand all records to librdkafka, and wait for their reports until the deadline (`Shipment`).
    3. Send again the records that Kafka refused only because of other records in their batch and, with a new
       client, the records that a broker rejected because of outdated credentials.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        reload: Callable[[], KafkaSettings] | None = None,
        meter: Meter = NO_METER,
    ) -> None:
        """`reload` reads the settings again, with their current secrets, when a broker rejects the client."""
        self._settings = settings
        self._reload = reload
        self._meter = meter
        self._open: OpenClient | None = None
        self._partitions = PartitionResolver(settings)
        self._unknown_topics: set[str] = set()
        self._metrics = KafkaMetrics(meter)

    def append_all(self, records: Sequence[NewRecord], deadline: Deadline) -> list[AppendResult]:
        """See `ports.Log`. Never blocks past the deadline."""
        begun_s = deadline.clock.monotonic_s()
        shipment = Shipment(records, deadline, waits=self._settings.producer.queue_full == WAIT)
        for group in shipment.groups():
            self._send(shipment, group, deadline)
        results = shipment.results()
        with _METER_LOCK:
            self._metrics.sent(records, results, (deadline.clock.monotonic_s() - begun_s) * 1000)
            self._meter.gauge("QueueSize", len(self._open.client) if self._open is not None else 0)
        self._partitions.forget(shipment.failed_topics())
        self._unknown_topics |= {result.topic for result in results if isinstance(result, UnknownTopic)}
        if len(self._unknown_topics) > UNKNOWN_TOPICS_LIMIT:
            self.close()
        return results

    def close(self) -> None:
        """Drop the client; the next request makes a new one."""
        if self._open is not None:
            self._drop(self._open)
        self._unknown_topics.clear()

    def _send(self, shipment: Shipment, group: Sequence[int], deadline: Deadline) -> None:
        """Send records; if a broker rejects the client, send them once more with a new one."""
        was_connected = self._open is not None
        used = self._attempt(shipment, group, deadline)
        rejected = shipment.rejected(group)
        if rejected and (self._reload_secrets() or was_connected):
            # The password has changed, or the token expired while the function was frozen.
            self._drop(used)
            used = self._attempt(shipment, rejected, deadline)
        if shipment.is_client_broken or used.listener.refusal is not None:
            self._drop(used)

    def _attempt(self, shipment: Shipment, group: Sequence[int], deadline: Deadline) -> OpenClient:
        """Send records once; return the client that was used."""
        records = [shipment.records[index] for index in group]
        is_new = self._open is None
        used = self._open = self._open or self._make_client()
        client = self._client_of_request(used)
        if is_new and self._settings.producer.idempotence:
            self._acquire_producer_id(client, records[0].topic, deadline, used.listener)
        partitions = self._partitions.resolve(client, records, deadline, used.listener)
        shipment.send(client, group, partitions, used.listener, is_new=is_new)
        return used

    def _client_of_request(self, used: OpenClient) -> Producer:
        """Return the client as one request uses it."""
        return used.client

    def _drop(self, used: OpenClient) -> None:
        """Drop this client, unless it has been replaced already."""
        if self._open is used:
            self._open = None

    def _make_client(self) -> OpenClient:
        self._metrics.reset_totals()
        listener = RejectionListener(self._settings.security)
        statistics = {"stats_cb": self._take_statistics, "statistics.interval.ms": STATISTICS_MS}
        configuration = self._settings.configuration() | (statistics if self._meter.is_on else {})
        return OpenClient(make_client(Producer, configuration, self._settings.security, listener), listener)

    def _acquire_producer_id(
        self, client: Producer, topic: str, deadline: Deadline, listener: RejectionListener
    ) -> None:
        """Have librdkafka request the producer id that idempotence needs.

        By itself it looks for a broker to ask every 500 ms, but also whenever metadata arrives. The first
        metadata makes it drop the bootstrap connection; the second comes over a connection that stays.
        """
        with suppress(KafkaException, ConnectionRejected):
            for _ in range(2):
                fetch_metadata(client, topic, deadline, listener)

    def _reload_secrets(self) -> bool:
        """Reload the settings; return whether the credentials differ from the rejected ones."""
        before = self._settings.security
        if self._reload is not None:
            self._settings = reload_settings(self._reload, self._settings)
            self._partitions.settings = self._settings
        return self._settings.security != before

    def _take_statistics(self, text: str) -> None:
        with _METER_LOCK:
            self._metrics.statistics(text)
