"""Requests for settings: topics that are not served, limits, pages of other origins, base paths, sizes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.contract.hosts.case import Case
from tests.contract.hosts.corpus.base import base
from tests.contract.hosts.corpus.samples import V2_AVRO, V2_JSON
from tests.contract.hosts.corpus.writes import JSON

from keylane.model.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.hosts.case import Names

ORIGIN = "https://app.example.org"
BASE_PATH = "/kafka"


def narrowed_cases(names: Names) -> Iterator[Case]:
    """KEYLANE_TOPICS: topics that are served, and such as are not."""
    for topic in ("hosts-flights", "hosts-hidden", "hosts-nowhere", "__transaction_state"):
        for path in (
            "",
            "/keys/N14228",
            "/keys",
            "/keys/N14228/history",
            "/partitions",
            "/partitions/0",
            "/changes",
        ):
            yield Case("GET", f"/topics/{topic}{path}", events=2)
        for path in ("/partitions/0/records", "/partitions/0/offsets", "/keys/N14228/changes"):
            yield Case("GET", f"/topics/{topic}{path}", events=2)
        yield Case("POST", f"/topics/{topic}/keys:read", JSON, b'{"keys": ["N14228"]}')
        yield Case("GET", f"/metadata/partitions?topic={topic}")
        yield Case("GET", f"/metadata/partitions?topic=hosts-flights&topic={topic}")
        yield Case("GET", f"/join/N14228?topics=hosts-joined,{topic}")
        yield Case("GET", f"/v3/clusters/{names.cluster}/topics/{topic}")
        yield Case("GET", f"/v3/clusters/{names.cluster}/topics/{topic}/partitions/0/offset")
        yield Case("GET", f"/topics/{topic}", (("Accept", "application/vnd.kafka.v2+json"),))
    for topic in (names.out("json"), names.out("hidden"), "hosts-nowhere"):
        yield Case("PUT", f"/topics/{topic}/keys/k", (), b"1")
        yield Case("DELETE", f"/topics/{topic}/keys/k")
        yield Case("POST", f"/topics/{topic}", V2_JSON, b'{"records": [{"key": "k", "value": 1}]}')
        yield Case(
            "POST",
            f"/topics/{topic}",
            V2_AVRO,
            b'{"value_schema": "\\"int\\"", "records": [{"key": "k", "value": 1}]}',
        )
        yield Case(
            "POST", f"/topics/{topic}/partitions/0", V2_JSON, b'{"records": [{"key": "k", "value": 1}]}'
        )
        value = {"type": "AVRO", "schema": '"int"', "data": 1}
        record = {"key": {"type": "STRING", "data": "k"}, "value": value}
        yield Case("POST", f"/v3/clusters/c/topics/{topic}/records", JSON, json.dumps(record).encode())
        records = [
            {"topic": topic, "key": "k", "data": "1"},
            {"topic": names.out("json"), "key": "k", "data": "2"},
        ]
        for given in (records, records[:1]):
            yield Case("POST", "/push", JSON, json.dumps({"records": given, "wait_for_send": True}).encode())
    for view in ("hosts-puts", "hosts-totals"):
        yield Case("GET", f"/views/{view}")
    yield Case("GET", "/views")


def limited_cases(names: Names) -> Iterator[Case]:
    """Rate limits of topics and of the caller, up to their bounds and beyond."""
    limited, free = names.out("limited"), names.out("json")
    put = Case("PUT", f"/topics/{limited}/keys/k", (), b"1")
    for _ in range(4):
        yield put
    yield replace(put, headers=(("Idempotency-Key", f"{names.tag}-limited"),))
    push = [{"topic": limited, "key": "k", "data": "1"}, {"topic": free, "key": "k", "data": "1"}]
    for records in (push, push[:1], push[1:]):
        for waits in (True, False):
            yield Case(
                "POST", "/push", JSON, json.dumps({"records": records, "wait_for_send": waits}).encode()
            )
    rows = json.dumps({"records": [{"key": "k", "value": 1}]}).encode()
    yield Case("POST", f"/topics/{limited}", V2_JSON, rows)
    yield Case("POST", f"/topics/{limited}/partitions/0", V2_JSON, rows)
    record = b'{"key": {"type": "STRING", "data": "k"}}'
    yield Case("POST", f"/v3/clusters/c/topics/{limited}/records", JSON, record)
    yield Case("POST", f"/v3/clusters/c/topics/{limited}/records:batch", JSON, b'{"entries": [{"id": "a"}]}')
    for size in (50, 20, 3):
        yield Case("PUT", f"/topics/{names.out('hidden')}/keys/k", (), b"x" * size)
    for _ in range(30):
        yield Case("PUT", f"/topics/{free}/keys/k", (), b"1")
    yield Case("DELETE", f"/topics/{free}/keys/k", (("Idempotency-Key", f"{names.tag}-over"),))
    yield Case("POST", "/push", JSON, json.dumps({"records": push[1:], "wait_for_send": True}).encode())
    yield Case("GET", "/topics/hosts-flights/keys/N14228")


def origin_cases(names: Names) -> Iterator[Case]:
    """A browser's pages: what comes before a request, and the headers of answers and refusals."""
    for route in ROUTES:
        case = base(route.name, names)
        yield replace(case, headers=(*case.headers, ("Origin", ORIGIN)))
        yield Case(
            "OPTIONS", case.target, (("Origin", ORIGIN), ("Access-Control-Request-Method", route.methods[0]))
        )
    for path in (
        "/nothing",
        "/topics/hosts-nowhere/keys/k",
        "/topics/hosts-flights/keys/%zz",
        "/push",
        "/health/live",
    ):
        for method in ("GET", "OPTIONS", "PATCH"):
            yield Case(method, path, (("Origin", "https://elsewhere.example"),))
    yield Case("POST", "/push", JSON, b"{")
    yield Case(
        "PUT",
        f"/topics/{names.out('json')}/keys/k",
        (("Origin", ORIGIN),),
        b" " * (6 * 1024 * 1024 + 1),
        note="too large",
    )


def base_path_cases(names: Names) -> Iterator[Case]:
    """Below the base path of a domain, beside it, and without it."""
    for route in ROUTES:
        case = base(route.name, names)
        for before in (BASE_PATH, ""):
            yield replace(case, target=f"{before}{case.target}")
    for path in (
        "/kafka",
        "/kafka/",
        "/kafkas/health",
        "/kafka/kafka/health",
        "/KAFKA/health",
        "/other/health",
        "/kafka//health",
    ):
        yield Case("GET", path)
    for before in (BASE_PATH, ""):
        for method in ("PATCH", "OPTIONS", "HEAD"):
            yield Case(method, f"{before}/topics/hosts-flights/keys/N14228")
        yield Case("GET", f"{before}/topics/hosts-flights/keys/")
        yield Case("GET", f"{before}/v3/clusters", (("Host", "abc123.execute-api.eu-west-1.amazonaws.com"),))
        yield Case("GET", f"{before}/health/live")


def size_cases(names: Names) -> Iterator[Case]:
    """KEYLANE_MAX_VALUE_BYTES of 1000."""
    one = names.out("json")
    for size in (999, 1_000, 1_001, 200_000):
        value = "x" * size
        yield Case("PUT", f"/topics/{one}/keys/k", (), value.encode())
        records = [{"topic": one, "key": "k", "data": value}, {"topic": one, "key": "k", "data": "1"}]
        for given in (records, records[:1]):
            yield Case("POST", "/push", JSON, json.dumps({"records": given, "wait_for_send": True}).encode())
        rows = {"records": [{"key": "k", "value": value[2:]}, {"key": "k", "value": 1}]}
        yield Case("POST", f"/topics/{one}", V2_JSON, json.dumps(rows).encode())
        record = {"key": {"type": "STRING", "data": "k"}, "value": {"type": "STRING", "data": value}}
        yield Case("POST", f"/v3/clusters/c/topics/{one}/records", JSON, json.dumps(record).encode())


def checked_cases(names: Names) -> Iterator[Case]:
    """KEYLANE_SCHEMAS: values that their topic's schema accepts and rejects."""
    for kind in ("json", "three", "avro", "jsonschema", "limited"):
        path = f"/topics/{names.out(kind)}/keys/k"
        for value in (
            b'{"n": 1}',
            b'{"n": "x"}',
            b"{",
            b"",
            b"[]",
            b'{"m": {"n": []}}',
            b"\x00\x00\x00\x00\x01",
            b"\xff",
        ):
            yield Case("PUT", path, (), value)
        yield Case("DELETE", path)
        records = [
            {"topic": names.out(kind), "key": "k", "data": data} for data in ('{"n": 1}', '{"n": "x"}')
        ]
        yield Case("POST", "/push", JSON, json.dumps({"records": records, "wait_for_send": True}).encode())
        rows = {"records": [{"key": "k", "value": {"n": 1}}, {"key": "k", "value": {"n": "x"}}]}
        yield Case("POST", f"/topics/{names.out(kind)}", V2_JSON, json.dumps(rows).encode())
        record = {"key": {"type": "STRING", "data": "k"}, "value": {"type": "JSON", "data": {"n": "x"}}}
        yield Case(
            "POST", f"/v3/clusters/c/topics/{names.out(kind)}/records", JSON, json.dumps(record).encode()
        )


def refused_cases(names: Names) -> Iterator[Case]:
    """Records that Kafka refuses: too large for their topic, and without a key where that needs one."""
    for kind in ("small", "compacted"):
        for key, size in (("k", 10), ("k", 2_000), (None, 10)):
            yield from _writes_to(names.out(kind), names.out("json"), key, "x" * size)
    yield Case("PUT", f"/topics/{names.out('json')}/keys/k", (), b"1")


def overlapping_cases(names: Names) -> Iterator[Case]:
    """A request that is sent again while it still runs."""
    headers = (("Idempotency-Key", f"{names.tag}-overlapping"),)
    yield Case("PUT", f"/topics/{names.out('json')}/keys/k", headers, b"1", overlaps=True)
    body = json.dumps({"records": [{"topic": names.out("json"), "key": "k", "data": "1"}]}).encode()
    yield Case("POST", "/push", (*JSON, ("Idempotency-Key", f"{names.tag}-push")), body, overlaps=True)


def _writes_to(topic: str, other: str, key: str | None, value: str) -> Iterator[Case]:
    """One record by each way to write, alone and beside one of another topic."""
    if key is not None:
        yield Case("PUT", f"/topics/{topic}/keys/{key}", (), value.encode())
    record = {"topic": topic, "key": key, "data": value}
    for records in ([record], [record, {"topic": other, "key": "k", "data": "1"}]):
        yield Case("POST", "/push", JSON, json.dumps({"records": records, "wait_for_send": True}).encode())
    rows = [{"key": key, "value": value}, {"key": "k", "value": 1}]
    for given in (rows[:1], rows):
        yield Case("POST", f"/topics/{topic}", V2_JSON, json.dumps({"records": given}).encode())
    content = {"value": {"type": "STRING", "data": value}}
    content |= {} if key is None else {"key": {"type": "STRING", "data": key}}
    path = f"/v3/clusters/c/topics/{topic}/records"
    yield Case("POST", path, JSON, json.dumps(content).encode())
    yield Case("POST", f"{path}:batch", JSON, json.dumps({"entries": [{"id": "a", **content}]}).encode())
