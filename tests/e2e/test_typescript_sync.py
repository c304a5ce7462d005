"""The TypeScript client's live copy on the stack: it comes to what the topic has, through cut connections.

Servers are killed, and topics built again, in `tests/integration/server/test_live_copy_schedules.py`.
"""

from __future__ import annotations

import random
import uuid
from urllib.parse import urlsplit

from tests.servers.own import eventually
from tests.support.cut_relay import relaying
from tests.support.live_copy import live_copy

from keylane_client import Client

KEYS, WRITES, WITHIN_S = 40, 300, 90


def test_a_live_copy_comes_to_what_the_topic_has_through_cuts(applied_stack):
    random_of_run = random.Random(7)
    prefix, port = f"live-{uuid.uuid4().hex[:10]}|", urlsplit(applied_stack.http_url).port
    with Client(applied_stack.http_url) as keylane, relaying(port) as relay:
        topic = keylane.session().topic("bookings")
        expected: dict[str, int] = {}
        write_some(topic, prefix, expected, random_of_run, 60)
        topic.count()  # has waited for all of them
        with live_copy(relay.url, "bookings", prefix) as copy:
            assert copy.comes_to(expected)
            for _ in range(6):
                write_some(topic, prefix, expected, random_of_run, WRITES // 6)
                relay.cut()
            eventually(lambda: copy.comes_to(expected), WITHIN_S)


def write_some(
    topic, prefix: str, expected: dict[str, int], random_of_run: random.Random, count: int
) -> None:
    for number in range(count):
        key = f"{prefix}{random_of_run.randrange(KEYS)}"
        if random_of_run.random() < 0.3:
            topic.delete(key)
            expected.pop(key, None)
        else:
            topic.put(key, number)
            expected[key] = number
