"""Reads of keys: every kind of value and of lane, in every form that a client may ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from tests.contract.hosts.case import Case
from tests.contract.hosts.topics import VALUES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.hosts.case import Headers, Names

JSON: Headers = (("Content-Type", "application/json"),)
BYTES: Headers = (("Accept", "application/octet-stream"),)
FORMS: tuple[tuple[str, Headers], ...] = (
    ("", ()),
    ("?envelope=true", ()),
    ("?fields=a,origin,m.x", ()),
    ("?fields=a,origin,m.x&envelope=true", ()),
    ("", BYTES),
    ("?envelope=true", BYTES),
    ("", (("Accept", "application/json"),)),
    ("", (("Accept", "text/plain"),)),
)
REGISTERED = ("avro", "json", "protobuf", "unknown", "short", "plain", "empty", "left", "cut", "large")
SOME = b'{"keys": ["N14228", "absent", "b0", "b1"]}'
WHERE_IT_DIFFERS = (
    *("flights", "striped", "registered", "headers", "left", "stale", "building", "begun", "incomplete"),
    *("superseded", "corrupt", "corrupt-lanes", "corrupt-layout", "big", "hidden", "empty", "ttl", "nowhere"),
)
"""Topics whose lanes or values are of different kinds."""


def _key(key: bytes) -> str:
    return quote(key, safe="")


def value_cases(names: Names) -> Iterator[Case]:
    """Values of all kinds, by all formats of a topic, in all forms."""
    for topic in ("flights", "text", "json", "bytes"):
        for key in VALUES:
            for query, headers in FORMS:
                yield Case("GET", f"/topics/hosts-{topic}/keys/{_key(key)}{query}", headers)
    for kind in REGISTERED:
        for query, headers in FORMS:
            yield Case("GET", f"/topics/hosts-registered/keys/r-{kind}{query}", headers)
        yield Case("GET", f"/topics/hosts-registered/keys/r-{kind}/history?fields=dest")
        yield Case("HEAD", f"/topics/hosts-registered/keys/r-{kind}")
    for topic, key in (
        ("left", "large"),
        ("left", "small"),
        ("huge", "bytes"),
        ("huge", "text"),
        ("big", "b1"),
    ):
        for query, headers in FORMS:
            yield Case("GET", f"/topics/hosts-{topic}/keys/{key}{query}", headers)
        yield Case("HEAD", f"/topics/hosts-{topic}/keys/{key}")
    for number in range(6):
        for query in ("", "?envelope=true", "?envelope=true&fields=a"):
            yield Case("GET", f"/topics/hosts-headers/keys/h{number}{query}")


def lane_cases(names: Names) -> Iterator[Case]:
    """Lanes of all kinds: what is answered, what is refused, and what a client may ask for."""
    queries = ("", "partial=true", "max_age_ms=0", "max_age_ms=1000", "partial=true&max_age_ms=1000000000000")
    for topic in WHERE_IT_DIFFERS:
        name = f"hosts-{topic}"
        for query in queries:
            for path in ("keys/N14228", "keys/absent", "keys", "keys/N14228/history"):
                yield Case("GET", f"/topics/{name}/{path}?{query}")
            yield Case("POST", f"/topics/{name}/keys:read?{query}", JSON, SOME)
            yield Case("GET", f"/join/N14228?topics={name},hosts-joined&{query}")
        yield Case("GET", f"/topics/{name}")
        yield Case("GET", f"/topics/{name}/keys/N14228?as_of=2023-11-14T22:13:20Z")
        yield Case("GET", f"/topics/{name}/keys/N14228?as_of=2:0")
        yield Case("GET", f"/topics/{name}/keys?as_of=2023-11-14T22:13:30Z")
        yield Case("GET", f"/topics/{name}/keys/N14228?min_offset=0&envelope=true")
        yield Case("GET", f"/topics/{name}/keys/N14228?min_offset=99")
        yield Case("GET", f"/metadata/partitions?topic={name}")
        yield Case("GET", f"/topics/{name}/keys/N14228/changes", events=2)
        yield Case("GET", f"/topics/{name}/changes", events=2)
