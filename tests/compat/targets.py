"""Where the documented requests go: to a running Keylane, the tests' own stack, or that on LocalStack."""

from __future__ import annotations

import contextlib
import http.client
import json
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from tests.compat.cases import RECORD, RECORD_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPMessage

    from keylane_local.servers.localstack import LocalStack
    from keylane_local.stack.stack import Stack

TESTS = Path(__file__).parents[1]
SCHEMA_TOPICS = {"avro_topic": "registered", "json_topic": "something", "proto_topic": "anything"}
"""Topics of keylane-test.toml, each with schemas of one type."""
WARM_UP = {
    # The registry wants to see by its content that a schema of the default type is Avro's.
    "AVRO": '{"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]}',
    "JSON": '{"type": "object", "properties": {"a": {"type": "integer"}}}',
    "PROTOBUF": 'syntax = "proto3"; message A { int32 a = 1; }',
}
"""A JVM that has just started takes longer for its first schemas than a function waits by default."""
READABLE_WITHIN_S = 240
LIMITED = "limited-compat"
RATE_LIMITS = '{"topics": {"limited-*": {"records_per_minute": 6}}}'
SPENDING = {"records": [{"topic": LIMITED, "data": "1"}] * 12}
"""A full limit admits a larger push, and is empty for twice as long then."""


class Registrar(NamedTuple):
    """The Schema Registry of a target, for the schemas that cases name."""

    client: Any

    def register(self, subject: str, schema: str, kind: str = "AVRO") -> int:
        from confluent_kafka.schema_registry import Schema  # noqa: PLC0415 (a given URL needs none)

        return int(self.client.register_schema(subject, Schema(schema, kind)))


class Target(NamedTuple):
    """`urls`: of the service by its mode, "" for the default. `registrar`: None if its registry is unknown.

    `is_prepared`: the topic `LIMITED` exists and has a limit.
    """

    urls: dict[str, str]
    registrar: Registrar | None = None
    is_prepared: bool = False
    is_localstack: bool = False

    @property
    def url(self) -> str:
        return self.urls[""]


def ask(
    url: str, method: str, path: str, body: bytes | None = None, headers: Any = None
) -> tuple[int, str, bytes]:
    """Send one request; return status, content type and body."""
    status, headers, found = exchange(url, method, path, body, headers)
    return status, headers["Content-Type"], found


def exchange(
    url: str, method: str, path: str, body: bytes | None = None, headers: Any = None
) -> tuple[int, HTTPMessage, bytes]:
    """Send one request; return status, headers and body."""
    parts = urlsplit(url)
    make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = make(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request(method, parts.path + path, body, dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def write_record(url: str, topic: str) -> dict[str, str]:
    """Write the record that cases read, and wait until it can be read; return the names for it."""
    path = f"/topics/{topic}/keys/{RECORD_KEY}"
    status, _, body = ask(url, "PUT", path, RECORD)
    if status != http.client.CREATED:
        raise SystemExit(f"PUT {path} is {status}: {body!r}")
    partition, offset = (json.loads(body)[name] for name in ("partition", "offset"))
    wanted = {"Keylane-Min-Position": f"{partition}:{offset}", "Prefer": "wait=20"}
    end_s = time.monotonic() + READABLE_WITHIN_S
    # The first batch of a job that has just started takes long on a busy machine.
    while (found := exchange(url, "GET", path, headers=wanted))[0] != http.client.OK:
        if time.monotonic() > end_s:
            raise SystemExit(f"GET {path} is {found[0]}, {READABLE_WITHIN_S} s after the PUT")
        time.sleep(0.1)
    return {"record": RECORD_KEY, "etag": found[1]["ETag"], "long": "x" * 8_000}


def given(url: str) -> Target:
    """A Keylane that runs already, of whose servers nothing is known."""
    return Target({"": url.rstrip("/")})


@contextmanager
def started(*, on_localstack: bool, by_lambda: bool = False) -> Iterator[Target]:
    """Start the local stack with a registry; serve it by its server, by the functions, or by LocalStack."""
    from tests.servers.lambda_api import lambda_api  # noqa: PLC0415
    from tests.servers.own import create_topic, guarded, wait_writable  # noqa: PLC0415 (a given URL needs none)
    from tests.servers.schema_registry import Registry  # noqa: PLC0415

    from keylane_local.process.ports import Ports  # noqa: PLC0415
    from keylane_local.stack.stack import Stack  # noqa: PLC0415

    with contextlib.ExitStack() as running:
        data = running.enter_context(guarded(Path(running.enter_context(tempfile.TemporaryDirectory()))))
        registry = Registry(data, Ports().any())
        registry.start()
        running.callback(registry.close)
        variables = {
            "KEYLANE_SCHEMA_REGISTRY_URL": registry.url,
            "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS": "20000",
            "KEYLANE_RATE_LIMITS": RATE_LIMITS,
        }
        stack = running.enter_context(Stack(data, TESTS / "keylane-test.toml", variables=variables))
        wait_writable(stack.kafka)
        create_topic(stack.kafka_bootstrap, LIMITED, 3)
        urls = {"": stack.http_url}
        if by_lambda:
            urls = {"": running.enter_context(lambda_api(data / "logs", stack.environment()))}
        if on_localstack:
            localstack = running.enter_context(_localstack(data))
            urls = {mode: _deploy(localstack, stack, registry.url, mode) for mode in ("", "kprf")}
        registrar = Registrar(registry.client)
        for kind, schema in WARM_UP.items():
            registrar.register(f"warm-up-{kind}", schema, kind)
        target = Target(urls, registrar, is_prepared=True, is_localstack=on_localstack)
        ask(target.url, "POST", "/push", json.dumps(SPENDING).encode())
        yield target


@contextmanager
def _localstack(data: Path) -> Iterator[LocalStack]:
    from keylane_local.process.ports import Ports  # noqa: PLC0415
    from keylane_local.servers.localstack import LocalStack  # noqa: PLC0415

    localstack = LocalStack(
        data / "localstack", run=data / "run", log=data / "logs" / "localstack.log", port=Ports().any()
    )
    localstack.start()
    localstack.wait_ready(300)
    yield localstack
    localstack.stop()


def _deploy(localstack: LocalStack, stack: Stack, registry_url: str, mode: str) -> str:
    from keylane_local.deploy import deployment  # noqa: PLC0415
    from keylane_local.deploy.deployment import Sources  # noqa: PLC0415

    parameters = {
        **deployment.parameters_for(stack.kafka_bootstrap, stack.redis_nodes),
        "SchemaRegistryUrl": registry_url,
        "RateLimits": RATE_LIMITS,
        "PushCompatibility": mode,
    }
    name = f"compat-{mode}" if mode else "compat"
    return deployment.deploy(localstack, parameters, Sources(stack.data / "build"), name=name).url
