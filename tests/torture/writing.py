"""The clients of a stack that write through the product, and the drain of the queue that one fills."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.servers.own import CLOCK
from tests.torture.clients import CLIENTS, FUNCTION, Client, keys_of
from tests.torture.draining import Drain
from tests.torture.hosts import Hosts, ServerHost
from tests.torture.results import OF_SERVER, Sent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.torture.acknowledged import Acknowledged
    from tests.torture.schedule import Schedule

    from keylane.model.records import Position


class Writers:
    """All clients of a stack, and the drain of what one of them puts into the queue.

    `written`: called with the position of each record that was written.
    """

    def __init__(
        self,
        hosts: Hosts,
        topics: Sequence[str],
        acknowledged: Acknowledged,
        written: Callable[[str, bytes, Position], None],
    ) -> None:
        self.hosts = hosts
        self._topics = topics
        self._acknowledged = acknowledged
        self._written = written
        numbers = itertools.count(int(time.time()) << 20)
        self._servers = [ServerHost(hosts.server_port) for _ in range(2)]
        by_client = zip(CLIENTS, (hosts.produce, *self._servers, hosts.enqueue), strict=True)
        self.clients = [Client(name, host, numbers) for name, host in by_client]
        self.drain = Drain(hosts)
        self._servers.append(ServerHost(hosts.server_port))
        others = ((FUNCTION, hosts.produce), (OF_SERVER[0], self._servers[-1]))
        self.others = [Client(name, host, numbers) for name, host in others]
        """Clients that write only what an event lets them write."""

    def keys(self, schedule: Schedule) -> list[tuple[str, bytes]]:
        """Topic and key of all that the clients may write in a schedule."""
        keys = [key for client in CLIENTS for key in keys_of(schedule, client)]
        return [(topic, key) for topic in self._topics for key in keys]

    def begin(self, schedule: Schedule) -> None:
        """Let every client write until `finish`."""
        self.drain.begin()
        for client in self.clients:
            client.begin(schedule, self._topics, self._note)

    def finish(self) -> list[str]:
        """Stop all clients, each after a last write to every topic, and empty the queue; returns faults."""
        for client in self.clients:
            client.stop()
            client.write_at_last()
        faults = [fault for client in self.clients for fault in client.faults]
        return faults + self.drain.finish()

    def take(self) -> list[Sent]:
        """The records of the schedule that has ended, each client's in the order in which it sent them."""
        return [sent for client in self.clients for sent in client.sent]

    def counts(self) -> Counter[str]:
        """How often each client got which result in the schedule that has ended."""
        return Counter(f"{sent.client}: {result.kind}" for sent in self.take() for result in sent.results)

    def close(self) -> None:
        for client in self.clients:
            client.stop()
        self.drain.stop()
        for server in self._servers:
            server.close()

    def _note(self, sent: Sent) -> None:
        position = sent.results[-1].position
        if position is not None:
            at = sent.topic, position.partition, position.offset
            self._acknowledged.note(CLOCK.now_ms(), [at])
            self._written(sent.topic, sent.key, position)
