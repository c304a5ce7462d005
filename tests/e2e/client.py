"""A plain HTTP client that sends paths unchanged: the tests cover percent-encoding."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

APPLIED_WITHIN_S = 120


@dataclass(frozen=True, slots=True)
class ApiResponse:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


class Client:
    """One connection, with a timeout of 60 s per request, far more than any answer takes."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> ApiResponse:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(method, path, body=body, headers=names)
        answer = self._connection.getresponse()
        return ApiResponse(answer.status, answer.headers, answer.read())

    def put(self, topic: str, key: bytes, value: bytes, **headers: str) -> str:
        """Write a record and return its position."""
        answer = self.request("PUT", path_of(topic, key), value, **headers)
        assert answer.status == 201, answer.body
        return answer.json["position"]

    def get(self, topic: str, key: bytes, query: str = "", **headers: str) -> ApiResponse:
        return self.request("GET", path_of(topic, key) + query, **headers)

    def get_at(self, topic: str, key: bytes, position: str, query: str = "", **headers: str) -> ApiResponse:
        """Read a key once the state has a position: a busy machine may take longer than one request waits."""
        until_s = time.monotonic() + APPLIED_WITHIN_S
        while True:
            answer = self.get(topic, key, query, Keylane_Min_Position=position, Prefer="wait=20", **headers)
            if answer.status != http.HTTPStatus.PRECONDITION_FAILED or time.monotonic() > until_s:
                return answer

    def close(self) -> None:
        self._connection.close()


def path_of(topic: str, key: bytes) -> str:
    return f"/topics/{topic}/keys/{quote(key, safe='')}"
