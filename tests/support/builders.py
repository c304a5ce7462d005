"""What tests build: lanes as bytes, API Gateway events, a function's handler with its own warm state."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.fakes import FakeState, FakeTime

from keylane import routing
from keylane.api.http.gateway import answer, request_of
from keylane.api.http.router import Application
from keylane.app import produce, query
from keylane.config.api import ApiSettings
from keylane.config.functions import ExploreSettings, ProduceSettings, QuerySettings
from keylane.formats.json_text import parse_verbatim
from keylane.metrics.meter import NO_METER, Meter
from keylane.model.records import Layout, NewRecord, Options, Position, Watermark
from keylane.model.served_topics import ALL_TOPICS, ServedTopics
from keylane.ports import Clock
from keylane.produce.guards import NO_GUARDS
from keylane.produce.put import RecordWriter
from keylane.produce.readable import ReadersRules
from keylane.query.layouts import Layouts
from keylane.query.store import ReadTerms, Store
from keylane.state import codec, redis_keys, windows
from keylane.state.field_index import indexes_of
from keylane.wiring.application import read_api_settings
from keylane.wiring.produce import ProduceParts
from keylane.wiring.query import QueryParts
from keylane.wiring.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from keylane.adapters.kafka.admin import ReaderSettings
    from keylane.adapters.kafka.options import KafkaSettings
    from keylane.api.http.request import Request
    from keylane.api.http.router import Operations
    from keylane.model.clusters import Named
    from keylane.ports import Checks, Deadline, Log, SchemaWriter
    from keylane.produce.enqueue import WriteAheadLog
    from keylane.produce.guards import Guards

FUNCTIONS = Path(__file__).parents[2] / "functions"
NOW_MS = 1_357_034_400_000
"""2013-01-01 10:00:00 UTC."""
TERMS = ReadTerms(timeout_ms=1000)
"""Any answer will do."""


def a_topic() -> str:
    """Return a topic's name that no other test has."""
    return f"t{uuid.uuid4().hex[:12]}"


def written(log: Log, topic: str, key: bytes, value: bytes | None, deadline: Deadline) -> Position:
    """Write one record and return its position; its error is raised."""
    (outcome,) = log.append_all([NewRecord(topic, key, value)], deadline)
    if isinstance(outcome, Position):
        return outcome
    raise outcome


def a_layout(topic: str | None = None, partition_count: int = 9, **fields: Any) -> Layout:
    return Layout(topic or a_topic(), partition_count, **fields)


def part_of(key: bytes, count: int) -> int:
    """Return which part of a lane's index, of `count`, has a record's key."""
    return int.from_bytes(hashlib.sha1(key, usedforsecurity=False).digest()[:4]) % count


def in_part(name: bytes, key: bytes, count: int) -> bytes:
    return redis_keys.parts_of(name, count)[part_of(key, max(1, count))]


def a_watermark(next_offset: int = 100, **fields: Any) -> Watermark:
    return Watermark(next_offset, 1, NOW_MS - 500, NOW_MS - 200)._replace(**fields)


def routed_key(layout: Layout, key: bytes) -> bytes:
    """Return the key whose lane a record is in: of a view's window its key."""
    return key if layout.options.view is None else windows.split(key)[0]


def lane_of(layout: Layout, key: bytes, partition: int | None = None) -> tuple[int, int, bytes]:
    """Return partition, stripe and hash tag of a key's lane, or of the same stripe in another partition."""
    key = routed_key(layout, key)
    part = (
        key if layout.partition_by == "key" else key.split(layout.partition_by[len("prefix:") :].encode())[0]
    )
    if partition is None:
        partition = routing.partition_for(part, layout.partition_count, layout.partitioner)
    stripe = routing.stripe_for(part, layout.stripes)
    count = layout.partition_count
    slot = routing.slot_for(partition, stripe, count, layout.stripes, centered=layout.centered)
    return partition, stripe, routing.hash_tag(slot)


def layout_entry(layout: Layout) -> dict[bytes, bytes]:
    return {redis_keys.layout_key(layout.topic): codec.encode_layout(layout)}


def watermark_entry(
    layout: Layout, key: bytes, watermark: Watermark | None = None, partition: int | None = None
) -> dict[bytes, bytes]:
    """Return the watermark of the key's lane, or of the same stripe in another partition."""
    partition, stripe, tag = lane_of(layout, key, partition)
    redis_key = redis_keys.watermark_key(tag, layout.topic, layout.generation, partition, stripe)
    return {redis_key: codec.encode_watermark(watermark or a_watermark())}


def value_entry(
    layout: Layout,
    key: bytes,
    value: bytes | None,
    *,
    offset: int = 42,
    timestamp_ms: int = NOW_MS - 1_000,
    source_partition: int | None = None,
    fields: bytes = b"",
) -> dict[bytes, bytes]:
    """Return the record of a key (None: a tombstone's marker); a stray where a source partition is given."""
    redis_key = value_key(layout, key)
    return {redis_key: codec.encode_record(value, offset, timestamp_ms, source_partition, fields=fields)}


def entries_of(value: bytes | None, options: Options) -> bytes:
    """Return what indexes of fields have of a value in JSON."""
    if value is None or not options.fields:
        return b""
    return indexes_of(options).entries(parse_verbatim(value.decode()))[0]


def value_key(layout: Layout, key: bytes) -> bytes:
    return redis_keys.value_key(lane_of(layout, key)[2], layout.topic, layout.generation, key)


def a_lane(layout: Layout, key: bytes, value: bytes | None, **record: Any) -> dict[bytes, bytes]:
    """Return layout, watermark and one record: all that a read of the key needs."""
    return layout_entry(layout) | watermark_entry(layout, key) | value_entry(layout, key, value, **record)


def an_event(
    method: str,
    path: str,
    *,
    query: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
    context: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return an API Gateway REST (v1) proxy event; the body is base64 where it is not UTF-8.

    `context`: what else the request's context has.
    """
    text, encoded = None, False
    if body is not None:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            text, encoded = base64.b64encode(body).decode(), True
    all_headers = {"Accept": "*/*", "Host": "api.example.org", "User-Agent": "curl/8.5.0"} | (headers or {})
    return {
        "resource": "/{proxy+}",
        "path": path,
        "httpMethod": method,
        "headers": all_headers,
        "multiValueHeaders": {name: [value] for name, value in all_headers.items()},
        "queryStringParameters": query,
        "multiValueQueryStringParameters": {name: [value] for name, value in query.items()}
        if query
        else None,
        "pathParameters": None,
        "stageVariables": None,
        "requestContext": {"requestId": "request-1", "httpMethod": method, "path": path, "stage": "v1"}
        | (context or {}),
        "body": text,
        "isBase64Encoded": encoded,
    }


def a_request(method: str, path: str, **event: Any) -> Request:
    return request_of(an_event(method, path, **event))


def load_handler(function: str) -> ModuleType:
    """Load the handler's module: a warm environment of its own."""
    path = FUNCTIONS / function / "handler.py"
    spec = importlib.util.spec_from_file_location(f"keylane_{function}_handler", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def query_settings(**variables: Any) -> QuerySettings:
    """Return the settings with these variables, without KEYLANE_ and in any case: `wait_max_ms=0`."""
    given = {f"KEYLANE_{name.upper()}": str(value) for name, value in variables.items()}
    return QuerySettings.from_environment(given)


def explore_settings(*named: Named[ReaderSettings]) -> ExploreSettings:
    """Return the settings of a cluster whose brokers are nowhere, and of further ones."""
    found = ExploreSettings.from_environment({"KEYLANE_KAFKA_BOOTSTRAP": "kafka:9092"})
    return replace(found, clusters=replace(found.clusters, named=named))


def kafka_settings(bootstrap: str, **fields: Any) -> KafkaSettings:
    """Return the settings of a producer, with other fields than the defaults."""
    found = ProduceSettings.from_environment({"KEYLANE_KAFKA_BOOTSTRAP": bootstrap})
    return replace(found.clusters.default, **fields)


def reader_settings(bootstrap: str) -> ReaderSettings:
    """Return the settings of what only reads."""
    return ExploreSettings.from_environment({"KEYLANE_KAFKA_BOOTSTRAP": bootstrap}).clusters.default


def an_application(
    operations: Operations, parts: Any, settings: ApiSettings | None = None, meter: Meter = NO_METER
) -> Application[Any]:
    """Return an application over these parts. Without `settings`: those of the environment."""
    read_settings = partial(read_api_settings, os.environ) if settings is None else lambda: settings
    return Application(operations, lambda: parts, read_settings, meter=meter, clock=Clock())


def produce_parts_over(writer: RecordWriter, **fields: Any) -> ProduceParts:
    """Return what writes with this writer, without anything else unless `fields` say so."""
    plain = ProduceParts(
        writer,
        NO_GUARDS,
        None,
        registry_timeout_ms=2_000,
        request_id_header=None,
        pushes_as_kprf=False,
        has_trace_headers=True,
    )
    return replace(plain, **fields)


def load_produce(
    log: Log,
    wal: WriteAheadLog | None = None,
    guards: Guards = NO_GUARDS,
    checks: Checks | None = None,
    served: ServedTopics = ALL_TOPICS,
    schemas: SchemaWriter | None = None,
    *,
    readers: ReadersRules | None = None,
    request_id_header: str | None = None,
    pushes_as_kprf: bool = False,
    has_trace_headers: bool = True,
) -> Callable[..., dict[str, Any]]:
    """The produce function over a log: `post(path, body, **event)`; a body that isn't bytes is JSON.

    `method` may be another than POST.
    """
    # A long timeout: on a busy machine ten thousand records take seconds.
    parts = produce_parts_over(
        RecordWriter(log, Clock(), 1_000, 5_000, wal, checks, served, readers),
        guards=guards,
        schemas=None if schemas is None else lambda: schemas,
        request_id_header=request_id_header,
        pushes_as_kprf=pushes_as_kprf,
        has_trace_headers=has_trace_headers,
    )
    application = an_application(produce.OPERATIONS, parts, ApiSettings(topics=served))

    def post(path: str, body: Any, method: str = "POST", **event: Any) -> dict[str, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answered: dict[str, Any] = answer(application, an_event(method, path, body=data, **event), None)
        json.dumps(answered)  # as the runtime does
        return answered

    return post


def no_schemas() -> Any:
    """Fail: nothing here needs a Schema Registry."""
    pytest.fail("nothing here has a schema")


def query_parts_over(state: FakeState, time: FakeTime | None = None, **settings: Any) -> QueryParts:
    """Return what the query function works with over a state, by this time or at NOW_MS.

    `settings`: variables, as of `query_settings`.
    """
    clock = (time or FakeTime(NOW_MS)).clock
    return QueryParts(
        query_settings(wait_default_ms=0, **settings),
        Store(state, Layouts(state, clock, 30), clock),
        no_schemas,
        lambda: pytest.fail("a function streams nothing"),
        Runtime().open_stream,
        Runtime().open_lines,
    )


def load_query(
    *entries: dict[bytes, bytes],
    now_ms: int = NOW_MS,
    sorted_sets: dict[bytes, dict[bytes, float]] | None = None,
    time: FakeTime | None = None,
) -> Callable[..., dict[str, Any]]:
    """The query function over a state with these entries: `ask(method, path, **event)`."""
    state, time = FakeState(sorted_sets=sorted_sets or {}), time or FakeTime(now_ms)
    for each in entries:
        state.entries |= each
    application = an_application(query.OPERATIONS, query_parts_over(state, time))

    def ask(method: str, path: str, **event: Any) -> dict[str, Any]:
        answered: dict[str, Any] = answer(application, an_event(method, path, **event), None)
        json.dumps(answered)  # as the runtime does
        return answered

    return ask


def body_of(answer: dict[str, Any]) -> bytes:
    """Return the bytes that the client gets."""
    body = answer["body"]
    return base64.b64decode(body) if answer["isBase64Encoded"] else body.encode()


def headers_of(answer: dict[str, Any]) -> dict[str, str]:
    return {name: ", ".join(values) for name, values in answer["multiValueHeaders"].items()}


def problem_of(answer: dict[str, Any]) -> tuple[int, str, str | None]:
    """Return status, type and parameter of a problem."""
    assert headers_of(answer)["Content-Type"] == "application/problem+json"
    document = json.loads(answer["body"])
    kind = document["type"].removeprefix("urn:keylane:problem:")
    return answer["statusCode"], kind, document.get("parameter")


def a_session(**scala: object) -> SimpleNamespace:
    """A session as far as `check_running` looks at it."""
    scala = {"isStopped": lambda: False, **scala}
    java = SimpleNamespace(sc=lambda: SimpleNamespace(**scala))
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=java))
