"""ApiVersions over a socket: what a broker answers, and what else may happen."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.support.certificates import Authority

from keylane.adapters.kafka.api_versions import fetch_api_versions, parse_api_versions
from keylane.adapters.kafka.options import Security
from keylane.errors import LogUnavailable
from keylane.model.kafka import ApiVersion, Broker
from keylane.ports import Clock, Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESPONSE = struct.pack(">ihi", 0, 0, 2) + struct.pack(">hhhhhh", 18, 0, 4, 0, 3, 12)
FRAME = struct.pack(">i", len(RESPONSE)) + RESPONSE


@contextlib.contextmanager
def answering(answer: bytes, asked: list[bytes], tls: ssl.SSLContext | None = None) -> Iterator[Broker]:
    """Give a broker that answers one request with these bytes, then closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            plain, _ = server.accept()
            # A client that does not trust the certificate ends the handshake.
            with contextlib.suppress(OSError), plain:
                connection = tls.wrap_socket(plain, server_side=True) if tls else plain
                with connection:
                    asked.append(connection.recv(1000))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield Broker(7, "127.0.0.1", server.getsockname()[1])
        thread.join(10)


def fetch(broker: Broker, **security: str) -> tuple[ApiVersion, ...]:
    return fetch_api_versions(broker, Security(**security), Deadline.after_ms(20_000, Clock()))


def test_librdkafkas_own_broker_reports_its_versions():
    client = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = client.list_topics(timeout=20).brokers.values()
    found = fetch(Broker(broker.id, broker.host, broker.port))
    assert {each.api_key for each in found} >= {0, 1, 2, 3}
    assert all(0 <= each.min_version <= each.max_version for each in found)


def test_a_broker_with_tls_is_asked_with_the_settings_of_all_clients(tmp_path: Path):
    authority = Authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.certify("broker").both)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(authority.file)
    client = authority.certify("client", password=b"key-secret")
    given = {
        "protocol": "SSL",
        "ca": str(authority.file),
        "certificate": str(client.certificate),
        "key": client.key.read_text(encoding="ascii"),
        "key_password": "key-secret",
    }
    with answering(FRAME, [], tls) as broker:
        assert len(fetch(broker, **given)) == 2
    with answering(FRAME, [], tls) as broker, pytest.raises(LogUnavailable, match="SSLCertVerificationError"):
        fetch(broker, **given | {"ca": Authority(tmp_path / "other").file.read_text(encoding="ascii")})


def test_the_request_is_version_0_and_the_answer_is_in_the_order_of_the_keys():
    asked: list[bytes] = []
    with answering(FRAME, asked) as broker:
        assert fetch(broker) == (ApiVersion(0, 3, 12), ApiVersion(18, 0, 4))
    assert asked[0] == struct.pack(">ihhih", 25, 18, 0, 0, 15) + b"keylane-explore"


@pytest.mark.parametrize(
    "answer",
    [b"", FRAME[:10], b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">i", 4) + b"1234", FRAME[:-1]],
    ids=["none", "cut", "http", "short", "incomplete"],
)
def test_any_other_answer_is_an_unavailable_broker(answer: bytes):
    with answering(answer, []) as broker, pytest.raises(LogUnavailable, match="broker 7 "):
        fetch(broker)


def test_a_broker_that_is_not_there_is_unavailable_and_its_address_is_not_shown():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(LogUnavailable) as caught:
        fetch(Broker(7, "127.0.0.1", port))
    assert str(caught.value) == "broker 7 did not answer: ConnectionRefusedError"


def test_a_count_beyond_the_response_is_an_error():
    with pytest.raises(struct.error):
        parse_api_versions(struct.pack(">ihi", 0, 0, 3) + b"\0" * 6)
