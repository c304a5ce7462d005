"""Writes through the product while a schedule runs: clients, and the queue on its way to Kafka."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.servers.aws import event_of, receive
from tests.servers.own import CLOCK
from tests.torture.clients import CLIENTS, FUNCTION, Client, keys_of
from tests.torture.hosts import Hosts, ServerHost
from tests.torture.stack import wait_until
from tests.torture.written import OF_SERVER, Sent

from keylane.produce import message_codec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.torture.oracle import Acknowledged
    from tests.torture.schedule import Schedule

    from keylane.model.records import Position


EMPTY_WITHIN_S = 90
_PAUSE_S = 0.1


class Drain:
    """A thread that polls while a schedule runs. `deliveries`: of each record, by its id, all of a stack."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.deliveries: Counter[str] = Counter()
        self.dead: dict[str, str] = {}
        """The reason of each dead letter, by the id of its record."""
        self.is_forgetting = threading.Event()
        """Set where the next batch that is answered is to be delivered again, to another environment."""
        self._faults: list[str] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Poll until `finish`."""
        self._faults = []
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, daemon=True, name="drain")
        self._thread.start()

    def finish(self) -> list[str]:
        """Wait until the queue is empty, and stop; returns faults."""
        try:
            wait_until(self._is_over, EMPTY_WITHIN_S, "the queue is empty")
        except TimeoutError as error:
            self._faults.append(f"{error}; it has {self.hosts.aws.count(self.hosts.queue)} messages")
        self.stop()
        for message in self.hosts.aws.messages(self.hosts.dead_letters):
            reason = message["MessageAttributes"]["keylane-reason"]["StringValue"]
            self.dead |= dict.fromkeys(_ids(message["Body"]), reason)
        return self._faults

    def stop(self) -> None:
        """End with the batch that the function has."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(EMPTY_WITHIN_S)
        self._thread = None

    def _is_over(self) -> bool:
        return bool(self._faults) or not self.hosts.aws.count(self.hosts.queue)

    def _run(self) -> None:
        try:
            with self.hosts.aws.client("sqs") as sqs:
                while not self._stop.is_set():
                    if not self._poll(sqs):
                        self._stop.wait(_PAUSE_S)
        except Exception as error:  # noqa: BLE001 - any error is a finding
            self._faults.append(f"the drain's poller broke: {error!r}")

    def _poll(self, sqs: Any) -> int:
        """Pass one batch to the function, and delete what it has not reported; returns its messages."""
        url = self.hosts.queue
        messages = receive(sqs, url)
        if not messages:
            return 0
        for message in messages:
            self.deliveries.update(_ids(message["Body"]))
        answer = self.hosts.drain.invoke(event_of(messages, url))
        if self.is_forgetting.is_set():
            self.hosts.drain.end()
            self.is_forgetting.clear()
            answer = None
        if answer is None:
            # The environment has ended: the queue delivers its messages again, here at once.
            for message in reversed(messages):
                receipt = message["ReceiptHandle"]
                sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=0)
            return len(messages)
        failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
        for message in messages:
            if message["MessageId"] not in failed:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return len(messages)


def _ids(body: str) -> list[str]:
    batch = message_codec.decode(message_codec.from_body(body))
    return [batch.record_id(number) for number, _ in batch.records]


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
