"""Finds as of a position, of records that only the primary has, which hangs in the middle of it."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from tests.servers.own import CLOCK
from tests.torture.found import Question, document_with_fields
from tests.torture.links import Mode
from tests.torture.sources import StoreSource, read_key
from tests.torture.stack import slot_of, wait_until

from keylane.errors import KeylaneError
from keylane.model.records import Position
from keylane.query.conditions import PREFIX, Asked

if TYPE_CHECKING:
    from confluent_kafka import Message
    from tests.torture.faults.world import World

    from keylane_local.servers.redis_node import RedisNode

_ROUNDS, _HELD_S, _LATEST_S = 15, 0.15, 0.006
"""The primary hangs for longer than one attempt of a read waits for it, so soon after the find has begun."""
_ARRIVES_WITHIN_S = 60


def find_written(world: World, shard: int, primary: RedisNode) -> None:
    """Write records of a shard, and find each, if a topic has fields and keeps what is written last."""
    stack = world.stack
    names = [
        shape.name
        for shape in stack.shapes.values()
        if shape.options.fields and not (shape.options.ttl_ms or shape.options.insert_once)
    ]
    layouts = stack.layouts()
    if not names or names[0] not in layouts:
        return
    topic, layout = names[0], layouts[names[0]]
    keys = (b"%d-%03d" % (world.seed, number) for number in range(1000))
    key = next(key for key in keys if stack.shard_of(slot_of(layout, key)) == shard)
    asked = Question((Asked("status", PREFIX, f"{world.seed}-"),), prefix=key.decode())
    for number in range(_ROUNDS):
        position = _write(world, topic, key, number)
        with stack.store() as store, contextlib.suppress(TimeoutError):
            wait_until(lambda: _has(store, topic, key, position), _ARRIVES_WITHIN_S, "the record arrives")  # noqa: B023
        held = threading.Thread(target=_hold, args=(world, primary, world.source.uniform(0, _LATEST_S)))
        held.start()
        state = stack.reader_state()
        try:
            page = StoreSource(state).find(topic, asked, [key], 5, None, position)
        finally:
            held.join()
            state.close()
        found = [each.answer.record.position for _, each in page.rows if each.answer.record]
        assert any(each.offset >= position.offset for each in found), (
            f"a find of {topic}/{key.decode()} as of {position} has found {found}"
        )


def _has(store, topic: str, key: bytes, position: Position) -> bool:
    with contextlib.suppress(KeylaneError):
        record = read_key(store, topic, key).record
        return record is not None and record.position == position
    return False


def _hold(world: World, primary: RedisNode, after_s: float) -> None:
    time.sleep(after_s)
    with world.stack.reader_links.set(primary.port, Mode.HOLD):
        time.sleep(_HELD_S)


def _write(world: World, topic: str, key: bytes, number: int) -> Position:
    """Write a record that the question finds; returns its position."""
    arrived: list[Message] = []
    shape, now_ms = world.stack.shapes[topic], CLOCK.now_ms()
    # Of those with this number no field is odd.
    value = document_with_fields(b"%d-%d-found" % (world.seed, number), 0, now_ms)
    producer = Producer({"bootstrap.servers": world.stack.kafka.bootstrap, "log_level": 2})
    producer.produce(
        topic,
        value,
        key,
        shape.partition_of(key),
        timestamp=now_ms,
        on_delivery=lambda error, message: arrived.append(message) if error is None else None,
    )
    assert not producer.flush(_ARRIVES_WITHIN_S), "the record did not reach the broker"
    assert arrived, "the record was not written"
    return Position(arrived[0].partition(), arrived[0].offset())
