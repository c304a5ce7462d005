"""Scenarios of clients that take what they can, with the default bounds: large and slow bodies, streams."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.fire.figures import none_failed, p99_below
from tests.fire.stage import ACCESS, CALLER, TOPIC
from tests.fire.trial import AFTER, DURING, READ_MS, open_trial
from tests.integration.server.test_standing_server_strangers import (
    DATA,
    DECLARED_BYTES,
    HEADERS,
    POST_OVER_HTTP,
    PREFACE,
    SETTINGS,
    frame,
    literal,
)
from tests.servers.own import create_topic
from tests.servers.schema_registry import Registry

from keylane_local.process.ports import HOST, Ports

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fire.figures import Found
    from tests.fire.stage import FireStage
    from tests.fire.trial import Trial

SLOW_CONNECTIONS, DECLARING = 256, 43
STREAM_CONNECTIONS, STREAMS = 2, 200
DRIP_EVERY_S, DRIPS = 8.0, 4
_TYPE = "application/vnd.kafka.{}.v2+json"
DEPTH = 22
SCHEMA_BOMB = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        **{f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(DEPTH)},
        f"d{DEPTH}": {"type": "string"},
    },
    "$ref": "#/$defs/d0",
}
PATTERNS = {"patternProperties": {rf"\p{{L}}{{1,60}}z{n}": {} for n in range(300)}}
"""A write of 8 KB."""
PROTOBUF = 'syntax="proto3"; import "google/protobuf/struct.proto"; message M { google.protobuf.Struct s=1; }'
NULLS = '{"type":"array","items":"null"}'


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


def bombs() -> dict[str, tuple[int, str, Callable[[], bytes]]]:
    """Return by name how many at a time, their format, and a function for their body."""
    return {
        "24 schema bombs": (24, "jsonschema", lambda: _json(
            {"value_schema": json.dumps(SCHEMA_BOMB), "records": [{"value": {"x": 1}}]})),
        "8 times 300 large patterns": (8, "jsonschema", lambda: _json(
            {"value_schema": json.dumps(PATTERNS), "records": [{"value": {"q": 1}}]})),
        "2 Protobuf Structs of 500,000": (2, "protobuf", lambda: _json(
            {"value_schema": PROTOBUF, "records": [{"value": {"s": {"a": [1] * 500_000}}}]})),
        "4 Avro arrays of 1,000,000": (4, "avro", lambda: _json(
            {"value_schema": NULLS, "records": [{"value": [None] * 1_000_000}]})),
        "4 JSON objects of 400,000 keys": (4, "json", lambda: _json(
            {"records": [{"value": {str(n): 1 for n in range(400_000)}}]})),
        "8 bodies of 10,000 records": (8, "json", lambda: _json(
            {"records": [{"key": f"b{n}", "value": n} for n in range(10_000)]})),
    }  # fmt: skip


def large_bodies(stage: FireStage) -> Found:
    """Bodies that are dear to parse, and schemas that are dear to check, while another client reads."""
    registry = Registry(stage.folder, Ports().any())
    registry.start()
    try:
        with open_trial(stage, variables={"KEYLANE_SCHEMA_REGISTRY_URL": registry.url}) as trial:
            for number, (name, (count, kind, body)) in enumerate(bombs().items()):
                topic, sent = f"bombs-{number}", body()
                create_topic(stage.kafka.bootstrap, topic, 1)
                trial.phase(name, 1)
                trial.found.facts[name] = _send_at_once(trial, topic, sent, _TYPE.format(kind), count)
            return trial.rest_and_finish(3)
    finally:
        registry.kill()
        registry.close()


LARGE_BODIES = (
    *(none_failed("read", name) for name in bombs()),
    *(p99_below(READ_MS, "read", name) for name in bombs()),
    none_failed("read", AFTER),
    p99_below(READ_MS, "read", AFTER),
)


def _send_at_once(trial: Trial, topic: str, body: bytes, content_type: str, count: int) -> dict[str, int]:
    """Send bodies at the same time; return how many got which status."""

    def send(_: int) -> str:
        try:
            return str(trial.server.ask("POST", f"/topics/{topic}", body, Content_Type=content_type)[0])
        except OSError as error:
            return type(error).__name__

    with ThreadPoolExecutor(count) as pool:
        return dict(Counter(pool.map(send, range(count))))


def slow_bodies(stage: FireStage) -> Found:
    """256 strangers send a byte of a body every 8 s; then 43 callers declare 6 MiB each, and send a byte."""
    with _trial_with_tokens(stage) as trial, contextlib.ExitStack() as connections:
        strangers = [_opened(trial, connections, _head(100, "")) for _ in range(SLOW_CONNECTIONS)]
        trial.phase(DURING)
        trial.found.facts["of 256 strangers, cut off"] = _drip(strangers, b" ")
        token = f"Authorization: {CALLER['Authorization']}\r\n"
        callers = [_opened(trial, connections, _head(DECLARED_BYTES, token)) for _ in range(DECLARING)]
        trial.phase("6 MiB declared")
        trial.found.facts["of 43 callers, cut off"] = _drip(callers, b" ")
        connections.close()
        return trial.rest_and_finish(3)


def slow_streams(stage: FireStage) -> Found:
    """Two HTTP/2 connections of strangers with 200 streams each, and a byte for each of them every 8 s."""
    path = literal(b":path", f"/topics/{TOPIC}".encode())
    fields = POST_OVER_HTTP + path + literal(b":authority", b"x")
    begun = b"".join(frame(HEADERS, 4, 2 * number + 1, fields) for number in range(STREAMS))
    dripped = b"".join(frame(DATA, 0, 2 * number + 1, b" ") for number in range(STREAMS))
    first = PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, 1, 0) + begun
    with _trial_with_tokens(stage) as trial, contextlib.ExitStack() as connections:
        opened = [_opened(trial, connections, first) for _ in range(STREAM_CONNECTIONS)]
        trial.phase(DURING)
        trial.found.facts["of 2 connections, cut off"] = _drip(opened, dripped)
        connections.close()
        return trial.rest_and_finish(3)


SLOW_STREAMS = tuple(
    each
    for phase in (DURING, AFTER)
    for each in (none_failed("read", phase), none_failed("write", phase), p99_below(READ_MS, "read", phase))
)
SLOW_BODIES = (
    *SLOW_STREAMS,
    none_failed("read", "6 MiB declared"),
    none_failed("write", "6 MiB declared"),
    p99_below(READ_MS, "read", "6 MiB declared"),
)


def _trial_with_tokens(stage: FireStage) -> contextlib.AbstractContextManager[Trial]:
    variables = {"KEYLANE_ACCESS": ACCESS}
    return open_trial(stage, "--authorization", "tokens", variables=variables, headers=CALLER)


def _head(length: int, extra: str) -> bytes:
    return (
        f"POST /topics/{TOPIC} HTTP/1.1\r\nHost: x\r\n{extra}Content-Type: {_TYPE.format('json')}\r\n"
        f"Content-Length: {length}\r\n\r\n{{"
    ).encode()


def _opened(trial: Trial, connections: contextlib.ExitStack, sent: bytes) -> socket.socket:
    connection = connections.enter_context(socket.create_connection((HOST, trial.server.port), timeout=60))
    connection.sendall(sent)
    return connection


def _drip(connections: list[socket.socket], data: bytes) -> int:
    """Send something on each connection again and again; return how many were closed."""
    closed = set()
    for _ in range(DRIPS):
        time.sleep(DRIP_EVERY_S)
        for number, connection in enumerate(connections):
            try:
                connection.send(data)
            except OSError:
                closed.add(number)
    return len(closed)
