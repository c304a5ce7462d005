"""A few requests of every route: what is sent where a fault is the point, and not the requests."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.contract.hosts.case import Case
from tests.contract.hosts.corpus.base import base
from tests.contract.hosts.corpus.rest_proxy_v2 import AVRO
from tests.contract.hosts.corpus.writes import JSON, replayed_cases

from keylane.model.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.hosts.case import Headers, Names

V2_JSON: Headers = (("Content-Type", "application/vnd.kafka.json.v2+json"),)
V2_AVRO: Headers = (("Content-Type", "application/vnd.kafka.avro.v2+json"),)


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


def route_samples(names: Names) -> Iterator[Case]:
    """The good request of each route, a HEAD, a wrong method, a wrong parameter, and no route."""
    for route in ROUTES:
        case = base(route.name, names)
        yield case
        if "HEAD" in route.methods:
            yield Case("HEAD", case.target, case.headers)
        yield Case("PATCH", case.target)
        mark = "&" if "?" in case.target else "?"
        yield replace(case, target=f"{case.target}{mark}nonsense=1")
    yield Case("GET", "/nothing")
    yield Case("GET", "/topics/hosts-flights/keys/")


def v2_read_samples(names: Names) -> Iterator[Case]:
    """Reads as REST Proxy answers them."""
    accept = (("Accept", "application/vnd.kafka.v2+json"),)
    for path in (
        "/brokers",
        "/topics/hosts-flights",
        "/topics/hosts-flights/partitions",
        "/topics/hosts-nowhere",
    ):
        yield Case("GET", path, accept)
    yield Case("GET", "/topics/hosts-flights/partitions/0/offsets", accept)


def write_samples(names: Names) -> Iterator[Case]:
    """Writes of all kinds, good ones and such as fail in part; a key that is sent again."""
    one, nowhere = names.out("json"), "hosts-nowhere"
    yield Case("PUT", f"/topics/{one}/keys/k", (), b"1")
    yield Case("PUT", f"/topics/{one}/keys/k", (("Prefer", "respond-async"),), b"2")
    yield Case("DELETE", f"/topics/{one}/keys/k")
    yield Case("DELETE", f"/topics/{one}/keys/k", (("Prefer", "respond-async"),))
    yield Case("PUT", f"/topics/{nowhere}/keys/k", (), b"1")
    good, bad = {"topic": one, "key": "k", "data": "1"}, {"topic": nowhere, "key": "k", "data": "1"}
    for records in ([good], [good, good], [bad], [good, bad], []):
        for waits in (True, False):
            yield Case("POST", "/push", JSON, _json({"records": records, "wait_for_send": waits}))
    rows = [{"key": "k", "value": 1}, {"key": "k", "value": 2, "partition": 7}]
    for records in (rows[:1], rows, rows[1:]):
        body = _json({"records": records})
        for path in (
            f"/topics/{one}",
            f"/topics/{one}/partitions/0",
            f"/topics/{nowhere}",
            f"/topics/{one}/partitions/9",
        ):
            yield Case("POST", path, V2_JSON, body)
        yield Case("POST", f"/topics/{one}", (*V2_JSON, ("Prefer", "respond-async")), body)
    record = {"key": {"type": "STRING", "data": "k"}, "value": {"type": "JSON", "data": 1}}
    for topic in (one, nowhere):
        path = f"/v3/clusters/c/topics/{topic}/records"
        yield Case("POST", path, JSON, _json(record) + _json({**record, "partition_id": 7}))
        yield Case(
            "POST", f"{path}:batch", JSON, _json({"entries": [{"id": "a", **record}, {"id": "b", "key": 1}]})
        )
        yield Case("POST", f"{path}:batch", JSON, _json({"entries": [{"id": "a", **record}]}))
    yield from replayed_cases(Case("PUT", f"/topics/{one}/keys/k", (), b"1"), names, "sample")
    yield from replayed_cases(Case("POST", "/push", JSON, _json({"records": [good, bad]})), names, "samples")


def schema_samples(names: Names) -> Iterator[Case]:
    """Values with schemas, read and written."""
    for kind in ("avro", "json", "protobuf", "unknown", "short"):
        for query in ("", "?envelope=true"):
            yield Case("GET", f"/topics/hosts-registered/keys/r-{kind}{query}")
        yield Case(
            "GET", f"/topics/hosts-registered/keys/r-{kind}", (("Accept", "application/octet-stream"),)
        )
        yield Case("GET", f"/topics/hosts-registered/keys/r-{kind}/history")
    yield Case("GET", "/topics/hosts-registered/keys?limit=2")
    yield Case("GET", "/join/r-avro?topics=hosts-registered,hosts-begun")
    yield Case("POST", "/topics/hosts-registered/keys:read", JSON, b'{"keys": ["r-avro", "r-json"]}')
    yield Case("GET", "/topics/hosts-registered/keys/r-avro/changes", events=2)
    row = {"value_schema": AVRO, "records": [{"value": {"a": 1}}]}
    yield Case("POST", f"/topics/{names.out('avro')}", V2_AVRO, _json(row), floats=True)
    path = f"/v3/clusters/c/topics/{names.out('avro')}/records"
    yield Case("POST", path, JSON, _json({"value": {"type": "AVRO", "schema": AVRO, "data": {"a": 1}}}))
    yield Case("POST", path, JSON, _json({"value": {"schema_version": 1, "data": {"a": 1}}}))


def slow_samples(names: Names) -> Iterator[Case]:
    """One request for each thing that may keep a host waiting."""
    one = names.out("json")
    yield Case("GET", "/topics/hosts-flights/keys/N14228")
    yield Case("GET", "/topics/hosts-bookings/keys?limit=1")
    yield Case("POST", "/topics/hosts-flights/keys:read", JSON, b'{"keys": ["N14228", "N24211"]}')
    yield Case("GET", "/views")
    yield Case("GET", "/topics/hosts-flights")
    yield Case("GET", "/topics/hosts-flights/keys/N14228/changes", events=2)
    yield Case("GET", "/topics/hosts-flights/partitions")
    yield Case("GET", "/topics/hosts-flights/partitions/0/records")
    yield Case("GET", "/v3/clusters")
    yield Case("GET", "/health")
    yield Case("GET", "/topics/hosts-registered/keys/r-avro?envelope=true")
    yield Case("PUT", f"/topics/{one}/keys/k", (), b"1")
    yield Case("PUT", f"/topics/{one}/keys/k", (("Idempotency-Key", f"{names.tag}-slow"),), b"1")
    yield Case(
        "POST",
        "/push",
        JSON,
        _json({"records": [{"topic": one, "key": "k", "data": "1"}], "wait_for_send": True}),
    )
    yield Case("POST", "/push", JSON, _json({"records": [{"topic": one, "key": "k", "data": "1"}]}))
    yield Case("POST", f"/topics/{one}", V2_JSON, _json({"records": [{"key": "k", "value": 1}]}))
    yield Case(
        "POST", f"/v3/clusters/c/topics/{one}/records", JSON, _json({"value": {"type": "JSON", "data": 1}})
    )


def fault_samples(names: Names) -> Iterator[Case]:
    """One request for each function: how it answers where a setting is wrong."""
    yield Case("GET", "/topics/hosts-flights/keys/N14228")
    yield Case("HEAD", "/topics/hosts-flights/keys/N14228")
    yield Case("GET", "/topics/hosts-flights")
    yield Case("GET", "/topics/hosts-flights", (("Accept", "application/vnd.kafka.v2+json"),))
    yield Case("GET", "/v3/clusters")
    yield Case("GET", "/health")
    yield Case("PUT", f"/topics/{names.out('json')}/keys/k", (), b"1")
    yield Case(
        "POST", f"/topics/{names.out('json')}", V2_JSON, _json({"records": [{"key": "k", "value": 1}]})
    )
    yield Case("GET", "/nothing")
    yield Case("OPTIONS", "/push")
