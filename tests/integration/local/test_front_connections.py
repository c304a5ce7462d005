"""What the local front's HTTP server answers by itself, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging

import pytest

from keylane_local.front.connections import FrontListener, to_web_response
from keylane_local.front.refusals import LINE_LIMIT_BYTES, unknown_coding
from keylane_local.front.server import LOG_FORMAT
from keylane_serve.proxy_events import HttpResponse

END = b"Host: x\r\n\r\n"
CHUNKED = b"3\r\nabc\r\n0\r\n\r\n"
LONGEST_S = 20


async def answer(request, has_begun):
    """As the front: refuse, or answer with the body's length."""
    has_begun.set()
    if refusal := unknown_coding(request.headers.get("Transfer-Encoding", "")):
        return to_web_response(refusal.render("request-1"), "request-1")
    body = await request.read()
    return to_web_response(HttpResponse(200, (), b"%d bytes" % len(body)), "request-1")


@pytest.fixture
def send():
    """Return a function that sends bytes, ends its side if it should, and returns the answer's parts.

    What follows the first bytes is sent once the server has read a request's head.
    """
    refused = []

    @contextlib.asynccontextmanager
    async def listening(has_begun):
        listener = FrontListener(lambda request: answer(request, has_begun), refused.append)
        server = await asyncio.get_running_loop().create_server(listener, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            await listener.shutdown(1)

    async def exchange(parts, *, half_closed):
        has_begun = asyncio.Event()
        async with listening(has_begun) as port, asyncio.timeout(LONGEST_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                first, *rest = parts
                writer.write(first)
                if rest:
                    await has_begun.wait()
                    writer.write(b"".join(rest))
                if half_closed:
                    writer.write_eof()
                return await reader.read()
            finally:
                writer.close()
                await writer.wait_closed()

    def run(*parts, half_closed=False):
        found = asyncio.run(exchange(parts, half_closed=half_closed))
        head, _, body = found.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        return int(lines[0].split()[1]) if found else None, headers, body

    run.refused = refused
    return run


@pytest.mark.parametrize(
    ("request_bytes", "status", "problem"),
    [
        (b"GET /" + b"a" * (LINE_LIMIT_BYTES + 1) + b" HTTP/1.1\r\n" + END, 414, "uri-too-long"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n" + END, 431, "headers-too-large"),
        (b"GET / HTTP/1.1\r\n" + b"a" * 20_000 + b": x\r\n" + END, 431, "headers-too-large"),
        (
            b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 500 + END,
            431,
            "headers-too-large",
        ),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n" + END + b"abc", 400, "malformed-request"),
        (
            b"POST / HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: gzip, chunked\r\n" + END + CHUNKED,
            501,
            "unknown-transfer-coding",
        ),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + END + b"zz\r\n", 400, "malformed-request"),
        (b"\x16\x03\x01\x00", 400, "malformed-request"),
        (b"nonsense\r\n\r\n", 400, "malformed-request"),
    ],
    ids=["uri", "header", "name", "count", "gzip", "gzip-chunked", "chunk", "tls", "nonsense"],
)
def test_what_the_parser_refuses_is_a_problem_and_no_trace(send, caplog, request_bytes, status, problem):
    caplog.set_level(logging.INFO)
    found, headers, body = send(request_bytes)
    assert found == status
    assert headers["Content-Type"] == "application/problem+json"
    document = json.loads(body)
    assert (document["type"], document["status"]) == (f"urn:keylane:problem:{problem}", status)
    assert document["instance"] == headers["x-amzn-RequestId"]
    assert "\n" not in document["detail"]
    assert all(record.exc_info is None for record in caplog.records)
    if status != 501:
        assert send.refused == [status]
        assert str(status) in caplog.text


def test_a_chunk_that_is_broken_after_the_head_was_read_is_400(send, caplog):
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + END
    assert send(head, b"zz\r\nabc\r\n")[0] == 400
    assert all(record.exc_info is None for record in caplog.records)


@pytest.mark.parametrize(
    "parts",
    [
        (b"GET / HTTP/1.1\r\n" + END,),
        (b"GET / HTTP/1.1\r\nConnection: keep-alive\r\n" + END,),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n" + END + b"abc",),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + END, CHUNKED),
    ],
    ids=["get", "keep-alive", "body", "chunked"],
)
def test_a_half_closed_connection_gets_its_answer_and_is_closed(send, parts):
    status, _, body = send(*parts, half_closed=True)
    assert status == 200
    assert body == (b"0 bytes" if parts[0].startswith(b"GET") else b"3 bytes")


def test_a_client_that_goes_in_the_middle_of_its_body_leaves_no_trace(send, caplog):
    assert send(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n" + END + b"abc", half_closed=True)[0] is None
    assert all(record.exc_info is None for record in caplog.records)


def test_the_access_log_s_format_is_one_of_a_log():
    record = logging.LogRecord("keylane.front", logging.INFO, __file__, 1, "%s %d", ("GET", 200), None)
    assert logging.Formatter(LOG_FORMAT).format(record).endswith("INFO GET 200")
