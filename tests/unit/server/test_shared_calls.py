"""What requests of the server share: layouts, and the Kafka client."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.builders import a_layout, layout_entry

from keylane.adapters.kafka.errors import LOCAL_FATAL, LOCAL_TIMED_OUT
from keylane.errors import UnknownTopic
from keylane.ports import Clock, Deadline
from keylane_server import greenlets
from keylane_server.greenlets import run_request
from keylane_server.kafka.shared_client import SharedClient
from keylane_server.redis.shared_layouts import SharedLayouts

CLOCK = Clock(pause_s=greenlets.pause_s, await_s=greenlets.await_s)
REQUESTS = 20


class SlowState:
    """A state whose reads take a moment; `reads` is how many there were."""

    def __init__(self, entries: dict[bytes, bytes]) -> None:
        self.entries = entries
        self.reads = 0

    def read(self, slot, keys, deadline):  # noqa: ARG002 (the port's)
        self.reads += 1
        found = [self.entries.get(key) for key in keys]
        greenlets.pause_s(0.02)
        return found


def limit() -> Deadline:
    return Deadline.after_ms(20_000, CLOCK)


async def test_requests_that_need_a_layout_at_the_same_time_read_it_once():
    layout = a_layout()
    state = SlowState(layout_entry(layout))
    layouts = SharedLayouts(state, CLOCK, 30)

    gets = [run_request(lambda: layouts.get(layout.topic, limit())) for _ in range(REQUESTS)]
    assert await asyncio.gather(*gets) == [layout] * REQUESTS
    assert state.reads == 1


async def test_a_stale_layout_is_read_from_then_on_though_another_read_is_under_way():
    old = a_layout()
    new = a_layout(old.topic, generation=old.generation + 1)
    state = SlowState(layout_entry(old))
    layouts = SharedLayouts(state, CLOCK, 30)

    first = asyncio.ensure_future(run_request(lambda: layouts.get(old.topic, limit())))
    await asyncio.sleep(0.005)
    state.entries = layout_entry(new)
    stale = [run_request(lambda: layouts.refresh(old.topic, limit())) for _ in range(REQUESTS)]
    found = await asyncio.gather(first, *stale)
    first, refreshed = found[0], found[1:]
    assert (first, refreshed, state.reads) == (old, [new] * REQUESTS, 2)


async def test_unknown_topics_leave_nothing_behind():
    layouts = SharedLayouts(SlowState({}), CLOCK, 30)

    gets = [run_request(partial(layouts.get, f"t{number % 3}", limit())) for number in range(9)]
    assert {type(error) for error in (await asyncio.gather(*gets, return_exceptions=True))} == {UnknownTopic}
    assert not layouts._calls


class ScriptedProducer:
    """librdkafka's producer: `report` reports records in the order that a test wants, in `poll`'s thread."""

    def __init__(self) -> None:
        self.callbacks: dict[bytes, object] = {}
        self._due: list[bytes] = []
        self._changed = threading.Condition()
        self.is_awaited = threading.Event()

    def produce(self, topic, value, key, partition, *, on_delivery):  # noqa: ARG002 (librdkafka's)
        self.callbacks[key] = on_delivery

    def report(self, *keys: bytes) -> None:
        with self._changed:
            self._due += keys
            self._changed.notify()

    def list_topics(self, topic, timeout_s):  # noqa: ARG002 (librdkafka's)
        """Answer too late, as librdkafka does while it connects."""
        self.is_awaited.wait(20)

    def poll(self, timeout_s: float) -> int:
        with self._changed:
            self._changed.wait_for(lambda: self._due, timeout_s)
            due, self._due = self._due, []
        for key in due:
            self.callbacks.pop(key)(None, SimpleNamespace(key=key))
        return len(due)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(2) as running:
        yield running


def write(client, keys, reported):
    """Write records as one request; return what was not reported, and what was."""
    own = client.of_request()
    for key in keys:
        own.produce("t", b"v", key, 0, on_delivery=lambda _, message: reported.append(message.key))
    return own.flush(20)


async def test_a_request_waits_for_its_own_records_alone(pool):
    producer = ScriptedProducer()
    client = SharedClient(producer, pool)
    first, second = [], []
    slow = asyncio.ensure_future(run_request(lambda: write(client, [b"a", b"b"], first)))
    fast = asyncio.ensure_future(run_request(lambda: write(client, [b"c"], second)))
    await asyncio.sleep(0)
    producer.report(b"a", b"c")
    left = await fast
    assert not slow.done()
    waiting = len(client)
    producer.report(b"b")
    await slow
    client.close()
    assert (left, second, waiting, first, len(client)) == (0, [b"c"], 1, [b"a", b"b"], 0)


class BrokenProducer(ScriptedProducer):
    """Raises from its next poll what `broken` has, once a request has handed a record over."""

    def __init__(self, *broken: Exception) -> None:
        super().__init__()
        self.broken = list(broken)
        self.purged = 0
        self.has_raised = threading.Event()

    def poll(self, timeout_s: float) -> int:
        if self.callbacks and self.broken:
            self.has_raised.set()
            raise self.broken.pop()
        return super().poll(timeout_s)

    def purge(self, **_: object) -> None:
        self.purged += 1


async def test_an_error_that_ends_the_client_ends_the_wait_of_every_request_and_the_client_takes_no_more(
    pool,
):
    fatal = KafkaError(LOCAL_FATAL, "fenced", fatal=True)
    producer = BrokenProducer(KafkaException(fatal))
    client = SharedClient(producer, pool)
    waits = [run_request(lambda key=key: write(client, [key], [])) for key in (b"a", b"b")]
    errors = await asyncio.gather(*waits, return_exceptions=True)
    with pytest.raises(KafkaException):
        client.of_request().produce("t", b"v", b"c", 0, on_delivery=None)
    client.close()
    assert ([error.args[0].code() for error in errors], producer.purged) == ([LOCAL_FATAL] * 2, 1)


async def test_the_thread_of_reports_outlives_whatever_a_callback_raises(pool):
    producer = BrokenProducer(ValueError("of a callback"))
    client = SharedClient(producer, pool)
    reported = []
    waiting = asyncio.ensure_future(run_request(lambda: write(client, [b"a"], reported)))
    assert await asyncio.to_thread(producer.has_raised.wait, 20)
    producer.report(b"a")
    left = await waiting
    client.close()
    assert (left, reported) == (0, [b"a"])


async def test_metadata_that_comes_too_late_is_a_time_out_of_kafka_which_has_its_own_answer(pool):
    producer = ScriptedProducer()
    client = SharedClient(producer, pool)
    with pytest.raises(KafkaException) as caught:
        await run_request(lambda: client.of_request().list_topics("t", 0.01))
    producer.is_awaited.set()
    client.close()
    assert caught.value.args[0].code() == LOCAL_TIMED_OUT


async def test_a_request_whose_time_is_over_leaves_its_record_to_the_client(pool):
    producer = ScriptedProducer()
    client = SharedClient(producer, pool)
    reported = []

    def late():
        own = client.of_request()
        own.produce("t", b"v", b"a", 0, on_delivery=lambda _, message: reported.append(message.key))
        return own.flush(0.01)

    left = await run_request(late)
    producer.report(b"a")
    other = await asyncio.gather(run_request(lambda: greenlets.pause_s(0.2)))
    client.close()
    assert (left, reported, len(client), other) == (1, [b"a"], 0, [None])
