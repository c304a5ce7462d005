"""HTTP/1.1 over one kept connection, as little of it as needed: the checker must not be the bottleneck."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, NamedTuple

NO_ANSWER = 0
"""The status of a request whose connection broke, or that was not answered in time."""
ANSWER_WITHIN_S = 30.0
LIMIT_BYTES = 1 << 20


class WireReply(NamedTuple):
    """An answer; its headers' names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


NOTHING = WireReply(NO_ANSWER, {}, b"")


def rendered(method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
    """Return a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: server"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body or method != "GET":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Caller:
    """Sends one request after the other over a connection, which it opens where there is none."""

    def __init__(self, host: str, port: int, headers: dict[str, str] | None = None) -> None:
        self._address = host, port
        self._headers = headers or {}
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> WireReply:
        """Send a request; NOTHING if it has no answer. Nothing is sent twice."""
        named = self._headers | {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                if self._open is None:
                    self._open = await asyncio.open_connection(*self._address, limit=LIMIT_BYTES)
                reader, writer = self._open
                writer.write(rendered(method, path, body, named))
                return await _read_reply(reader, has_body=method != "HEAD")
        except (OSError, EOFError, TimeoutError):
            self.close()
            return NOTHING

    def close(self) -> None:
        if self._open is not None:
            with contextlib.suppress(OSError):
                self._open[1].close()
        self._open = None


async def _read_reply(reader: asyncio.StreamReader, *, has_body: bool) -> WireReply:
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    size = int(headers.get("content-length", "0")) if has_body else 0
    return WireReply(int(status[9:12]), headers, await reader.readexactly(size))
