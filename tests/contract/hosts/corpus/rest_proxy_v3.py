"""Records as REST Proxy v3 takes them, in streams and batches, with and without schemas."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.contract.hosts.case import Case
from tests.contract.hosts.corpus.rest_proxy_v2 import AVRO, PROTO, STRICT
from tests.contract.hosts.corpus.writes import JSON, MIB, TRACE, coding_cases, odd_bodies, replayed_cases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.hosts.case import Names

CLUSTER = "a-cluster"
SCHEMAS = {"AVRO": AVRO, "JSONSCHEMA": STRICT, "PROTOBUF": PROTO}
GOOD = {"key": {"type": "STRING", "data": "k"}, "value": {"type": "JSON", "data": 1}}
BAD = {"value": {"type": "BINARY", "data": 1}}
CONTENTS: tuple[Any, ...] = (
    *({"type": "XML", "data": 1}, {"type": 1, "data": 1}, {"data": 1}, {"type": "JSON"}),
    *({"type": "BINARY", "subject": "x"}, {"type": "STRING", "schema_id": 1}, {"type": "AVRO", "data": 1}),
    *(
        {"schema_version": 1, "data": 1},
        {"type": "STRING", "data": "x" * (MIB + 1)},
        {"type": "JSON", "x": 1},
    ),
)
PARTITIONS = (0, "0", 0.0, 1, -1, "x", True, 2**31, None, "")
TIMESTAMPS = (
    *("2021-02-05T19:14:42Z", "2021-02-05T19:14:42.5+01:00", "2021-02-05", 1, "soon", ""),
    "1969-12-31T23:59:59Z",
)
HEADERS: tuple[Any, ...] = (
    *([{"name": "h", "value": "dg=="}], [{"name": "h"}], [{"name": "h", "value": 1}], "x", [1], None),
    *([{"value": "dg=="}], [{"name": "h", "value": "!"}], [{"name": "h", "value": "dg=="}] * 101),
    [{"name": "h", "value": None, "more": 1}],
)
ENTRIES: tuple[Any, ...] = (
    *([], None, "x", [1], [{}], [{"id": ""}], [{"id": "a b"}], [{"id": 1}], [{"id": "a"}, {"id": "a"}]),
    *([{"id": "x" * 80}], [{"id": "x" * 81}], [{"id": "ü"}], [{"id": "a", "more": 1}]),
    [{"id": "a", **GOOD}, {"id": "b", **BAD}, {"id": "c", **GOOD}],
    [{"id": str(number)} for number in range(10_001)],
)
TYPES = (
    *("", "text/plain", "application/json; charset=utf-8", 'application/json; charset="ISO-8859-1"'),
    "application/json; charset=klingon",
)


def _json(document: Any) -> bytes:
    return json.dumps(document).encode()


def _streams() -> tuple[bytes, ...]:
    good, bad = _json(GOOD), _json(BAD)
    return (
        *(good + good, good + b"\n" + bad + b"\n" + good, good + b" nonsense " + good, good * 100),
        *(b"{}" * 10_001, b"[]", b"[{}]", b"1 2", b"null", b'"x"', good + b"\xff", b"[" * 1_001, b"", b" "),
        *(good + b"[" * 1_001, b"\xef\xbb\xbf" + good),
    )


def v3_cases(names: Names) -> Iterator[Case]:
    """`POST /v3/clusters/{cluster}/topics/{topic}/records`, and batches."""
    base = f"/v3/clusters/{CLUSTER}/topics/{names.out('json')}"
    target, batch = f"{base}/records", f"{base}/records:batch"
    for record in _records():
        entry = {"id": "a", **record} if isinstance(record, dict) else record
        yield Case("POST", target, JSON, _json(record))
        yield Case("POST", batch, JSON, _json({"entries": [entry]}))
    for stream in _streams():
        yield Case("POST", target, JSON, stream)
    documents: list[Any] = [{"entries": each} for each in ENTRIES]
    documents += [{}, {"records": []}, {"entries": [{"id": "a"}], "more": 1}, [], None, "x"]
    for document in documents:
        yield Case("POST", batch, JSON, _json(document))
    for path, good in ((target, GOOD), (batch, {"entries": [{"id": "a", **GOOD}]})):
        yield from _odd_requests(Case("POST", path, JSON, _json(good)), good, names)


def _odd_requests(case: Case, good: Any, names: Names) -> Iterator[Case]:
    """Bodies, media types and headers that a stream and a batch have in common."""
    target, body = case.target, case.body
    yield from coding_cases(case)
    yield from odd_bodies(target, JSON, good)
    yield from replayed_cases(case, names, target.rpartition("/")[2])
    for media_type in TYPES:
        yield Case("POST", target, (("Content-Type", media_type),), body)
    yield Case("POST", target, (), body)
    yield Case("POST", target, (*JSON, ("Prefer", "respond-async")), body)
    yield Case("POST", target, (*JSON, *TRACE), body)
    for topic in ("hosts-nowhere", "a%20b"):
        yield Case("POST", target.replace(names.out("json"), topic), JSON, body)


def _records() -> Iterator[Any]:
    yield from ({}, [], 1, None, "x", {"more": 1}, {"key": None, "value": None}, {"key": 1}, {"value": "x"})
    key = {"key": {"type": "STRING", "data": "k"}}
    for kind in ("BINARY", "JSON", "STRING"):
        for data in ("YQ==", "text!", 1, None, {"a": "ü"}, "\ud800", [1.50], True):
            yield {**key, "value": {"type": kind, "data": data}}
            yield {"key": {"type": kind, "data": data}}
    yield from ({"value": content} for content in CONTENTS)
    yield from ({"partition_id": each, "value": {"type": "JSON", "data": 1}} for each in PARTITIONS)
    yield from ({**key, "timestamp": timestamp} for timestamp in TIMESTAMPS)
    yield from ({**key, "headers": headers} for headers in HEADERS)


def v3_schema_cases(names: Names) -> Iterator[Case]:
    """Data with a schema, which each record names itself."""
    for kind, schema in SCHEMAS.items():
        topic = names.out(f"v3-{kind.lower()}")
        target = f"/v3/clusters/{CLUSTER}/topics/{topic}/records"
        subject = f"{topic}-value"
        schema_id = names.register(subject, schema, "JSON" if kind == "JSONSCHEMA" else kind)
        shown = _contents(kind, "SUBJECT", "ID")
        for name, content in zip(shown, _contents(kind, subject, schema_id), strict=True):
            label = f"{kind} {json.dumps(name)}"
            yield Case("POST", target, JSON, _json({"value": content}), label=f"POST v3 {label}")
            entries = {"entries": [{"id": "a", "value": content}]}
            yield Case("POST", f"{target}:batch", JSON, _json(entries), label=f"POST v3 batch {label}")
        yield Case("POST", target, JSON, _json({"key": {"data": {"a": 1}}}))


def _contents(kind: str, subject: str, schema_id: Any) -> list[dict[str, Any]]:
    """Values that name a schema in all ways."""
    schema, good = SCHEMAS[kind], {"data": {"a": 1}}
    strategy = {"subject_name_strategy": "TOPIC_NAME"}
    return [
        {"type": kind, "schema": schema, **good},
        {"schema_id": schema_id, **good},
        {"schema_id": str(schema_id), **good},
        *({"schema_version": version, **good} for version in (1, 99, 0, "x")),
        *({"data": data} for data in ({"a": 1}, None, {"a": "x"}, {"b": 1})),
        {"type": kind, **good},
        {"type": kind, "schema_id": schema_id, **good},
        {"schema": schema, **good},
        {"schema": schema, "schema_id": schema_id, **good},
        {"schema_id": 987_654, **good},
        {"subject": subject, **good},
        {"subject": "hosts-other-value", **good},
        {"subject": subject, **strategy, **good},
        {**strategy, **good},
        {"subject_name_strategy": "RECORD_NAME", **good},
        {"subject_name_strategy": "RECORD_NAME", "schema_id": schema_id, **good},
        {"subject_name_strategy": "NONE", **good},
        {"type": kind, "schema": "no schema", **good},
    ]
