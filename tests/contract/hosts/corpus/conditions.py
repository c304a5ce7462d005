"""Reads of one key with conditions and preferences, of records that are odd, and by keys in base64."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from tests.contract.hosts.case import Case
from tests.contract.hosts.corpus.reads import BYTES, FORMS
from tests.contract.hosts.topics import TOPICS, as_base64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.hosts.case import Headers, Names

PATH = "/topics/hosts-flights/keys/N14228"
TAG = '"2-0"'
EARLIER, EXACT = "Tue, 14 Nov 2023 22:13:19 GMT", "Tue, 14 Nov 2023 22:13:20 GMT"
"""A second before the record's time, and this time."""
CONDITIONS: tuple[Headers, ...] = (
    (("If-None-Match", TAG),),
    (("If-None-Match", TAG), ("Prefer", "wait=0.02")),
    (("If-None-Match", f'"x", W/{TAG}'), ("If-Modified-Since", EARLIER)),
    (("If-None-Match", TAG), ("If-Match", TAG)),
    (("If-None-Match", TAG), ("If-Match", '"x"')),
    (("If-None-Match", '"2-0-bytes"'), *BYTES),
    (("If-None-Match", TAG), *BYTES),
    (("If-Match", TAG),),
    (("If-Match", f"W/{TAG}"),),
    (("If-Match", TAG), ("If-Unmodified-Since", EARLIER)),
    (("If-Modified-Since", EXACT),),
    (("If-Modified-Since", EARLIER),),
    (("If-Unmodified-Since", EXACT),),
    (("If-Unmodified-Since", EARLIER),),
    (("If-Unmodified-Since", EARLIER), ("Prefer", "wait=0.02")),
    (("if-none-match", '"x"'), ("IF-NONE-MATCH", TAG)),
    (("Accept", "text/plain"), ("Accept", "application/json")),
    (("Keylane-Min-Position", "2:0"), ("Prefer", "wait=0.02")),
    (("Keylane-Min-Position", "2:9999"), ("Prefer", "wait=0.02")),
    (("Keylane-Min-Position", "2:0"), ("Keylane-Min-Position", "2:1")),
    (("Prefer", "wait=0"), ("Prefer", "wait=0.02")),
    (("Host", "a.example"), ("Host", "b.example")),
    (("X-Forwarded-Proto", "https"), ("Range", "bytes=0-3"), ("Cookie", "a=b")),
    (("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), ("tracestate", "a=b")),
    (("Content-Type", "text/html"), ("Content-Encoding", "br")),
    (("Accept-Encoding", "gzip, br"),),
    (("Expect", "100-continue"),),
    (("X-Long", "x" * 9_000),),
    (("Authorization", "Bearer anything-at-all-of-some-length"),),
    (("Origin", "https://app.example.org"), ("Access-Control-Request-Method", "PUT")),
)
ODD_BASE64 = ("", "!", "TjE0MjI", "TjE0MjI4=", "TjE0MjI4==", "A", "AB", "AA==", "a-+/", "%4EjE0MjI4", "ü")


def condition_cases(names: Names) -> Iterator[Case]:
    """Conditions and preferences, alone and together."""
    for each in CONDITIONS:
        yield Case("GET", PATH, each)
        yield Case("GET", f"{PATH}?envelope=true", each)
        yield Case("HEAD", PATH, each)
    both = (("Prefer", "wait=0.02"), ("Keylane-Min-Position", "2:0"))
    for query in ("min_offset=0", "as_of=2:0", "max_age_ms=1", "as_of=2:0&min_offset=0"):
        yield Case("GET", f"{PATH}?{query}", both)
    for key in ("gone", "future", "timeless", "strayed", "absent"):
        target = f"/topics/hosts-flights/keys/{key}"
        for query, each in FORMS:
            yield Case("GET", f"{target}{query}", each)
        for header in (("If-None-Match", "*"), ("If-Match", "*"), ("If-Modified-Since", EXACT)):
            yield Case("GET", target, (header,))
    for position in ("4:0", "4:1", "4:50"):
        yield Case("GET", "/topics/hosts-flights/keys/strayed", (("Keylane-Min-Position", position),))
    for method in ("GET", "HEAD"):
        for query in ("dest=SFO", "", "dest=SFO&count=true"):
            yield Case(method, f"/topics/hosts-flights/find?{query}", both)
    for topic in TOPICS:
        yield Case("GET", f"/topics/{topic.name}/keys/N14228")
        yield Case("GET", f"/topics/{topic.name}/keys/k?key_format=text")


def base64_cases(names: Names) -> Iterator[Case]:
    """Keys in base64, of both alphabets, padded and not, and such as are none."""
    keys = [b"N14228", b"\x00\xff\n", b"a/b", "flüge".encode()]
    shown = [each for key in keys for each in (as_base64(key), _padded(key), _padded(key).replace("-", "+"))]
    for text in (*shown, *ODD_BASE64):
        key = quote(text, safe="%")
        yield Case("GET", f"/topics/hosts-flights/keys/{key}?key_format=base64")
        yield Case("GET", f"/join/{key}?topics=hosts-flights,hosts-joined&key_format=base64")
        yield Case("DELETE", f"/topics/{names.out('json')}/keys/{key}?key_format=base64")
        yield Case("GET", f"/views/hosts-puts/keys/{key}?key_format=base64")
        yield Case("GET", f"/topics/hosts-bookings/keys?prefix={key}&key_format=base64")


def _padded(key: bytes) -> str:
    text = as_base64(key)
    return text + "=" * (-len(text) % 4)
