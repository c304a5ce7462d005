"""How kafka-python reaches Kafka: what it leaves undone."""

from __future__ import annotations

import socket
import ssl

import pytest

from keylane.config.kafka import connection
from keylane_spark.log.fetch_options import configuration

TLS = {"KEYLANE_KAFKA_BOOTSTRAP": "kafka:9093", "KEYLANE_KAFKA_SECURITY_PROTOCOL": "SSL"}


def test_a_socket_whose_handshake_fails_at_once_is_closed():
    """kafka-python forgets it: on a busy machine the answer may be there before the first wait."""
    context = configuration(connection(TLS))["ssl_context"]
    here, there = socket.socketpair()
    with there:
        here.setblocking(False)
        there.sendall(b"this is no TLS")
        client = context.wrap_socket(here, server_hostname="kafka", do_handshake_on_connect=False)
        with pytest.raises(ssl.SSLError):
            client.do_handshake()
        assert client.fileno() == -1


def test_a_socket_that_waits_for_the_handshake_stays_open():
    context = configuration(connection(TLS))["ssl_context"]
    here, there = socket.socketpair()
    with there:
        here.setblocking(False)
        with context.wrap_socket(here, server_hostname="kafka", do_handshake_on_connect=False) as client:
            with pytest.raises(ssl.SSLWantReadError):
                client.do_handshake()
            assert client.fileno() > 0
