"""Live copies by both clients equal the fold of the log through random schedules of failures.

Servers are killed and stopped, connections cut, also after some bytes, the topic is built again, and its log
is truncated while nobody listens; meanwhile writes go on. `make live-copies N=50 SEED=1` runs 50 of them.
"""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import eventually
from tests.servers.standing import StandingServer, plain_variables
from tests.support.cut_relay import CutRelay, relaying
from tests.support.live_copy import both_copies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.logged_topic import LoggedTopic

SEED, SCHEDULES = int(os.environ.get("SEED", "1")), int(os.environ.get("SCHEDULES", "1"))
STEPS, KEYS, WRITES_BETWEEN, WITHIN_S = 10, 120, 25, 90
ONCE, LOST_WRITES = "k-once-", 5
"""Keys that are written in a truncated part of the log alone: only another snapshot has them."""
FEW_BYTES = 200, 20_000
"""After how many bytes a connection is cut: within the head of an answer, a snapshot, or a stream."""


class RestartedServer:
    """A server that is killed and started again behind the same relay."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self._folder, self._variables = folder, {**variables, "KEYLANE_LAYOUT_TTL_S": "1"}
        self._starts = 0
        self.running = self._start()

    def _start(self) -> StandingServer:
        self._starts += 1
        server = StandingServer(self._folder / f"log-{self._starts}", self._variables)
        server.wait_ready()
        return server

    def restart(self, *, is_killed: bool) -> None:
        """End it, with SIGKILL or as an operator does, and start another one, on a port of its own."""
        if is_killed:
            self.running.kill()
        else:
            self.running.stop()
        self.running = self._start()

    def close(self) -> None:
        if self.running.process.poll() is None:
            self.running.stop()


class Writes:
    """Sets and deletes keys of a topic. `fold`: what its log comes to. `lock`: held for each record."""

    def __init__(self, topic: LoggedTopic, random_of_run: random.Random) -> None:
        self.fold: dict[str, Any] = {}
        self.count = 0
        self.lock = threading.Lock()
        self._topic, self._random = topic, random_of_run

    def write(self) -> None:
        with self.lock:
            self._write(f"k{self._random.randrange(KEYS)}", is_deletion=self._random.random() < 0.3)

    def write_and_truncate(self) -> None:
        """Change keys that nothing else changes, and remove all records from the log before it is read."""
        with self.lock:
            for key in [each for each in self.fold if each.startswith(ONCE)][::2]:
                self._write(key, is_deletion=True)
            for _ in range(LOST_WRITES):
                self._write(f"{ONCE}{self.count}")
            self._topic.truncate()

    def _write(self, key: str, *, is_deletion: bool = False) -> None:
        self.count += 1
        if is_deletion:
            self._topic.put(key.encode(), None)
            self.fold.pop(key, None)
        else:
            self._topic.put(key.encode(), b'{"n": %d}' % self.count)
            self.fold[key] = {"n": self.count}

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Write within the block."""
        is_over = threading.Event()

        def run() -> None:
            while not is_over.is_set():
                self.write()
                time.sleep(0.002)  # the failures are what is to be quick

        writing = threading.Thread(target=run)
        writing.start()
        try:
            yield
        finally:
            is_over.set()
            writing.join()


@pytest.fixture(scope="module")
def restarted(
    redis_cluster: str, kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RestartedServer]:
    server = RestartedServer(tmp_path_factory.mktemp("servers"), plain_variables(redis_cluster, kafka))
    yield server
    server.close()


@pytest.mark.parametrize("seed", range(SEED, SEED + SCHEDULES))
def test_live_copies_equal_the_fold_through_a_schedule_of_failures(
    restarted: RestartedServer, logged_topic: Callable[..., LoggedTopic], seed: int
):
    random_of_run = random.Random(seed)
    topic = logged_topic()
    writes = Writes(topic, random.Random(seed))
    for _ in range(100):
        writes.write()
    with (
        relaying(restarted.running.port) as relay,
        both_copies(relay.url, topic.name, random_of_run.choice(["", "k"])) as copies,
    ):
        assert all(copy.comes_to(writes.fold) for copy in copies.values())
        with writes.going_on():
            for _ in range(STEPS):
                done, wanted = writes.count, random_of_run.randrange(WRITES_BETWEEN)
                eventually(lambda done=done, wanted=wanted: writes.count > done + wanted)
                fail(random_of_run, restarted, relay, writes, topic)
        relay.cut_after_bytes = None
        for copy in copies.values():
            eventually(lambda copy=copy: copy.comes_to(writes.fold), WITHIN_S)


def fail(
    random_of_run: random.Random, server: RestartedServer, relay: CutRelay, writes: Writes, topic: LoggedTopic
) -> None:
    """One failure, as the seed has it."""
    kinds = {"cut": 4, "cut after some bytes": 3, "kill": 2, "stop": 1, "build again": 2, "truncate": 2}
    [kind] = random_of_run.choices([*kinds], [*kinds.values()])
    if kind == "cut":
        relay.cut_after_bytes = None
        relay.cut()
    elif kind == "cut after some bytes":
        relay.cut_after_bytes = random_of_run.randint(*FEW_BYTES)
        relay.cut()
    elif kind == "build again":
        with writes.lock:
            topic.served.build_again(is_created_again=random_of_run.random() < 0.5)
    elif kind == "truncate":
        with relay.refusing():
            writes.write_and_truncate()
    else:
        server.restart(is_killed=kind == "kill")
        relay.target = server.running.port
