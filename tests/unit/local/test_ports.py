from __future__ import annotations

import os
import socket

import pytest

from keylane_local.errors import PortInUse, StackError
from keylane_local.process.ports import Ports, Reservations, is_free, owner_of


@pytest.fixture
def taken():
    """A port on which this very process listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


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
    ports = Ports()
    given = [ports.any() for _ in range(50)]
    assert len(set(given)) == 50
    assert ports.rather(given[0]) != given[0]
    with pytest.raises(PortInUse):
        ports.exactly(given[1], "redis")


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
