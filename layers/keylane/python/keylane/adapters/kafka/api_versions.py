"""Asks a broker which versions of each API it supports: ApiVersions, version 0, of Kafka's protocol.

librdkafka asks too, but shows the answer to nobody. A broker answers before the client has authenticated: a
connection needs TLS where the cluster has it, and no credentials.

    request    size i32, API key i16 (18), version i16 (0), correlation id i32, client id (i16 length, text)
    response   size i32, correlation id i32, error i16, count i32, for each API: key, least, newest i16
"""

import socket
import ssl
import struct
import tempfile
from pathlib import Path

from keylane.adapters.kafka.options import FULL, NONE, Security, is_pem
from keylane.errors import LogUnavailable
from keylane.model.kafka import ApiVersion, Broker
from keylane.ports import Deadline

API_VERSIONS = 18
_CLIENT = b"keylane-explore"
_REQUEST = struct.pack(f">hhih{len(_CLIENT)}s", API_VERSIONS, 0, 0, len(_CLIENT), _CLIENT)
_SIZE, _HEAD, _API = struct.Struct(">i"), struct.Struct(">ihi"), struct.Struct(">hhh")
_LONGEST_BYTES = 64 * 1024


def fetch_api_versions(broker: Broker, security: Security, deadline: Deadline) -> tuple[ApiVersion, ...]:
    """Return the versions, in the order of the APIs' keys. Raises LogUnavailable."""
    try:
        with (
            socket.create_connection((broker.host, broker.port), deadline.remaining_s or 0.001) as plain,
            _secured(plain, broker.host, security) as connection,
        ):
            connection.sendall(_SIZE.pack(len(_REQUEST)) + _REQUEST)
            (size,) = _SIZE.unpack(_receive(connection, _SIZE.size, deadline))
            if not _HEAD.size <= size <= _LONGEST_BYTES:
                raise LogUnavailable(f"broker {broker.number} answered with {size} bytes")
            return parse_api_versions(_receive(connection, size, deadline))
    except (OSError, struct.error) as error:
        raise LogUnavailable(f"broker {broker.number} did not answer: {type(error).__name__}") from error


def parse_api_versions(response: bytes) -> tuple[ApiVersion, ...]:
    """Parse a response without its size. Raises struct.error."""
    _, _, count = _HEAD.unpack_from(response)
    found = (ApiVersion(*_API.unpack_from(response, _HEAD.size + _API.size * n)) for n in range(count))
    return tuple(sorted(found))


def _receive(connection: socket.socket, size: int, deadline: Deadline) -> bytes:
    received = b""
    while len(received) < size:
        connection.settimeout(deadline.remaining_s or 0.001)
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError("the broker closed the connection")
        received += part
    return received


def _secured(plain: socket.socket, host: str, security: Security) -> socket.socket:
    if not security.has_tls:
        return plain
    context = ssl.create_default_context()
    context.check_hostname = security.verify == FULL
    if security.verify == NONE:
        context.verify_mode = ssl.CERT_NONE
    if security.ca:
        pem = is_pem(security.ca)
        context.load_verify_locations(**{"cadata" if pem else "cafile": security.ca})
    if security.certificate:
        _load_certificate(context, security)
    return context.wrap_socket(plain, server_hostname=host)


def _load_certificate(context: ssl.SSLContext, security: Security) -> None:
    """Load the client's certificate and key. Python's ssl takes files alone."""
    with tempfile.TemporaryDirectory() as folder:
        certificate = _file(Path(folder) / "certificate", security.certificate)
        key = _file(Path(folder) / "key", security.key)
        context.load_cert_chain(certificate, key, security.key_password or None)


def _file(path: Path, given: str) -> Path:
    """Return the file of what is given: its path, or the text of a PEM file, which is written to `path`."""
    if not is_pem(given):
        return Path(given)
    path.touch(mode=0o600)
    path.write_text(given, encoding="ascii")
    return path
