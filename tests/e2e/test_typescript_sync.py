"""The TypeScript client's live copy on the stack: it comes to what the topic has, through cut connections."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import threading
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.servers.own import eventually
from tests.support.node import node_program
from tests.support.project_files import ROOT

from keylane_client import Client

HERE = Path(__file__).parent
ROUTES = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["paths"]
KEYS, WRITES, WITHIN_S = 40, 300, 90


class Cutter:
    """A proxy of TCP whose connections can be cut."""

    def __init__(self, url: str) -> None:
        self._to = (urlsplit(url).hostname, urlsplit(url).port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._to)
            self._open += [near, far]
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=pair, daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(4096):
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            each.close()

    def cut(self) -> None:
        while self._open:
            try:
                self._open.pop().shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def close(self) -> None:
        self._listener.close()
        self.cut()


@pytest.mark.skipif("/topics/{topic}/snapshot" not in ROUTES, reason="the service has no snapshots")
def test_a_live_copy_comes_to_what_the_topic_has_through_cuts(applied_stack):
    random_of_run = random.Random(7)
    prefix, cutter = f"live-{uuid.uuid4().hex[:10]}|", Cutter(applied_stack.http_url)
    with Client(applied_stack.http_url) as keylane:
        topic = keylane.session().topic("bookings")
        expected: dict[str, int] = {}
        write_some(topic, prefix, expected, random_of_run, 60)
        topic.count()  # has waited for all of them
        command = [str(node_program()), str(HERE / "sync_case.ts"), cutter.url, "bookings", prefix]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
            try:
                assert records_of(node) == expected
                for _ in range(6):
                    write_some(topic, prefix, expected, random_of_run, WRITES // 6)
                    cutter.cut()
                eventually(lambda: records_of(node) == expected, WITHIN_S)
                node.stdin.close()
                assert node.wait(20) == 0
            finally:
                node.kill()
                cutter.close()


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
