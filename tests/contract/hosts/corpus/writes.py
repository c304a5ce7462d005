"""Writes of one key, and pushes as kprf takes them."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.contract.hosts.case import LAMBDA, SERVER, Case
from tests.contract.hosts.topics import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.hosts.case import Headers, Names

JSON: Headers = (("Content-Type", "application/json"),)
MIB = 1024 * 1024
NOWHERE = "hosts-nowhere"
"""A topic that there is not."""
BOMB = gzip.compress(b"0" * (7 * MIB))
TRACE = (
    ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("tracestate", "vendor=1"),
)
UNREADABLE = (("json", b"{"), ("text", b"\xff"), ("registered", b"{"), ("registered", b"\0\0\x0f\x12\x06x"))
"""Topics, and values that their readers could not read: none of them is written."""
HEADERS: tuple[Headers, ...] = (
    TRACE,
    (*TRACE, *TRACE),
    (("traceparent", "00-0-0-01"),),
    (("traceparent", "x" * 9_000),),
    (("Prefer", "respond-async"),),
    (("Prefer", "wait=1"), ("Prefer", "respond-async")),
    (("If-Match", "*"),),
    (("If-None-Match", "*"),),
    (("If-Unmodified-Since", "Tue, 14 Nov 2023 22:13:20 GMT"),),
    (("Accept", "text/html"),),
    (("Content-Type", "application/octet-stream"),),
    (("Content-MD5", "x"), ("Digest", "x")),
    (("X-HTTP-Method-Override", "DELETE"),),
)


def _json(document: Any) -> bytes:
    return json.dumps(document).encode()


def key_cases(names: Names) -> Iterator[Case]:
    """PUT and DELETE of a key."""
    path = f"/topics/{names.out('three')}/keys/k"
    for body in (b'{"a": 1}', b"text", b"\x00\xff", b"", b" ", b"null", "Zürich".encode(), b"x" * 100_000):
        for headers in ((), JSON, (("Content-Type", "text/plain; charset=iso-8859-1"),)):
            yield Case("PUT", path, headers, body)
    yield Case("PUT", path, (), b"x" * MIB)
    yield Case("PUT", path, (), b"x" * (MIB + 1))
    yield Case("PUT", f"/topics/{names.out('three')}/keys/{'k' * 65_400}", (), b"1")
    yield Case("DELETE", path)
    yield Case("DELETE", path, JSON, b"{}")
    for topic, value in UNREADABLE:
        for query in ("", "?schema=latest", "?schema=7", "?schema=x", "?raw=no"):
            yield Case("PUT", f"/topics/{PREFIX}{topic}/keys/k{query}", (), value)
    for topic in ("hosts-nowhere", "a%20b", "..", "__consumer_offsets", "x" * 250):
        yield Case("PUT", f"/topics/{topic}/keys/k", (), b"1")
        yield Case("DELETE", f"/topics/{topic}/keys/k")
    for headers in HEADERS:
        yield Case("PUT", path, headers, b"1")
        yield Case("DELETE", path, headers)
    yield from coding_cases(Case("PUT", path, (), b'{"a": 1}'))
    yield from replayed_cases(Case("PUT", path, (), b"1"), names, "put")
    yield from replayed_cases(Case("DELETE", path), names, "delete")


def coding_cases(case: Case) -> Iterator[Case]:
    """A request whose body the client compressed, well and badly."""
    body = case.body
    packed = gzip.compress(body, mtime=0)
    codings: tuple[tuple[str, bytes, str], ...] = (
        ("gzip", packed, "packed"),
        ("x-gzip", packed, "packed"),
        ("GZIP", packed, "packed"),
        ("gzip", gzip.compress(body[:3], mtime=0) + gzip.compress(body[3:], mtime=0), "two members"),
        ("gzip", packed[:-5], "cut"),
        ("gzip", packed + b"rest", "packed, and more"),
        ("gzip", body, "not packed"),
        ("gzip", b"", "empty"),
        ("gzip", BOMB, "7 MiB"),
        ("identity", body, "not packed"),
        ("identity, gzip", packed, "packed"),
        ("gzip, gzip", gzip.compress(packed, mtime=0), "packed twice"),
        ("br", body, "not packed"),
        ("deflate", body, "not packed"),
        ("", body, "not packed"),
        (",", body, "not packed"),
    )
    for coding, coded, note in codings:
        yield replace(case, headers=(*case.headers, ("Content-Encoding", coding)), body=coded, note=note)


def replayed_cases(case: Case, names: Names, kind: str) -> Iterator[Case]:
    """A request that is sent again with its idempotency key, and others with the same key."""
    for part in ("one", "two"):
        key = ("Idempotency-Key", f"{names.tag}-{kind}-{part}")
        keyed = replace(case, headers=(*case.headers, key))
        yield keyed
        yield keyed
        yield replace(keyed, body=case.body + b" ")
        yield replace(keyed, target=f"{case.target}{'&' if '?' in case.target else '?'}key_format=text")
        yield replace(keyed, headers=(*keyed.headers, ("Content-Type", "text/plain")))
        yield replace(keyed, headers=(*keyed.headers, ("X-More", "1")))


def push_cases(names: Names) -> Iterator[Case]:
    """POST /push."""
    one = names.out("json")
    good = {"topic": one, "key": "k", "data": "1"}
    documents = _push_documents(one, names.out("three"))
    for document in documents:
        yield Case("POST", "/push", JSON, _json(document))
    yield from _odd_bodies("/push", JSON, {"records": [good], "wait_for_send": True})
    yield from coding_cases(Case("POST", "/push", JSON, _json(documents[0])))
    yield from replayed_cases(Case("POST", "/push", JSON, _json(documents[0])), names, "push")
    failing = {"records": [{"topic": NOWHERE, "data": "1"}], "wait_for_send": True}
    yield from replayed_cases(Case("POST", "/push", JSON, _json(failing)), names, "failing")
    partly = {"records": [good, {"topic": NOWHERE, "data": "1"}], "wait_for_send": True}
    yield from replayed_cases(Case("POST", "/push", JSON, _json(partly)), names, "partly")
    for headers in (
        (),
        (("Content-Type", "text/plain"),),
        (("Content-Type", "application/xml"),),
        (*JSON, *TRACE),
    ):
        yield Case("POST", "/push", headers, _json(documents[0]))


def _push_documents(one: str, three: str) -> list[Any]:
    """Pushes to a topic of one partition and to one of three: the first is good."""
    good = {"topic": one, "key": "k", "data": "1"}
    records: list[Any] = [
        [good],
        [],
        [good, {"topic": three, "key": "k", "data": "2"}],
        [good, {"topic": NOWHERE, "data": "2"}],
        [{"topic": NOWHERE, "data": "2"}],
        [good, {"topic": three, "data": "2", "partition": 2}],
        [{"topic": three, "key": "k", "data": "2", "partition": -1}],
        *([{"topic": three, "data": "2", "partition": number}] for number in (3, -2, 2**31 - 1, 2**31)),
        *([{"topic": one, "data": "2", "partition": each}] for each in ("0", 0.0, True)),
        [{"topic": one, "data": "", "key": ""}],
        [{"topic": one, "data": "\ud800"}],
        [{"topic": one, "data": "1", "key": "\ud800"}],
        [{"topic": "\ud800", "data": "1"}],
        [{"topic": "a b", "data": "1"}, good],
        [{"topic": "", "data": "1"}],
        [{"topic": one, "data": "x" * (MIB + 1)}, good],
        [{"topic": one, "data": "1", "key": "k" * 65_537}, good],
        [{"topic": one, "data": "1", "more": 1}],
        [good] * 100,
        [good] * 10_001,
        [{"topic": f"t{number}", "data": "1"} for number in range(101)],
        [{"topic": "__consumer_offsets", "data": "1"}],
        *("x", None, [1], [None], [{}], [{"data": "1"}], [{"topic": one}], [{"topic": 1, "data": "1"}]),
        [{"topic": one, "data": None}],
        [{"topic": one, "data": {"a": 1}}],
        [{"topic": one, "data": "1", "key": 1}],
    ]
    waits: list[Any] = [{"records": [good], "wait_for_send": each} for each in (False, None, "true", 1)]
    waits += [{"records": each} for each in ([good], [], [{"topic": NOWHERE, "data": "2"}])]
    documents = [{"records": each, "wait_for_send": True} for each in records]
    return [*documents, *waits, {"records": [good], "more": 2, "wait_for_send": True}, {}, [], "x", None]


def _odd_bodies(target: str, headers: Headers, good: Any) -> Iterator[Case]:
    """Bodies that are no JSON, or too much of it."""
    text = _json(good)
    before, _, behind = text.rpartition(b"1")
    bodies = (
        *(
            b"",
            b" ",
            b"\n",
            b"{",
            b"null",
            b"[]",
            b'"x"',
            b"\xff",
            b"\x00",
            text[:-1],
            text + b"x",
            text + text,
        ),
        *(
            b"\xef\xbb\xbf" + text,
            before + b"NaN" + behind,
            b"[" * 1_000 + b"]" * 1_000,
            b'{"records": ' + b"[" * 1_001,
        ),
        *(b"[" * 200_000, text[:-1] + b', "x": 1e400}', text[:-1] + b', "x": ' + b"9" * 5_000 + b"}"),
        b'{"records": [], "records": 1}',
    )
    for body in bodies:
        yield Case("POST", target, headers, body)
    for size in (6 * MIB, 6 * MIB + 1):
        yield Case("POST", target, headers, b" " * (size - len(text)) + text, note=f"{size} bytes")


def odd_bodies(target: str, headers: Headers, good: Any) -> Iterator[Case]:
    """As pushes have them, for other routes."""
    return _odd_bodies(target, headers, good)


def framing_cases(names: Names) -> Iterator[Case]:
    """How a body's end is found, which is the server's business alone."""
    path, body = f"/topics/{names.out('framed')}/keys/k", b"chunked"
    chunks = b"3\r\nchu\r\n4;x=y\r\nnked\r\n0\r\n\r\n"
    for headers, sent in (
        ((("Transfer-Encoding", "chunked"),), chunks),
        ((("Transfer-Encoding", "chunked"), ("Content-Length", "3")), chunks),
        ((("Content-Length", "7"), ("Content-Length", "7")), body),
        ((("Content-Length", "7"), ("Content-Length", "8")), body),
        ((("Content-Length", "-1"),), body),
        ((("Content-Length", "x"),), body),
        ((("Content-Length", "0"),), b""),
        ((("Expect", "100-continue"),), body),
    ):
        yield Case("PUT", path, headers, sent, hosts=(SERVER,))
        yield Case("GET", "/topics/hosts-flights/keys/N14228", headers, sent, hosts=(SERVER,))


def event_cases(names: Names) -> Iterator[Case]:
    """Events that API Gateway would not make, and such as a tester at the console makes."""
    head = {"httpMethod": "GET", "path": "/topics/hosts-flights/keys/N14228"}
    events: tuple[tuple[str, dict[str, Any]], ...] = (
        ("query", {}),
        ("query", {"httpMethod": "GET"}),
        ("query", {"path": "/health"}),
        ("query", head),
        ("query", {**head, "headers": None, "multiValueHeaders": None, "requestContext": None}),
        ("query", {**head, "headers": {"Prefer": "wait=0"}}),
        ("query", {**head, "multiValueHeaders": {"Accept": ["text/plain", "application/json"]}}),
        ("query", {**head, "queryStringParameters": {"envelope": "true"}}),
        ("query", {**head, "requestContext": {"requestId": "an id"}}),
        (
            "query",
            {
                **head,
                "httpMethod": "POST",
                "path": "/topics/hosts-flights/keys:read",
                "body": '{"keys": ["N14228"]}',
            },
        ),
        (
            "query",
            {
                **head,
                "httpMethod": "POST",
                "path": "/topics/hosts-flights/keys:read",
                "body": "!",
                "isBase64Encoded": True,
            },
        ),
        ("query", {**head, "path": "/push"}),
        ("query", {**head, "path": "/health"}),
        ("explore", {**head, "path": "/brokers"}),
        ("explore", head),
        ("produce", {"httpMethod": "POST", "path": "/push", "body": None}),
        ("produce", {"httpMethod": "GET", "path": "/push"}),
        ("produce", head),
        ("produce", {"httpMethod": "POST", "path": "/push", "body": "\ud800"}),
    )
    for number, (function, event) in enumerate(events):
        yield Case("GET", "", hosts=(LAMBDA,), event=(function, event), label=f"{function}: event {number}")
