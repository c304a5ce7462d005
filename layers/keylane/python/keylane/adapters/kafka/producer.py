"""The port `Log` over Kafka: each record has its own acknowledgement, and its own position or error."""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from confluent_kafka import KafkaException, Producer

from keylane.adapters.kafka.clients import RejectionListener, fetch_metadata, make_client, reload_settings
from keylane.adapters.kafka.metrics import KafkaMetrics
from keylane.adapters.kafka.options import PLAINTEXT, WAIT, KafkaSettings
from keylane.adapters.kafka.partitions import PartitionResolver
from keylane.adapters.kafka.refusals import Refusals
from keylane.adapters.kafka.shipment import Group, Shipment
from keylane.errors import ConnectionRejected, KeylaneError, UnknownTopic
from keylane.metrics.meter import NO_METER, Meter
from keylane.model.records import NewRecord
from keylane.ports import AppendResult, Deadline

UNKNOWN_TOPICS_LIMIT = 1_000
"""The client keeps each topic name that Kafka doesn't have (3 KB) and looks them all up again and again."""

STATISTICS_MS = 10_000
"""How often the client emits its statistics. A request reads them: between requests nothing runs."""

IDLE_S = 10.0
"""A client that has sent nothing for so long may have lost its connections."""

_log = logging.getLogger("keylane.kafka")
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
    3. Send again, alone, the records that Kafka refused with their batch, by a client whose batches have one
       record.
    4. Send again, with a new client, what surely was not sent: a broker rejected outdated credentials, or the
       client had ended with a fatal error. What may have been written is not sent again.
    """

    shares_batches = False
    """Whether records of several requests share batches."""

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
        self._open: dict[bool, OpenClient] = {}
        """By whether each record is alone in its batch."""
        self._refusals = Refusals()
        self._used_s = 0.0
        self._partitions = PartitionResolver(settings)
        self._unknown_topics: set[str] = set()
        self._metrics = KafkaMetrics(meter)

    def append_all(self, records: Sequence[NewRecord], deadline: Deadline) -> list[AppendResult]:
        """See `ports.Log`. Never blocks past the deadline."""
        begun_s = deadline.clock.monotonic_s()
        waits = self._settings.producer.queue_full == WAIT
        shipment = Shipment(
            records, deadline, self._refusals, waits=waits, shares_batches=self.shares_batches
        )
        for group in shipment.groups():
            try:
                self._send(shipment, group, deadline)
            except KeylaneError as error:
                # Of settings that were rotated meanwhile, say. What has its report keeps it.
                if not shipment.fail_unreported(group.indices, error):
                    raise
        results = shipment.results()
        with _METER_LOCK:
            self._metrics.sent(records, results, (deadline.clock.monotonic_s() - begun_s) * 1000)
            self._meter.gauge("QueueSize", sum(len(each.client) for each in self._open.values()))
        self._partitions.forget(shipment.failed_topics())
        self._unknown_topics |= {result.topic for result in results if isinstance(result, UnknownTopic)}
        if len(self._unknown_topics) > UNKNOWN_TOPICS_LIMIT:
            self.close()
        return results

    def close(self) -> None:
        """Drop the clients; the next request makes new ones."""
        for used in list(self._open.values()):
            self._drop(used)
        self._unknown_topics.clear()

    def _send(self, shipment: Shipment, group: Group, deadline: Deadline) -> None:
        """Send records; those that the client has surely not sent, once more with a new one."""
        was_connected = group.is_alone in self._open
        used = self._attempt(shipment, group, deadline)
        again = shipment.not_sent(group.indices)
        if again and (shipment.fatal is not None or self._reload_secrets() or was_connected):
            # The client has ended, the password has changed, or the token expired in a frozen function.
            self._replace(used, shipment)
            used = self._attempt(shipment, Group(again, group.is_alone), deadline)
        if shipment.fatal is not None or used.listener.refusal is not None:
            self._replace(used, shipment)

    def _attempt(self, shipment: Shipment, group: Group, deadline: Deadline) -> OpenClient:
        """Send records once; return the client that was used."""
        records = [shipment.records[index] for index in group.indices]
        now_s = deadline.clock.monotonic_s()
        is_idle, self._used_s = now_s - self._used_s > IDLE_S, now_s
        is_new = group.is_alone not in self._open
        used = self._open[group.is_alone] = self._open.get(group.is_alone) or self._make_client(
            is_alone=group.is_alone
        )
        client = self._client_of_request(used)
        if is_new and self._settings.producer.idempotence:
            # By itself librdkafka looks for a broker to ask for the producer id every 500 ms, but also when
            # metadata arrives. The first metadata makes it drop the bootstrap connection; the second comes
            # over a connection that stays.
            self._meet(client, records[0].topic, deadline, used.listener, times=2)
        elif (is_new or is_idle) and self._settings.security.protocol != PLAINTEXT:
            # The connection may be gone, and the credentials with it: a rejection before anything is sent
            # leaves no record uncertain.
            self._meet(client, records[0].topic, deadline, used.listener)
        partitions = self._partitions.resolve(client, records, deadline, used.listener)
        shipment.send(client, group.indices, partitions, used.listener)
        return used

    def _client_of_request(self, used: OpenClient) -> Producer:
        """Return the client as one request uses it."""
        return used.client

    def _replace(self, used: OpenClient, shipment: Shipment) -> None:
        """Drop the client, and report the error that ended it, once."""
        if shipment.fatal is not None and used in self._open.values():
            _log.error("Kafka's client has ended and is replaced: %s", shipment.fatal.str())
            with _METER_LOCK:
                self._meter.count("ProducersReplaced")
        self._drop(used)

    def _drop(self, used: OpenClient) -> None:
        """Drop this client, unless it has been replaced already."""
        self._open = {is_alone: each for is_alone, each in self._open.items() if each is not used}

    def _make_client(self, *, is_alone: bool) -> OpenClient:
        settings = self._settings
        if is_alone:
            settings = replace(settings, producer=replace(settings.producer, batch_records=1))
        else:
            self._metrics.reset_totals()
        listener = RejectionListener(settings.security)
        statistics = {"stats_cb": self._take_statistics, "statistics.interval.ms": STATISTICS_MS}
        has_statistics = self._meter.is_on and not is_alone
        configuration = settings.configuration() | (statistics if has_statistics else {})
        return OpenClient(make_client(Producer, configuration, settings.security, listener), listener)

    def _meet(
        self, client: Producer, topic: str, deadline: Deadline, listener: RejectionListener, times: int = 1
    ) -> None:
        """Have a broker answer, or reject the client, before records are sent."""
        with suppress(KafkaException, ConnectionRejected):
            for _ in range(times):
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
