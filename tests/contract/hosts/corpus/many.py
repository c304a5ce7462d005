"""Reads of many keys of a topic, and of one key of many topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.contract.hosts.case import Case
from tests.contract.hosts.corpus.reads import BYTES, JSON, REGISTERED
from tests.contract.hosts.topics import VALUES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.hosts.case import Headers, Names

PATH = "/topics/hosts-flights/keys:read"
SHORT = [key.decode() for key, value in VALUES.items() if len(value) < 10_000]
DOCUMENTS: tuple[object, ...] = (
    {"keys": ["N14228", "N24211", "absent", "N14228"]},
    {"keys": SHORT},
    {"keys": SHORT, "key_format": "text"},
    {"keys": ["TjE0MjI4", "AP8K"], "key_format": "base64"},
    {"keys": ["!"], "key_format": "base64"},
    {"keys": ["a"], "key_format": "hex"},
    {"keys": ["a"], "key_format": 1},
    {"keys": ["a"], "key_format": None},
    *(
        {"keys": keys}
        for keys in ([], [""], ["a", ""], ["a", 1], ["a", None], "a", {"a": 1}, None, ["\ud800"])
    ),
    {"keyz": ["a"]},
    {"keys": ["x" * 65_537]},
    {"keys": ["x" * 65_536, "N14228"]},
    {"keys": [str(number) for number in range(1_000)]},
    {"keys": [str(number) for number in range(1_001)]},
    {"keys": ["N14228"], "more": 1},
    *([], ["a"], "a", None, 1),
)
BODIES = (
    *(b"", b" ", b"{", b"\xff", b"[" * 1_001, b"[" * 100_000, b'{"keys": ["a"]} x', b"NaN", b"null"),
    *(b"\xef\xbb\xbf" + b'{"keys": ["a"]}', b'{"keys": ["a"], "keys": ["N14228"]}', b'{"keys": ["\\ud800"]}'),
    b'{"keys": [NaN]}',
)
TYPES: tuple[Headers, ...] = (
    *((), (("Content-Type", "text/plain"),), (("Content-Type", "application/xml"),), BYTES),
)
TOPICS = ("registered", "text", "json", "bytes", "headers", "left", "striped", "hidden", "trips")


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


def many_cases(names: Names) -> Iterator[Case]:
    """Many keys of a topic: documents of all kinds, and topics of all kinds."""
    for body in (*map(_json, DOCUMENTS), *BODIES):
        yield Case("POST", PATH, JSON, body)
    for query in ("?atomic=true", "?fields=dest,a", "?fields=dest&atomic=true", "?partial=true"):
        for keys in (["N14228"], ["N14228", "N14228"], ["N14228", "N24211", "v-object", "v-array"]):
            yield Case("POST", PATH + query, JSON, _json({"keys": keys}))
    for headers in TYPES:
        yield Case("POST", PATH, headers, b'{"keys": ["N14228", "v-bytes", "v-text"]}')
    for topic in TOPICS:
        own = [f"r-{kind}" for kind in REGISTERED]
        body = _json({"keys": own if topic == "registered" else [*SHORT, "h1", "large", "7", "ann|01"]})
        for headers in (JSON, (*JSON, *BYTES)):
            yield Case("POST", f"/topics/hosts-{topic}/keys:read?fields=a", headers, body)
            yield Case("POST", f"/topics/hosts-{topic}/keys:read", headers, body)
    for keys in (["b0"], ["b0", "b1", "b2", "b3"]):
        yield Case("POST", "/topics/hosts-big/keys:read", JSON, _json({"keys": keys}))


def join_cases(names: Names) -> Iterator[Case]:
    """One key of many topics, of which some are like each other."""
    for key in ("N14228", "absent", "v-object", "v-bytes", "v-text"):
        for query in ("", "&atomic=false", "&fields=dest,amount", "&partial=true&max_age_ms=1"):
            for topics in ("hosts-flights,hosts-joined", "hosts-joined,hosts-flights,hosts-hidden"):
                yield Case("GET", f"/join/{key}?topics={topics}{query}")
        yield Case("GET", f"/join/{key}?topics=hosts-flights,hosts-joined", BYTES)
    pairs = ("flights,hosts-bookings", "stale,hosts-begun", "begun,hosts-stale", "big,hosts-four")
    for topics in pairs:
        for query in ("", "&atomic=false", "&partial=true", "&atomic=false&partial=true"):
            yield Case("GET", f"/join/N14228?topics=hosts-{topics}{query}")
