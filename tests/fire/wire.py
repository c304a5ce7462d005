"""HTTP/1.1 over one kept connection, as little of it as needed: the checker must not be the bottleneck."""

from __future__ import annotations

import asyncio
import contextlib
import time

from tests.support.replies import Reply

NO_ANSWER = 0
"""The status of a request whose connection broke, or that was not answered in time."""
ANSWER_WITHIN_S = 30.0
LIMIT_BYTES = 1 << 20


NOTHING = Reply(NO_ANSWER, {}, b"")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def rendered(method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
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

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        """Send a request; NOTHING if it has no answer. Nothing is sent twice."""
        named = self._headers | {name.replace("_", "-"): value for name, value in headers.items()}
        began_ms = now_ms()
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                if self._open is None:
                    self._open = await asyncio.open_connection(*self._address, limit=LIMIT_BYTES)
                reader, writer = self._open
                writer.write(rendered(method, path, body, named))
                reply = await _read_reply(reader, has_body=method != "HEAD")
                return reply._replace(began_ms=began_ms, ended_ms=now_ms())
        except (OSError, EOFError, TimeoutError):
            self.close()
            return NOTHING

    def close(self) -> None:
        if self._open is not None:
            with contextlib.suppress(OSError):
                self._open[1].close()
        self._open = None


async def _read_reply(reader: asyncio.StreamReader, *, has_body: bool) -> Reply:
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    size = int(headers.get("content-length", "0")) if has_body else 0
    return Reply(int(status[9:12]), headers, await reader.readexactly(size))
