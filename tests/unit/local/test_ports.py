from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from keylane_local.errors import PortInUse, StackError
from keylane_local.process import ports
from keylane_local.process.ports import Ports, Reservations, is_free, owner_of


@pytest.fixture
def taken():
    """A port on which this very process listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_port_that_nobody_is_seen_to_have_is_waited_for(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as dying:
        port, looks = dying.getsockname()[1], []

        def owner(_: int) -> None:
            looks.append(1)
            if len(looks) == 3:
                dying.close()

        monkeypatch.setattr(ports, "owner_of", owner)
        assert Ports().exactly(port, "kafka") == port
    assert len(looks) == 3


def test_a_port_in_use_is_reported_with_part_owner_and_option(taken):
    with pytest.raises(PortInUse) as caught:
        Ports().exactly(taken, "kafka", "--kafka-port")
    text = str(caught.value)
    assert f"port {taken}, requested for kafka, is in use" in text
    assert f"pid {os.getpid()}" in text
    assert "--kafka-port" in text


def test_a_preferred_port_that_is_taken_is_replaced_by_a_free_one(taken):
    port = Ports().rather(taken)
    assert port != taken
    assert is_free(port)


def test_no_port_is_handed_out_twice():
    chosen = Ports()
    given = [chosen.any() for _ in range(50)]
    assert len(set(given)) == 50
    assert chosen.rather(given[0]) != given[0]
    with pytest.raises(PortInUse):
        chosen.exactly(given[1], "redis")


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_number_that_is_not_a_port_is_rejected(port):
    with pytest.raises(StackError, match="not between 1 and 65535"):
        Ports().exactly(port, "http")


def test_a_free_port_has_no_owner():
    assert owner_of(Ports().any()) is None


def test_a_port_that_another_command_has_reserved_is_not_handed_out_until_that_one_ends():
    with Reservations() as first, Reservations() as second:
        port = Ports(reservations=first).any()
        assert Ports(reservations=second).rather(port) != port
        with pytest.raises(PortInUse, match=f"port {port}"):
            Ports(reservations=second).exactly(port, "http")
        assert Ports(reservations=first).exactly(port, "http") == port
    with Reservations() as third:
        assert Ports(reservations=third).rather(port) == port


def test_a_port_on_which_a_server_listens_is_not_reserved_for_it_may_start_again(taken):
    with Reservations() as first, Reservations() as second:
        assert Ports(reservations=first).rather(taken) != taken
        assert second.take(taken)


CHOOSE = """
import random, sys
from keylane_local.process.ports import Ports
random.seed(7)
chosen = Ports()
print(*(chosen.any() for _ in range(4)), flush=True)
sys.stdin.read()
"""


def test_no_port_is_given_to_two_processes_before_either_listens():
    """Both draw the same numbers."""
    command = [sys.executable, "-c", CHOOSE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as one, subprocess.Popen(command, **pipes) as other:
        given = [*one.stdout.readline().split(), *other.stdout.readline().split()]
        assert len(given) == 8
        assert len({*given}) == 8
        with pytest.raises(PortInUse):
            Ports().exactly(int(given[0]), "kafka")


def test_a_program_gets_the_port_that_was_chosen_for_it():
    port = Ports().any()
    with Reservations() as own:
        assert not own.take(port)
        assert Ports(reservations=own).exactly(port, "kafka") == port
    script = f"from keylane_local.process.ports import Ports; print(Ports().exactly({port}, 'kafka'))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) == port


def test_a_process_reserves_no_more_ports_than_it_may_have_files(monkeypatch):
    monkeypatch.setattr(ports, "_MOST_HELD", 3)
    with Reservations() as reservations:
        chosen = Ports(reservations=reservations)
        given = [chosen.any() for _ in range(5)]
        assert [reservations.holds(port) for port in given] == [False, False, True, True, True]
        assert len({*given}) == 5
