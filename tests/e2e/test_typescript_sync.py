"""The TypeScript client's live copy on the stack: it comes to what the topic has, through cut connections."""

from __future__ import annotations

import json
import random
import subprocess
import uuid
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers.own import eventually
from tests.support.cut_relay import relaying
from tests.support.node import node_program

from keylane_client import Client

HERE = Path(__file__).parent
KEYS, WRITES, WITHIN_S = 40, 300, 90


def test_a_live_copy_comes_to_what_the_topic_has_through_cuts(applied_stack):
    random_of_run = random.Random(7)
    prefix, port = f"live-{uuid.uuid4().hex[:10]}|", urlsplit(applied_stack.http_url).port
    with Client(applied_stack.http_url) as keylane, relaying(port) as relay:
        topic = keylane.session().topic("bookings")
        expected: dict[str, int] = {}
        write_some(topic, prefix, expected, random_of_run, 60)
        topic.count()  # has waited for all of them
        command = [str(node_program()), str(HERE / "sync_case.ts"), relay.url, "bookings", prefix]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
            try:
                assert records_of(node) == expected
                for _ in range(6):
                    write_some(topic, prefix, expected, random_of_run, WRITES // 6)
                    relay.cut()
                eventually(lambda: records_of(node) == expected, WITHIN_S)
                node.stdin.close()
                assert node.wait(20) == 0
            finally:
                node.kill()


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


def records_of(node: subprocess.Popen[str]) -> dict[str, int]:
    node.stdin.write("\n")
    node.stdin.flush()
    return dict(json.loads(node.stdout.readline()))
