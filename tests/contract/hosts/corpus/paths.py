"""Every path with every method, and paths that are odd."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.contract.hosts.case import Case
from tests.contract.hosts.corpus.base import WRITES, base
from tests.contract.hosts.topics import ODD_KEYS

from keylane.model.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.hosts.case import Names

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get", "FOO")
ACCEPTS = (
    *(
        "*/*",
        "application/json",
        "application/*",
        "text/html",
        "application/octet-stream",
        "*/*;q=0",
        "",
        ",",
    ),
    *("text/plain", "text/plain, application/json;q=0.5", "application/json;q=0", "application/json;q=x"),
    *("application/octet-stream;q=0.1, application/json", "application/problem+json", "text/event-stream"),
    *("application/vnd.kafka.v2+json", "application/vnd.kafka+json, application/json", "APPLICATION/JSON"),
    *("application/vnd.kafka.v2+json;q=0.4, application/json;q=0.5", "application/hal+json", "\udcff"),
    "text/*;q=0.3, */*;q=0.1",
)
KEYS = (
    *("", "%", "%2", "%zz", "%C3%28", "%ff", "a%00b", "a+b", "+", "%2B", "a%20b", "k" * 65_536, "k" * 65_537),
    *(
        "ü",
        "\udcff",
        "N14228/",
        "N14228//",
        "N14228%2F",
        "/N14228",
        "N14228;x=y",
        "N1422%38",
        "%252F",
        "a\\b",
    ),
    *(
        "a|b",
        "%0d%0a",
        "*",
        "~",
        "N14228.",
        "a:b",
        "a@b",
        "{key}",
        "<b>",
        "'",
        "`",
        "^",
        "[x]",
        "\x7f",
        "%7F",
    ),
    "...",
)
TOPICS = (
    *("", "%68osts-flights", "hosts-nowhere", "a%20b", "..", ".", "x" * 249, "x" * 250, "ü", "\udcff", "%ff"),
    *("~hosts-puts", "hosts-flights%2F", "__consumer_offsets", "__transaction_state", "hosts+flights", "%zz"),
    "a,b",
)
PARTITIONS = (
    *(
        "0",
        "8",
        "9",
        "00",
        "-1",
        "x",
        "",
        "1e1",
        "4294967296",
        "2147483647",
        "2147483648",
        "%30",
        "٣",
        "0%20",
    ),
)
CLUSTERS = ("lkc-0", "%6ckc-0", "", "\udcff", "%ff", "a%2Fb", "ü")
VIEWS = ("", "%68osts-puts", "hosts-nowhere", "a%20b", "x" * 240, "x" * 241, "\udcff", "hosts-flights", "..")
NOWHERE = (
    *("/", "//", "/nothing", "/topic", "/topics/", "//topics", "/topics//keys/a", "/topics/hosts-flights/"),
    *(
        "/topics/hosts-flights/keys",
        "/topics/hosts-flights/keys/",
        "/topics/hosts-flights/keys/a/b",
        "/views/",
    ),
    *(
        "/topics/hosts-flights/keys//",
        "/topics/hosts-flights/keys/a/b/history",
        "/topics/hosts-flights/key/a",
    ),
    *("/consumers", "/consumers/g/instances/i", "/v3", "/v3/", "/v3/clusters/", "/v3/clusters/x/brokers"),
    *(
        "/health/",
        "/health/x",
        "/metadata",
        "/metadata/partitions/",
        "/push/",
        "/push/x",
        "/brokers/",
        "/v3/x",
    ),
    *("/topics/a%2Fkeys%2Fb", "/topics/../health", "/./health", "/health?", "/topics;x=y", "/%68ealth", "/%"),
    *(
        "/topics/hosts-flights/keys:read/",
        "/topics/hosts-flights/keys%3Aread",
        "/topics/hosts-flights/keys:x",
    ),
    *("/topics/hosts-flights/partitions/", "/topics/hosts-flights/partitions/0/", "/favicon.ico", "/\udcff"),
    *(
        "/topics/hosts-flights/partitions/0/records/",
        "/topics/hosts-flights/partitions/0/offsets/",
        "/Topics",
    ),
    *("/clusters/", "/join", "/join/", "/openapi.json"),
)
_SAFE = re.compile(r"[\w%+.*~:@;=/'-]{0,60000}", re.ASCII)
"""What the server's HTTP parser takes: what it refuses, Lambda alone would write."""


def route_cases(names: Names) -> Iterator[Case]:
    """The good request of each route, and each path with every other method."""
    by_path: dict[str, Case] = {}
    for route in ROUTES:
        case = base(route.name, names)
        by_path.setdefault(route.path, case)
        yield case
        if "HEAD" in route.methods:
            yield Case("HEAD", case.target, case.headers)
    for path, case in by_path.items():
        taken = {method for route in ROUTES if route.path == path for method in route.methods}
        for method in METHODS:
            if method not in taken:
                yield Case(method, case.target, case.headers)
        # A body where none is expected.
        yield Case("GET", case.target, (), b"{}", events=case.events)
        yield Case("DELETE", case.target, (), b"{}")


def accept_cases(names: Names) -> Iterator[Case]:
    """What a client accepts, of every read."""
    for route in ROUTES:
        case = base(route.name, names)
        if case.method == "GET" or route.name == "read_keys":
            for accept in ACCEPTS:
                yield Case(case.method, case.target, (("Accept", accept),), case.body, events=case.events)


def key_path_cases(names: Names) -> Iterator[Case]:
    """Keys of any bytes."""
    joined = "?topics=hosts-flights,hosts-joined"
    for key in ODD_KEYS[:-1]:
        shown = "".join(f"%{byte:02X}" for byte in key)
        yield Case("GET", f"/topics/hosts-flights/keys/{shown}")
        yield Case("GET", f"/topics/hosts-flights/keys/{shown.lower()}")
        yield Case("GET", f"/join/{shown}{joined}")
        yield Case("PUT", f"/topics/{names.out('json')}/keys/{shown}", (), b"1")
        yield Case("GET", f"/views/hosts-puts/keys/{shown}")
        yield Case("GET", f"/topics/hosts-bookings/keys/{shown}/history")
    for key in KEYS:
        yield Case("GET", f"/topics/hosts-flights/keys/{key}")
        yield Case("GET", f"/join/{key}{joined}")
        yield Case("GET", f"/topics/hosts-bookings/keys/{key}/history")
        yield Case("GET", f"/topics/hosts-flights/keys/{key}/changes", events=2)
        if _SAFE.fullmatch(key):
            yield Case("DELETE", f"/topics/{names.out('json')}/keys/{key}")


def name_path_cases(names: Names) -> Iterator[Case]:
    """Topics, partitions, clusters and views that are none, in every path that names one."""
    for part, values in (
        ("topic", TOPICS),
        ("partition", PARTITIONS),
        ("cluster", CLUSTERS),
        ("view", VIEWS),
    ):
        for value in values:
            yield from _with_part(part, value, names)


def nowhere_cases(names: Names) -> Iterator[Case]:
    """Paths that lead nowhere."""
    for path in NOWHERE:
        yield Case("GET", path)
        yield Case("POST", path, (("Content-Type", "application/json"),), b"{}")


def _with_part(part: str, value: str, names: Names) -> Iterator[Case]:
    """Every route's good request, with another value for this part of its path."""
    for route in ROUTES:
        case = base(route.name, names)
        if f"{{{part}}}" not in route.path or (case.method in WRITES and not _SAFE.fullmatch(value)):
            continue
        raw, mark, query = case.target.partition("?")
        pieces = raw.split("/")
        for index, piece in enumerate(route.path.split("/")):
            if f"{{{part}}}" in piece:
                pieces[index] = piece.replace(f"{{{part}}}", value)
        yield replace(case, target="/".join(pieces) + mark + query)
