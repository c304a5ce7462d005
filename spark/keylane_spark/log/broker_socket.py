"""An authenticated connection to one of Kafka's brokers, and the errors that its use raises."""

import contextlib
import io
import socket
import struct
from dataclasses import dataclass
from typing import Any

from kafka import errors as kafka_errors

BROKER_ERRORS = (kafka_errors.KafkaError, OSError)
"""What a connection, and a response on it, raise."""
_SIZE = struct.Struct(">i")
_HEADER_BYTES = 64


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """A request as bytes, and kafka-python's header, which knows the response."""

    data: bytes
    header: Any

    def decode(self, response: memoryview) -> Any:
        """The response, from its bytes without their header."""
        return self.header.get_response_class().decode(response)


class BrokerSocket:
    """An authenticated connection to one broker. Requests are answered in their order."""

    def __init__(self, sock: socket.socket, versions: Any, client_id: str) -> None:
        self._socket = sock
        self._versions = versions
        self._client_id = client_id
        self._sent: list[EncodedRequest] = []
        self._number = 0

    def send(self, request: Any) -> None:
        """Send a request of kafka-python. Raises OSError, KafkaError."""
        self.send_encoded(self.encode(request))

    def encode(self, request: Any) -> EncodedRequest:
        """Encode a request, which may be sent more than once. Raises KafkaError."""
        request.API_VERSION = self._versions.api_version(request)
        self._number = (self._number + 1) % 2**31
        request.with_header(correlation_id=self._number, client_id=self._client_id)
        return EncodedRequest(request.encode(framed=True, header=True), request.header)

    def send_encoded(self, request: EncodedRequest) -> None:
        """Send what `encode` of this connection has returned. Raises OSError."""
        self._socket.sendall(request.data)
        self._sent.append(request)

    def receive(self) -> Any:
        """The response to the oldest request. Raises OSError, KafkaError; never returns a part of one."""
        request = self._sent[0]
        return request.decode(self.receive_bytes())

    @property
    def awaits_nothing(self) -> bool:
        """Whether all that was sent was answered."""
        return not self._sent

    def receive_bytes(self, within_s: float | None = None) -> memoryview:
        """The same, not decoded and without its header. `within_s`: another timeout, from now on."""
        if within_s is not None:
            self._socket.settimeout(within_s)
        header = self._sent.pop(0).header
        (size,) = _SIZE.unpack(self._read(_SIZE.size))
        data = self._read(size)
        head = io.BytesIO(bytes(data[:_HEADER_BYTES]))
        number = header.get_response_class().parse_header(head).correlation_id
        if number != header.correlation_id:
            raise kafka_errors.CorrelationIdError(f"response {number} instead of {header.correlation_id}")
        return memoryview(data)[head.tell() :]

    def close(self) -> None:
        """Close the connection; what was sent is not waited for."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def _read(self, size: int) -> bytearray:
        if size < 0:
            raise kafka_errors.InvalidReceiveError(f"a response of {size} bytes")
        found = bytearray(size)
        view, done = memoryview(found), 0
        while done < size:
            count = self._socket.recv_into(view[done:])
            if not count:
                raise ConnectionError("the broker has closed the connection")
            done += count
        return found


def check(code: int) -> None:
    """Raise the KafkaError of an error code, unless it is 0."""
    if code:
        raise kafka_errors.for_code(code)


def may_pass(error: kafka_errors.KafkaError | OSError) -> bool:
    """Whether the same request may succeed later, or with fresh metadata."""
    passing = OSError, kafka_errors.UnknownBrokerIdError
    return isinstance(error, passing) or bool(getattr(error, "retriable", False))


def words_of(error: Exception) -> str:
    """The error's name, with its text if it has one."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
