"""The witness of the torture, and nodes that readers gave up on: what excuses reads, and what does not."""

from __future__ import annotations

import contextlib
import socketserver
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.servers.own import eventually
from tests.torture import witness
from tests.torture.checks import Facts
from tests.torture.faults.world import Trouble
from tests.torture.witness import NO_ANSWER, SLOW_NODE, Slowness, Witness, in_all, unexplained

from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator


class Node(socketserver.ThreadingTCPServer):
    """Answers each PING while `answers` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        self.answers, self.asked = threading.Event(), 0
        self.answers.set()
        super().__init__((HOST, 0), _Answers)


class _Answers(socketserver.StreamRequestHandler):
    server: Node

    def handle(self) -> None:
        while self.rfile.readline():
            self.server.asked += 1
            self.server.answers.wait(60)
            self.wfile.write(b"+PONG\r\n")


@contextlib.contextmanager
def serving() -> Iterator[Node]:
    with Node() as node:
        threading.Thread(target=node.serve_forever, daemon=True).start()
        yield node
        node.shutdown()


@pytest.fixture
def shard() -> Iterator[tuple[Node, Node]]:
    with serving() as primary, serving() as replica:
        yield primary, replica


def silence_of_others(asked: Witness, node: Node) -> list[Trouble]:
    """What the witness finds while a node answers nine times."""
    asked.take()
    before = node.asked
    eventually(lambda: node.asked > before + 8)
    return asked.take()


def test_periods_that_are_in_all_lists_are_cut_to_what_they_share():
    one, other = [(0.0, 2.0), (5.0, 9.0)], [(1.0, 6.0), (8.0, 8.5), (9.0, 10.0)]
    assert list(in_all([one, other])) == [(1.0, 2.0), (5.0, 6.0), (8.0, 8.5)]
    assert list(in_all([one, []])) == []


def test_a_shard_is_silent_only_while_none_of_its_nodes_answers(shard, monkeypatch):
    monkeypatch.setattr(witness, "SILENT_S", 0.5)
    primary, replica = shard
    ports = [node.server_address[1] for node in shard]
    with contextlib.closing(Witness([ports])) as asked:
        eventually(lambda: primary.asked > 2 and replica.asked > 2)
        primary.answers.clear()
        # A machine that runs nothing for a moment silences everybody: in the end one such time has no pause.
        eventually(lambda: not silence_of_others(asked, replica))
        replica.answers.clear()
        found = []
        eventually(lambda: bool(found.extend(asked.take()) or found))
        assert {(each.kind, each.shard, each.unreachable, each.lost_data) for each in found} == {
            (NO_ANSWER, 0, True, False)
        }
        primary.answers.set()
        replica.answers.set()
        eventually(lambda: not asked.take())


def test_a_node_that_is_down_is_silent_until_it_is_back(monkeypatch):
    monkeypatch.setattr(witness, "SILENT_S", 0.5)
    with serving() as node:
        port = node.server_address[1]
    with contextlib.closing(Witness([[port]])) as asked:
        found = []
        eventually(lambda: bool(found.extend(asked.take()) or found))
        assert found[0].ended_s - found[0].began_s > 0.5


NOTHING = Path("/no/such/file")


def test_a_node_that_was_slow_without_a_cause_is_harmless_trouble_of_its_shard_for_a_while():
    slowness = Slowness(lambda slot: slot // 100, NOTHING)
    before_s = time.monotonic()
    slowness.note(250)
    [found] = slowness.take()
    assert (found.kind, found.shard, found.lost_data, found.unreachable) == (SLOW_NODE, 2, False, False)
    assert before_s <= found.began_s < found.ended_s
    assert not slowness.take()
    facts = Facts(None, None, [found], None)  # type: ignore[arg-type]
    assert facts.has_trouble(before_s, found.began_s)
    assert not facts.has_lost(2, found.ended_s)


def test_a_node_that_was_slow_in_planned_trouble_excuses_beyond_its_end_and_is_not_counted():
    slowness = Slowness(lambda slot: slot, NOTHING)
    planned = Trouble("stop-node", 1, time.monotonic())
    slowness.note(1)
    slowness.note(2)
    planned.ended_s = time.monotonic()
    found = slowness.take()
    assert unexplained(found, [planned]) == 1
    facts = Facts(None, None, [planned, *found], None)  # type: ignore[arg-type]
    assert facts.has_trouble(planned.ended_s + 0.1, planned.ended_s + 0.2)


def test_nodes_that_did_not_answer_the_server_are_taken_once_each_line_when_it_is_complete(tmp_path):
    file = tmp_path / "slow-nodes"
    slowness = Slowness(lambda slot: slot // 100, file)
    assert not slowness.take()
    file.write_text("250 12.5\n101 13.0\n30", encoding="ascii")
    assert [(each.shard, each.began_s) for each in slowness.take()] == [(2, 12.5), (1, 13.0)]
    assert not slowness.take()
    with file.open("a", encoding="ascii") as opened:
        opened.write("1 14.0\n")
    assert [(each.shard, each.began_s) for each in slowness.take()] == [(3, 14.0)]
