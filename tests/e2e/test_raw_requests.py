"""Raw requests that no HTTP client would send: each is answered in time, and never with 5xx."""

from __future__ import annotations

import os
import random
import re
import socket
from urllib.parse import urlsplit

SEED = int(os.environ.get("KEYLANE_SEED", "5"))
LONGEST_S = 5
METHODS = (b"GET", b"HEAD", b"PUT", b"DELETE", b"POST", b"OPTIONS", b"get", b"G\xff")
PIECES = (
    *(b"/topics/anything", b"/keys", b"/keys/", b"/keys:read", b"/history", b"/join/", b"/views/puts", b"/"),
    *(b"object", b"..", b".", b"%", b"%2", b"%zz", b"%00", b"%0d%0a", b"%ff", b"%2F", b"\xc3\xbc", b"\xff"),
    *(b"\x00", b"\x7f", b"#", b"\\", b"*", b"http://x/", b"//", b"a" * 9_000),
    *(
        b"?",
        b"&",
        b"=",
        b";",
        b"key_format=base64",
        b"prefix=%ff",
        b"limit=1&limit=2",
        b"cursor=A",
        b"fields=a.",
    ),
    *(b"as_of=-1", b"envelope=TRUE", b"topics=anything,something", b"max_age_ms=9999999999999999999", b"+"),
)
HEADERS = (
    *(b"Prefer: wait=\xff", b"Prefer: wait=1e9", b"Prefer: wait=,wait=0", b"If-None-Match: \xff\xfe"),
    *(b"If-None-Match: *", b"Keylane-Min-Position: 0:0:0", b"Keylane-Min-Position:", b"Accept: ,;q=x"),
    *(b"Content-Type: \x7f", b"Content-Type: application/json; charset=klingon", b"Content-Encoding: gzip"),
    *(b"Host: x\r\nHost: y", b": nameless", b"Bad Name: x", b"X: " + b"y" * 9_000, b"Expect: 100-continue"),
)
BODIES = (b"", b"{", b'{"keys": ["\\ud800"]}', b'{"keys": ["a"], "keys": 1}', b"\xff\x00", b"[" * 9_000)


def a_request(source: random.Random) -> bytes:
    target = b"/topics/anything/keys/object"
    if source.random() < 0.9:
        target = b"/" + b"".join(source.choices(PIECES, k=source.randrange(1, 6))).removeprefix(b"/")
    body = source.choice(BODIES) if source.random() < 0.3 else b""
    lines = [
        b"%b %b HTTP/1.1" % (source.choice(METHODS), target),
        *([b"Host: localhost"] if source.random() < 0.9 else []),
        *source.choices(HEADERS, k=source.randrange(3)),
        *([b"Content-Length: %d" % len(body)] if body else []),
        b"Connection: close",
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def test_arbitrary_bytes_are_answered_in_time_and_without_a_server_error(stack):
    place = urlsplit(stack.http_url)
    source = random.Random(SEED)
    statuses = set()
    for _ in range(400):
        request = a_request(source)
        with socket.create_connection((place.hostname, place.port), LONGEST_S) as connection:
            connection.sendall(request)
            answer = connection.makefile("rb").read()
        told = re.match(rb"HTTP/1\.[01] (\d{3}) ", answer)
        assert told, (request[:2000], answer[:500])
        statuses.add(int(told[1]))
        assert int(told[1]) < 500, (request[:2000], answer[:2000])
        assert b"Traceback" not in answer, request[:2000]
    assert {200, 400, 404, 405} <= statuses
