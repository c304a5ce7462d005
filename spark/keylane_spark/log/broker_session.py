"""Connections to Kafka's brokers, for fetches and for the ends of leader epochs.

kafka-python finds the brokers, and speaks TLS and SASL. Once a connection is authenticated, its socket is
taken over: kafka-python's event loop receives 4 KiB at a time and copies a response four times, which costs
as much as all the parsing. So two private members are used here, `KafkaTCPTransport._sock` and
`NetworkSelector.unregister_event`'s pairing with it: kafka-python 3 has them, and a release without them
fails the first test of this module.
"""

import base64
import contextlib
import random
import selectors
import socket
import time
import uuid
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import errors as kafka_errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import MetadataRequest

from keylane.adapters.kafka.options import Connection
from keylane.model.kafka import TopicPartition
from keylane_spark.log.broker_socket import BROKER_ERRORS, BrokerSocket, check
from keylane_spark.log.fetch_options import configuration

CLIENT_ID = "keylane-job"
_OLDEST_METADATA = 7  # has the leaders' epochs
_PROBE_S, _BOOTSTRAP_S = 0.3, 1.0
"""How long an address is waited for as long as there are others: to connect, and to answer."""
_SILENT_S = 10.0
_silent_since_s: dict[str, float] = {}
"""When addresses did not answer: for a while they are the last that any session of this process tries."""


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    """The broker that leads a partition, with the epoch of that, and Kafka's id of the topic."""

    node: int
    epoch: int
    topic_id: uuid.UUID | None


class BrokerSession:
    """The brokers of a cluster as they were found at one time; after an error a new one is made."""

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        """Find the brokers. Raises OSError, KafkaError."""
        self._timeout_ms = 1000 * timeout_s
        self._client_id = connection.client.client_id or CLIENT_ID
        self._settings = configuration(connection) | {
            "client_id": self._client_id,
            "request_timeout_ms": self._timeout_ms,
            "socket_connection_setup_timeout_ms": self._timeout_ms,
            "receive_message_max_bytes": 2**31 - 1,
        }
        self._sockets: dict[int, BrokerSocket] = {}
        self._leaders: dict[str, dict[int, PartitionLeader]] = {}
        self._net: _Selector | None = None
        try:
            self._manager = self._bootstrap(self._settings["bootstrap_servers"])
        except BaseException:
            self.close()
            raise

    def _bootstrap(self, addresses: Sequence[str]) -> KafkaConnectionManager:
        """Find the brokers. kafka-python waits for an address that it has chosen until its time is over."""
        until_s = time.monotonic() + self._timeout_ms / 1000
        for address in _in_order(addresses) if len(addresses) > 1 else ():
            if not _accepts(address):
                continue
            within_s = min(_BOOTSTRAP_S, max(0.001, until_s - time.monotonic()))
            try:
                return self._bootstrap_from([address], within_s)
            except kafka_errors.KafkaTimeoutError:
                _note_silent(address)
        return self._bootstrap_from(addresses, max(0.001, until_s - time.monotonic()))

    def _bootstrap_from(self, addresses: Sequence[str], within_s: float) -> KafkaConnectionManager:
        net = _Selector(client_id=self._client_id)
        manager = KafkaConnectionManager(net, **{**self._settings, "bootstrap_servers": addresses})
        try:
            manager.bootstrap(1000 * within_s)
        except BaseException:
            manager.close()
            net.close()
            raise
        self._net = net
        return manager

    def leaders(self, topic: str) -> dict[int, PartitionLeader]:
        """The leaders of a topic's partitions, of node -1 where there is none. Raises OSError, KafkaError."""
        if topic not in self._leaders:
            self._leaders[topic] = self._find_leaders(topic)
        return self._leaders[topic]

    def leader(self, topic: str, partition: int) -> PartitionLeader:
        """The leader of a partition. Raises OSError, KafkaError."""
        leader = self.leaders(topic).get(partition)
        if leader is None or leader.node < 0:
            raise kafka_errors.LeaderNotAvailableError(f"partition {partition} of topic {topic!r}")
        return leader

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions that each broker leads. Raises OSError, KafkaError."""
        found: dict[int, list[TopicPartition]] = {}
        for topic, partition in partitions:
            found.setdefault(self.leader(topic, partition).node, []).append((topic, partition))
        return found

    def anyone(self) -> list[int]:
        """The brokers, in the order in which to ask any of them: those that are connected come first."""
        nodes = {f"{each.host}:{each.port}": int(each.node_id) for each in self._manager.cluster.brokers()}
        return sorted(
            (nodes[address] for address in _in_order([*nodes])), key=lambda node: node not in self._sockets
        )

    def broker(self, node: int, within_s: float | None = None) -> BrokerSocket:
        """The connection to a broker, which is made within that time. Raises OSError, KafkaError."""
        if node not in self._sockets:
            timeout_ms = self._timeout_ms if within_s is None else 1000 * within_s
            try:
                self._sockets[node] = self._connect(node, timeout_ms)
            except BaseException:
                if (found := self._manager.cluster.broker_metadata(node)) is not None:
                    _note_silent(f"{found.host}:{found.port}")
                raise
        return self._sockets[node]

    def drop(self, node: int) -> None:
        """Close the connection to a broker, which has failed."""
        if (found := self._sockets.pop(node, None)) is not None:
            found.close()

    def close(self) -> None:
        """Close all connections."""
        for each in self._sockets.values():
            each.close()
        self._sockets.clear()
        if self._net is not None:
            self._manager.close()
            self._net.close()
            self._net = None

    def _find_leaders(self, topic: str) -> dict[int, PartitionLeader]:
        # kafka-python's own request would create a topic that is missing.
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=False,
            min_version=_OLDEST_METADATA,
        )
        (found,) = self._ask_anyone(request).topics
        check(found.error_code)
        topic_id = getattr(found, "topic_id", None)
        return {
            each.partition_index: PartitionLeader(each.leader_id, each.leader_epoch, topic_id)
            for each in found.partitions
        }

    def _ask_anyone(self, request: Any) -> Any:
        failure: Exception = kafka_errors.BrokerNotAvailableError("there are no brokers")
        nodes = self.anyone()
        for node in nodes:
            try:
                broker = self.broker(node, None if node == nodes[-1] else _BOOTSTRAP_S)
                # The response to another request would come first.
                if broker.awaits_nothing:
                    broker.send(request)
                    return broker.receive()
            except BROKER_ERRORS as error:
                self.drop(node)
                failure = error
        raise failure

    def _connect(self, node: int, timeout_ms: float) -> BrokerSocket:
        connection = self._manager.get_connection(node, timeout_ms=timeout_ms)

        async def authenticated() -> None:
            await connection

        self._manager.run(authenticated)
        sock = self._take_socket(connection)
        sock.settimeout(self._timeout_ms / 1000)
        return BrokerSocket(sock, connection.broker_version_data, self._client_id)

    def _take_socket(self, connection: Any) -> socket.socket:
        """Take the socket away from kafka-python, which forgets the connection."""
        transport = connection.transport
        if transport is None:  # lost between its last answer and now
            raise ConnectionError("the broker has closed the connection")
        sock: socket.socket = transport._sock  # noqa: SLF001 (see the module's docstring)
        transport.pause_reading()
        if self._net is not None:
            self._net.release(sock)
        transport._sock = None  # noqa: SLF001
        connection.close()
        return sock


class _Selector(NetworkSelector):  # type: ignore[misc]
    """Closes all sockets with itself: after a TLS handshake that fails, kafka-python leaves one open."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._known: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def register_event(self, fileobj: socket.socket, event: int, task: Any) -> None:
        """Note the socket."""
        self._known.add(fileobj)
        super().register_event(fileobj, event, task)

    def release(self, sock: socket.socket) -> None:
        """Forget a socket, which stays open."""
        with contextlib.suppress(KeyError, ValueError):
            self.unregister_event(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
        self._known.discard(sock)

    def close(self) -> None:
        """Close the selector and the sockets that it knows."""
        super().close()
        for each in list(self._known):
            each.close()


def _in_order(addresses: Sequence[str]) -> list[str]:
    """Addresses in any order, behind the others those that did not answer a moment ago."""
    latest_s = time.monotonic() - _SILENT_S
    shuffled = random.sample(addresses, len(addresses))
    return sorted(shuffled, key=lambda each: _silent_since_s.get(each, 0.0) > latest_s)


def _note_silent(address: str) -> None:
    _silent_since_s[address] = time.monotonic()


def _accepts(address: str) -> bool:
    """Whether something listens there. Where nothing does kafka-python would try again and again."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PROBE_S).close()
    except (OSError, ValueError):
        _note_silent(address)
        return False
    return True


def id_text(topic_id: uuid.UUID | None) -> str:
    """A topic's id as librdkafka writes it, "" for none."""
    return base64.b64encode(topic_id.bytes).decode().rstrip("=") if topic_id else ""
