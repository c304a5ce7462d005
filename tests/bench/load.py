"""Steady load on a whole stack, reads over HTTP and records from a plain producer, and its results.

Both are open loops: each read and each record is due at a fixed time, whether or not the previous ones are
done, and a read's latency counts from then. Records are numbered; later records of a key have higher numbers.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import aiohttp
from confluent_kafka import Producer
from verdict import TimedRead, key_of

from keylane.model.records import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confluent_kafka import Message

    from keylane_local.stack.stack import Stack

READ_TIMEOUT_S = 10


class Writes:
    """Writes to all keys in turn; `acknowledged` has the number and position of each key's last record."""

    def __init__(self, stack: Stack, topic: str, keys: int, value_bytes: int) -> None:
        self.acknowledged: dict[int, tuple[int, Position]] = {}
        self.refused = 0
        self._topic, self._keys = topic, keys
        self._filler = "x" * value_bytes
        self._next = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": stack.kafka_bootstrap,
                "partitioner": "murmur2_random",
                "linger.ms": 0,
                "enable.idempotence": True,
                "log_level": 0,
                # Notices new partitions of the topic within a second.
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )

    def write(self, key: int | None = None) -> None:
        """Send one record, without a key for the next one in turn."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            key = number % self._keys if key is None else key
            value = json.dumps({"number": number, "filler": self._filler}).encode()
            self._producer.produce(
                self._topic, key=key_of(key), value=value, on_delivery=partial(self._note, key, number)
            )
        self._producer.poll(0)

    def _note(self, key: int, number: int, error: object, message: Message) -> None:
        if error:
            self.refused += 1
            return
        with self._lock:
            if key not in self.acknowledged or self.acknowledged[key][0] < number:
                self.acknowledged[key] = number, Position(message.partition(), message.offset())

    def write_and_wait(self, key: int) -> Position:
        """Return the position of the key's last record."""
        self.write(key)
        self.flush()
        return self.acknowledged[key][1]

    def fill(self) -> None:
        """Send one record for each key."""
        for number in range(self._keys):
            self.write()
            if number % 1000 == 0:
                self.flush()
        self.flush()

    def flush(self) -> None:
        if self._producer.flush(60):
            raise SystemExit("Kafka did not take all records")

    def steadily(self, per_s: float) -> threading.Thread:
        """Start the load; `stop` ends it."""

        def run() -> None:
            begin_s, sent = time.monotonic(), 0
            while not self._over.wait(max(0.0, begin_s + sent / per_s - time.monotonic())):
                self.write()
                sent += 1

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        self._over.set()
        self.flush()


class Reads:
    """Reads random keys in a separate thread, from `start` to `stop`."""

    def __init__(self, url: str, topic: str, keys: int, per_s: float) -> None:
        self.seen: list[TimedRead] = []
        self._url = f"{url}/topics/{topic}/keys/"
        self._keys, self._per_s = keys, per_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the load; return when the last read has ended."""
        self._over.set()
        self._thread.join(2 * READ_TIMEOUT_S)

    def between(
        self, from_s: float, to_s: float, keys: Callable[[int], bool] | None = None
    ) -> list[TimedRead]:
        """Return the reads that were due in that period, in order."""
        chosen = (seen for seen in list(self.seen) if from_s <= seen.due_s < to_s)
        return sorted(
            (seen for seen in chosen if keys is None or keys(seen.key)), key=lambda seen: seen.due_s
        )

    def wait_for(self, holds: Callable[[Sequence[TimedRead]], bool], within_s: float = 120) -> float:
        """Return the time at which `holds` is true for the reads of the last second."""
        until_s = time.monotonic() + within_s
        while (now_s := time.monotonic()) < until_s:
            latest = [seen for seen in self.seen[-5000:] if seen.due_s >= now_s - 1]
            if latest and holds(latest):
                return now_s
            time.sleep(0.05)
        raise SystemExit(f"what was waited for did not come within {within_s:.0f} s")

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=READ_TIMEOUT_S)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
            begin_s, tasks = time.monotonic(), set()
            chance = random.Random(1)
            number = 0
            while not self._over.is_set():
                due_s = begin_s + number / self._per_s
                await asyncio.sleep(due_s - time.monotonic())
                task = asyncio.create_task(self._one(session, chance.randrange(self._keys), due_s))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                number += 1
            await asyncio.gather(*tasks)

    async def _one(self, session: aiohttp.ClientSession, key: int, due_s: float) -> None:
        status = age_ms = number = -1
        try:
            async with session.get(self._url + key_of(key).decode()) as answer:
                body = await answer.read()
                status = answer.status
                age_ms = int(answer.headers.get("Keylane-Age-Ms", -1))
                number = json.loads(body)["number"] if status == 200 else -1
        except (aiohttp.ClientError, TimeoutError, ValueError):
            status = -1
        self.seen.append(TimedRead(due_s, time.monotonic(), key, status, age_ms, number))
