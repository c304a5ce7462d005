"""Answers of the routes of snapshots and changes, whose bodies end, break off or stay open."""

from __future__ import annotations

import asyncio
import json
import queue
from typing import TYPE_CHECKING, Any

import httpx
from tests.unit.client.api_double import row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

BEGAN_AT, ENDED_AT = "0:3,1:4@7", "0:5,1:6@7"


def a_row(key: str, value: object, offset: int = 7, **more: Any) -> dict[str, Any]:
    return row(key) | {"offset": offset, "position": f"2:{offset}", "value": value} | more


def removed(key: str) -> dict[str, Any]:
    return {"key": key, "key_format": "text", "absent": True}


def begun(lanes: int = 2, at: str = BEGAN_AT, **more: Any) -> dict[str, Any]:
    return {"begin": {"topic": "t", "lanes": lanes, "at": at, **more}}


def lane(number: int, as_of_ms: int = 10_000) -> dict[str, Any]:
    return {
        "lane": {
            "lane": f"{number}.0",
            "partition": number,
            "next_offset": 5,
            "as_of_ms": as_of_ms,
            "cursor": f"c{number}",
        }
    }


def ended(at: str | None = ENDED_AT) -> dict[str, Any]:
    return {"end": {} if at is None else {"at": at}}


def failed(status: int, kind: str) -> dict[str, Any]:
    return {"problem": {"type": f"urn:keylane:problem:{kind}", "status": status, "detail": "D"}}


def lines(*documents: dict[str, Any], cut: str = "") -> httpx.Response:
    """Return a snapshot; `cut`: what came of the next line."""
    content = "".join(f"{json.dumps(each)}\n" for each in documents) + cut
    return httpx.Response(200, headers={"Content-Type": "application/x-ndjson"}, content=content.encode())


def snapshot_of(rows: dict[str, object], at: str = ENDED_AT, offset: int = 7) -> httpx.Response:
    found = [a_row(key, value, offset) for key, value in rows.items()]
    return lines(begun(1, at), *found, lane(0), ended(at))


def changed(key: str, value: object, offset: int, at: str = "") -> str:
    document = json.dumps(a_row(key, value, offset))
    return f"event: record\ndata: {document}\n\n" + (f"id: {at}\n\n" if at else "")


def named(name: str, document: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(document)}\n\n"


def reached(at: str) -> str:
    """Return the event that says where the stream is: it has data, or it would be none."""
    return f"id: {at}\n\n"


class OpenBody(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a stream that stays open: what is sent, with comments while there is nothing."""

    def __init__(self, *texts: str) -> None:
        self._texts: queue.Queue[str | Exception] = queue.Queue()
        for text in texts:
            self.send(text)

    def send(self, text: str | Exception) -> None:
        self._texts.put(text)

    def response(self) -> httpx.Response:
        return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=self)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                yield self._encoded(self._texts.get(timeout=0.01))
            except queue.Empty:
                yield b":\n\n"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0.001)
            yield b":\n\n" if self._texts.empty() else self._encoded(self._texts.get())

    @staticmethod
    def _encoded(text: str | Exception) -> bytes:
        if isinstance(text, Exception):
            raise text
        return text.encode()

    async def aclose(self) -> None:
        pass
