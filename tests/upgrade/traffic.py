"""Writers and readers of a live upgrade. They never stop; each has its thread, and notes its faults."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from confluent_kafka import Producer
from tests.support.events import EventReader
from tests.upgrade.book import Book

from keylane import routing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.events import ReceivedEvent
    from tests.upgrade.live import CheckoutServer

ORDERS, KEPT, DIRECT, LATE = "orders", "kept", "direct", "late"
"""With strays; with history, index and a view; written by the API; one that the new version serves first."""
TOPICS = (ORDERS, KEPT, DIRECT, LATE)
STREAMED = (ORDERS, LATE)
PARTITIONS = 3
KEYS = 40
STRAY_SHARE, TOMBSTONE_SHARE = 0.2, 0.2
PAGE = 7
PAUSE_S = 0.03
STEADY = 10
"""So many keys of KEPT are never deleted: every list has them."""
CONNECTED_S = 1.5
OK, NOT_REACHED = 200, 412
LONGEST_WAITS = 9
IDLE_WITHIN_S = 300


def keys() -> list[str]:
    return [f"k{number}" for number in range(KEYS)]


class Traffic:
    """What goes on during all phases. `servers`: one of each version."""

    def __init__(self, kafka: str, servers: Mapping[str, CheckoutServer], seed: int) -> None:
        self.book = Book()
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self.oldest_ms = 0
        self.streamed: dict[tuple[str, str], int | None] = {}
        """What streams said last of each topic and key."""
        self.served: tuple[str, ...] = (ORDERS, KEPT, DIRECT)
        """The topics that are read."""
        self._kafka = kafka
        self._servers = dict(servers)
        self._seed = seed
        self._base_ms = int(time.time() * 1000) - 3_600_000
        self._over = threading.Event()
        self._writes = threading.Event()
        self._writes.set()
        self._idle = threading.Barrier(3)
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        """Write every key once."""
        producer = Producer({"bootstrap.servers": self._kafka})
        for key in keys():
            for topic in TOPICS:
                self._send(producer, topic, key, routing.partition_for(key.encode(), PARTITIONS), is_set=True)
        assert producer.flush(60) == 0

    def __enter__(self) -> Self:
        tasks: list[Callable[[random.Random], None]] = [
            self._produce,
            self._put,
            self._conditional,
            self._page,
        ]
        tasks += [self._reader(name) for name in self._servers]
        tasks += [self._stream(topic) for topic in STREAMED]
        for number, task in enumerate(tasks):
            thread = threading.Thread(target=self._guarded, args=(task, random.Random(self._seed + number)))
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._writes.set()
        self._idle.abort()
        for thread in self._threads:
            thread.join(120)

    def pause_writes(self) -> None:
        """Stop writing, and wait until everything that was written is acknowledged."""
        self._writes.clear()
        try:
            self._idle.wait(IDLE_WITHIN_S)
        except threading.BrokenBarrierError as error:
            raise RuntimeError(f"a writer has ended, or waits for too long: {self.faults}") from error

    def resume_writes(self) -> None:
        self._writes.set()

    def _guarded(self, task: Callable[[random.Random], None], drawn: random.Random) -> None:
        try:
            task(drawn)
        except Exception as error:  # noqa: BLE001 (it is a fault of the run)
            if not self._over.is_set():
                self.faults.append(f"{getattr(task, '__name__', task)}: {error!r}")
                self._idle.abort()

    def _may_write(self, flush: Callable[[], object]) -> bool:
        """Whether the run goes on; returns after a pause."""
        if not self._writes.is_set():
            flush()
            try:
                self._idle.wait(IDLE_WITHIN_S)
            except threading.BrokenBarrierError:
                return False
            self._writes.wait()
        return not self._over.wait(PAUSE_S)

    def _produce(self, drawn: random.Random) -> None:
        """Sets, tombstones and strays, by a producer."""
        producer = Producer({"bootstrap.servers": self._kafka, "linger.ms": 2})
        while self._may_write(lambda: producer.flush(60)):
            topic, key = drawn.choice((ORDERS, KEPT, LATE)), drawn.choice(keys())
            is_set = drawn.random() > TOMBSTONE_SHARE or (topic == KEPT and key in keys()[:STEADY])
            partition = routing.partition_for(key.encode(), PARTITIONS)
            if topic == ORDERS and drawn.random() < STRAY_SHARE:
                partition = drawn.randrange(PARTITIONS)
            self._send(producer, topic, key, partition, is_set=is_set)
            self.counts["written by a producer"] += 1
        producer.flush(60)

    def _send(self, producer: Producer, topic: str, key: str, partition: int, *, is_set: bool) -> None:
        number = self.book.begin(topic, key, is_set=is_set)

        def note(error: Any, message: Any) -> None:
            if error:
                self.faults.append(f"not written: {error}")
                return
            position = f"{message.partition()}:{message.offset()}"
            self.book.acknowledge(topic, key, number, position, time.time() * 1000)

        value = json.dumps({"n": number}) if is_set else None
        producer.produce(topic, value, key, partition, timestamp=self._base_ms + number, on_delivery=note)
        producer.poll(0)

    def _put(self, drawn: random.Random) -> None:
        """A client writes to one version, and reads its own write from the other."""
        seen: dict[str, int] = {}
        while self._may_write(lambda: None):
            writes, reads = drawn.sample(sorted(self._servers), 2)
            key = drawn.choice(keys())
            number = self.book.begin(DIRECT, key, is_set=True)
            path = f"/topics/{DIRECT}/keys/{key}"
            reply = self._servers[writes].ask("PUT", path, json.dumps({"n": number}))
            if reply.status != 201:
                self.faults.append(f"{writes}: PUT {reply.status} {reply.body[:300]!r}")
                continue
            position = reply.headers["keylane-position"]
            self.book.acknowledge(DIRECT, key, number, position, time.time() * 1000)
            self._wait_for(reads, key, position)
            seen[key] = self._check(reads, DIRECT, key, max(number, seen.get(key, 0)))
            self.counts["own writes read from the other version"] += 1

    def _wait_for(self, name: str, key: str, position: str) -> None:
        """Wait until a position can be read. A job that takes over on a busy machine may need some waits."""
        awaited = {"Keylane-Min-Position": position, "Prefer": "wait=20"}
        for _ in range(LONGEST_WAITS):
            reply = self._servers[name].ask("GET", f"/topics/{DIRECT}/keys/{key}", headers=awaited)
            if reply.status != NOT_REACHED:
                return
            self.counts["waits of 20 s that were repeated"] += 1
        self.faults.append(f"{name}: {position} is not reached")

    def _reader(self, name: str) -> Callable[[random.Random], None]:
        def read(drawn: random.Random) -> None:
            seen: Counter[tuple[str, str]] = Counter()
            while not self._over.wait(PAUSE_S):
                topic, key = drawn.choice(self.served), drawn.choice(keys())
                seen[topic, key] = self._check(name, topic, key, seen[topic, key])
                self.counts[f"reads from {name}"] += 1

        return read

    def _check(
        self, name: str, topic: str, key: str, since: int, headers: Mapping[str, str] | None = None
    ) -> int:
        sent_ms = time.time() * 1000
        reply = self._servers[name].ask("GET", f"/topics/{topic}/keys/{key}", headers=headers)
        found = self.book.check(topic, key, reply, since, sent_ms)
        if found.fault:
            self.faults.append(f"{name}: {topic} {key}: {found.fault}")
        self.oldest_ms = max(self.oldest_ms, int(reply.headers.get("keylane-age-ms", 0)))
        return found.number

    def _conditional(self, drawn: random.Random) -> None:
        """A cache whose client asks one version with the ETag of the other. What is 304 must be current."""
        while not self._over.wait(PAUSE_S):
            first, second = drawn.sample(sorted(self._servers), 2)
            topic, key = drawn.choice(self.served), drawn.choice(keys())
            path = f"/topics/{topic}/keys/{key}"
            known = self._servers[first].ask("GET", path)
            if known.status != 200:
                continue
            sent_ms = time.time() * 1000
            reply = self._servers[second].ask("GET", path, headers={"If-None-Match": known.headers["etag"]})
            is_same = reply.status == 304
            judged = known._replace(headers={**known.headers, **reply.headers}) if is_same else reply
            fault = self.book.check(topic, key, judged, 0, sent_ms).fault
            if fault:
                self.faults.append(f"{second}, ETag of {first}: {key}: {reply.status} {fault}")
            self.counts[
                "304 to the other version's ETag" if is_same else "200 to the other version's ETag"
            ] += 1

    def _page(self, drawn: random.Random) -> None:
        """A list whose pages come from both versions in turns. What no page may lack is written once."""
        while not self._over.wait(PAUSE_S * 10):
            names = drawn.sample(sorted(self._servers), 2)
            listed: list[str] = []
            cursor = ""
            for turn in range(KEYS):
                mark = f"&cursor={quote(cursor)}" if cursor else ""
                reply = self._servers[names[turn % 2]].ask("GET", f"/topics/{KEPT}/keys?limit={PAGE}{mark}")
                if reply.status != 200:
                    self.faults.append(f"{names[turn % 2]}: page {reply.status} {reply.body[:300]!r}")
                    break
                page = json.loads(reply.body)
                listed += [each["key"] for each in page["records"]]
                cursor = page.get("next", "")
                if not cursor:
                    break
            if listed != sorted(set(listed)) or not {*keys()[:STEADY]} <= {*listed}:
                self.faults.append(f"pages of {names}: {listed}")
            self.counts["lists in pages of both versions"] += 1

    def _stream(self, topic: str) -> Callable[[random.Random], None]:
        """A listener to all changes of a topic, who comes back to the other version with the last id."""

        def listen(_: random.Random) -> None:
            names, last = itertools.cycle(sorted(self._servers)), ""
            while not self._over.wait(PAUSE_S):
                if topic in self.served:
                    last = self._listen(next(names), topic, last)

        return listen

    def _listen(self, name: str, topic: str, last: str) -> str:
        """Take events for a while; return the last id."""
        given = {"Last_Event_ID": last} if last else {}
        with contextlib.closing(
            EventReader(self._servers[name].url, f"/topics/{topic}/changes", **given)
        ) as reader:
            if reader.answer.status != OK:
                self.counts[f"ids that {name} refused with {reader.answer.status}"] += 1
                return ""
            if not last:
                event = reader.next_any()  # where the stream begins: from here on nothing is left out
                last = event.id if event else ""
                self._begin_again(name, topic)
            until_s = time.monotonic() + CONNECTED_S
            while time.monotonic() < until_s and not self._over.is_set():
                event = reader.next_any()
                if event is None:
                    break
                last = event.id
                self._note(name, topic, event)
            return last

    def _note(self, server: str, topic: str, event: ReceivedEvent) -> None:
        if event.name == "gap":
            self.counts["gaps of streams"] += 1
            self._begin_again(server, topic)
        elif event.name:
            fields = event.json
            number = None if event.name == "absent" else int(fields["value"]["n"])
            self.streamed[topic, fields["key"]] = number
            self.counts["events of streams"] += 1

    def _begin_again(self, server: str, topic: str) -> None:
        """Read all keys, as a listener does who may have missed changes."""
        for key in keys():
            reply = self._servers[server].ask("GET", f"/topics/{topic}/keys/{key}")
            self.streamed[topic, key] = int(json.loads(reply.body)["n"]) if reply.status == OK else None
