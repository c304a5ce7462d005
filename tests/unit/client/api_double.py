"""An API that answers by a list, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx

from keylane_client import AsyncClient, Client, ClientOptions, RetryPolicy, Topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

URL = "https://api.test/v1"
FRESH = {"Keylane-Watermark": "2:8", "Keylane-Age-Ms": "250"}
QUICK = ClientOptions(retries=RetryPolicy(attempts=3, max_backoff_s=0.01))


class ApiDouble:
    """Gives its answers one after the other."""

    def __init__(self, *answers: httpx.Response) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def client(self, options: ClientOptions = QUICK, auth: httpx.Auth | None = None) -> Client:
        return Client(URL, auth, options=options, transport=httpx.MockTransport(self._answer))

    def async_client(self, options: ClientOptions = QUICK, auth: httpx.Auth | None = None) -> AsyncClient:
        return AsyncClient(URL, auth, options=options, transport=httpx.MockTransport(self._answer))

    def topic(self, options: ClientOptions = QUICK) -> Topic:
        return self.client(options).topic("t")

    def session_topic(self) -> Topic:
        """Return a topic of a session, which reads its own writes."""
        return self.client().session().topic("t")

    def run(self, work: Callable[[AsyncClient], Awaitable[Any]], options: ClientOptions = QUICK) -> Any:
        """Return what `work` does with an asynchronous client."""

        async def inside() -> Any:
            async with self.async_client(options) as client:
                return await work(client)

        return asyncio.run(inside())

    @property
    def paths(self) -> list[str]:
        return [request.url.raw_path.decode().removeprefix("/v1") for request in self.requests]

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def found(value: object, offset: int = 7) -> httpx.Response:
    return found_bytes(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(), offset=offset)


def found_bytes(data: bytes, content_type: str = "application/json", offset: int = 7) -> httpx.Response:
    headers = FRESH | {"Keylane-Position": f"2:{offset}", "Keylane-Timestamp": "1357034400000"}
    return httpx.Response(200, headers=headers | {"Content-Type": content_type}, content=data)


def problem(status: int, kind: str, *, uncertain: bool = False, **headers: str) -> httpx.Response:
    document = {"type": f"urn:keylane:problem:{kind}", "title": "T", "status": status, "detail": "D"}
    document |= {"uncertain": True} if uncertain else {}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, headers=names, json=document)


def page(*keys: str, cursor: str | None = None, watermark: int = 8) -> httpx.Response:
    rows = [row(key) for key in keys]
    document = {"records": rows, "watermarks": {"2": watermark}, "age_ms": 3}
    return httpx.Response(200, json=document | ({"next": cursor} if cursor else {}))


def counted(count: object, watermark: int = 8) -> httpx.Response:
    return httpx.Response(200, json={"count": count, "watermarks": {"2": watermark}, "age_ms": 3})


def row(key: str) -> dict:
    return {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "position": "2:7",
        "timestamp": 1,
        "key": key,
        "key_format": "text",
        "watermark": "2:8",
        "age_ms": 3,
        "value_format": "json",
        "value": {"k": key},
    }


def written(offset: int, partition: int = 2) -> httpx.Response:
    return httpx.Response(201, json={"partition": partition, "offset": offset, "position": "p"})


def body_of(request: httpx.Request) -> dict:
    return json.loads(request.content)
