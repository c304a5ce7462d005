"""The witness of the torture: a read is excused only while no node of the shard answers anybody."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from typing import TYPE_CHECKING

import pytest
from tests.servers.own import eventually
from tests.torture import witness
from tests.torture.witness import NO_ANSWER, Witness, in_all

from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.torture.faults.world import Trouble


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
