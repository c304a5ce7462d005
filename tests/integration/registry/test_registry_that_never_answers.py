"""A Schema Registry that takes requests and says nothing, or little: what that costs, by route, host and job.

No test is about how quick something is: the registry counts what it is asked, and a busy machine asks less.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pytest
from tests.servers.own import create_topic, eventually, fill
from tests.servers.registry_double import RegistryDouble
from tests.servers.standing import plain_variables, standing
from tests.support import lanes as t
from tests.support.builders import (
    a_lane,
    a_layout,
    a_topic,
    an_event,
    body_of,
    entries_of,
    load_handler,
)
from tests.support.served import Served
from tests.support.server_process import OTHER_WAY, Process

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.registry.login import RegistrySettings
from keylane.errors import RegistryUnavailable
from keylane.formats.confluent import join
from keylane.model.records import Options
from keylane_spark.schemas import event_schemas, framed_values
from keylane_spark.schemas.framed_values import FramedReaders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

LIMIT_S = 0.4
"""What a request may wait for the registry, in all."""
PAUSE_S = 0.45 * LIMIT_S
"""Two answers of a slow registry are within the limit, and a third one is not."""
TURNS = 6
IDS = itertools.count(1_000)
STRING = {"schema": json.dumps("string")}
SFO = b"\x06SFO"
"""A value by the schema `STRING`."""
AVRO = "application/vnd.kafka.avro.v2+json"
JSON = "application/json"
IN_TIME = "did not answer in time"

Answer = tuple[int, Any]


@dataclass(frozen=True)
class Question:
    """A request that needs three answers of the registry or more; two at most for each part of it.

    `schemas`: those answers, by their paths.
    """

    application: str
    method: str
    path: str
    schemas: Mapping[str, Any]
    is_answered: Callable[[int, Any], bool]
    body: bytes | None = None
    media_type: str = JSON


class Ask(Protocol):
    def __call__(self, question: Question) -> Answer: ...


@dataclass(frozen=True)
class World:
    """The servers that topics are put into."""

    redis: str
    kafka: str

    def topic(self, *values: bytes, key: bytes = b"%d", **options: str) -> str:
        """A topic in Redis with these values, under `key` with their numbers."""
        layout = a_layout(options=Options(**options))  # type: ignore[arg-type]
        for number, value in enumerate(values):
            fill(self.redis, a_lane(layout, key.replace(b"%d", b"%d" % number), value))
        return layout.topic

    def log(self, name: str) -> str:
        """A topic in Kafka."""
        create_topic(self.kafka, name, 1)
        return name


def by_ids(*ids: int, subject: str | None = None, **more: Any) -> dict[str, Any]:
    """What the registry has of schemas; `subject`: each is a version of it."""
    found: dict[str, Any] = {f"/schemas/ids/{each}": STRING | more for each in ids}
    if subject:
        found |= {f"/schemas/ids/{each}/versions": [{"subject": subject, "version": 1}] for each in ids}
    return found


def of_keys(topic: str, schema_id: int) -> dict[str, Any]:
    path = f"/subjects/{topic}-key/versions"
    return {path: [1], f"{path}/1": STRING | {"id": schema_id, "version": 1}}


def rows_are_decoded(status: int, document: Any) -> bool:
    return status == 200 and {row.get("value") for row in document["records"]} == {"SFO"}


def is_ok(status: int, _: Any) -> bool:
    return status in {200, 201}


def many_values(world: World) -> Question:
    ids = [next(IDS) for _ in range(3)]
    topic = world.topic(*(join(each, SFO) for each in ids), value_format="registry")
    body = json.dumps({"keys": ["0", "1", "2"]}).encode()
    path = f"/topics/{topic}/keys:read"
    return Question("query", "POST", path, by_ids(*ids), rows_are_decoded, body)


BOTH = {"key_format": "registry", "value_format": "registry"}


def of_a_typed_key_and_its_value(world: World) -> tuple[str, dict[str, Any]]:
    """The path of the topic, and what the registry has for it."""
    of_key, of_value = next(IDS), next(IDS)
    cluster = Cluster(t.settings(world.redis))
    served = Served(world.redis, cluster, history_count=2, **BOTH)
    served.put(join(of_key, b"\x02k"), join(of_value, SFO))
    cluster.close()
    return f"/topics/{served.topic}", of_keys(served.topic, of_key) | by_ids(of_value)


def a_typed_key_and_its_value(world: World) -> Question:
    topic, schemas = of_a_typed_key_and_its_value(world)
    return Question("query", "GET", f"{topic}/keys/k", schemas, is_ok)


def a_typed_key_and_its_history(world: World) -> Question:
    topic, schemas = of_a_typed_key_and_its_value(world)
    return Question("query", "GET", f"{topic}/keys/k/history", schemas, rows_are_decoded)


def many_typed_keys_and_their_values(world: World) -> Question:
    topic, schemas = of_a_typed_key_and_its_value(world)
    body = json.dumps({"keys": ["k"]}).encode()
    return Question("query", "POST", f"{topic}/keys:read", schemas, rows_are_decoded, body)


def a_join_of_typed_keys(world: World) -> Question:
    ids = [next(IDS) for _ in range(2)]
    topics = [world.topic(b"1", key=join(each, b"\x02k"), key_format="registry") for each in ids]
    schemas = of_keys(topics[0], ids[0]) | of_keys(topics[1], ids[1])
    path = f"/join/k?topics={','.join(topics)}&atomic=false"
    return Question("query", "GET", path, schemas, is_ok)


class FoundTopic(Served):
    """A topic whose values are found by a field, whatever they are."""

    def _fields_of(self, _: bytes | None) -> bytes:
        return entries_of(b'{"of": "x"}', self.layout.options)


def records_that_are_found(world: World) -> Question:
    cluster = Cluster(t.settings(world.redis))
    served = FoundTopic(world.redis, cluster, index=True, fields=(("of", "text"),), value_format="registry")
    ids = [next(IDS) for _ in range(3)]
    for number, each in enumerate(ids):
        served.put(b"%d" % number, join(each, SFO))
    cluster.close()
    return Question("query", "GET", f"/topics/{served.topic}/find?of=x", by_ids(*ids), rows_are_decoded)


def a_record_whose_key_and_value_have_schemas(world: World) -> Question:
    topic, of_key, of_value = world.log(a_topic()), next(IDS), next(IDS)
    schemas = by_ids(of_key, subject=f"{topic}-key") | by_ids(of_value, subject=f"{topic}-value")
    records = [{"key": "k", "value": "SFO"}]
    body = {"key_schema_id": of_key, "value_schema_id": of_value, "records": records}
    return Question("produce", "POST", f"/topics/{topic}", schemas, is_ok, json.dumps(body).encode(), AVRO)


def a_batch_of_several_schemas(world: World) -> Question:
    topic, ids = world.log(a_topic()), [next(IDS) for _ in range(2)]
    entries = [{"id": f"{each}", "value": {"schema_id": each, "data": "SFO"}} for each in ids]
    return Question(
        "produce",
        "POST",
        f"/v3/clusters/any/topics/{topic}/records:batch",
        by_ids(*ids, subject=f"{topic}-value"),
        lambda status, document: status == 207 and len(document["successes"]) == 2,
        json.dumps({"entries": entries}).encode(),
    )


def encoded_and_checked(
    world: World,
    path: str,
    body: Callable[[int], Any],
    is_written: Callable[[Any], bool],
    media_type: str = JSON,
) -> Question:
    """A record whose encoder asks twice, and so does its check. `body`: by the schema's id."""
    topic, schema_id = world.log(f"checked-{a_topic()}"), next(IDS)
    return Question(
        "produce",
        "POST",
        path.format(topic=topic),
        by_ids(schema_id, subject=f"{topic}-value"),
        lambda _, document: is_written(document),
        json.dumps(body(schema_id)).encode(),
        media_type,
    )


def a_checked_record_of_v2(world: World) -> Question:
    def body(schema_id: int) -> Any:
        return {"value_schema_id": schema_id, "records": [{"value": "SFO"}]}

    def is_written(document: Any) -> bool:
        return "offsets" in document and document["offsets"][0].get("offset") is not None

    return encoded_and_checked(world, "/topics/{topic}", body, is_written, AVRO)


def a_checked_record_of_v3(world: World) -> Question:
    def body(schema_id: int) -> Any:
        return {"value": {"schema_id": schema_id, "data": "SFO"}}

    path = "/v3/clusters/any/topics/{topic}/records"
    return encoded_and_checked(world, path, body, lambda document: document.get("error_code") == 200)


def a_checked_batch_of_v3(world: World) -> Question:
    def body(schema_id: int) -> Any:
        return {"entries": [{"id": "a", "value": {"schema_id": schema_id, "data": "SFO"}}]}

    path = "/v3/clusters/any/topics/{topic}/records:batch"
    return encoded_and_checked(world, path, body, lambda document: len(document.get("successes", ())) == 1)


def a_value_that_is_checked(world: World) -> Question:
    """Its schema refers to another one."""
    topic, schema_id = world.log(f"checked-{a_topic()}"), next(IDS)
    references = [{"name": "other", "subject": f"{topic}-other", "version": 1}]
    schemas = by_ids(schema_id, subject=f"{topic}-value", references=references)
    other = {"type": "enum", "name": "Other", "symbols": ["A"]}
    schemas[f"/subjects/{topic}-other/versions/1"] = {"schema": json.dumps(other)}
    return Question("produce", "PUT", f"/topics/{topic}/keys/k", schemas, is_ok, join(schema_id, SFO))


QUESTIONS = [
    many_values,
    a_typed_key_and_its_value,
    a_typed_key_and_its_history,
    many_typed_keys_and_their_values,
    a_join_of_typed_keys,
    records_that_are_found,
    a_record_whose_key_and_value_have_schemas,
    a_batch_of_several_schemas,
    a_checked_record_of_v2,
    a_checked_record_of_v3,
    a_checked_batch_of_v3,
    a_value_that_is_checked,
]


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryDouble]:
    with RegistryDouble() as double:
        yield double


@pytest.fixture(scope="module")
def variables(redis_cluster: str, kafka: str, registry: RegistryDouble) -> dict[str, str]:
    own = {
        "URL": registry.url,
        "TIMEOUT_MS": f"{LIMIT_S * 1000:.0f}",
    }
    return plain_variables(redis_cluster, kafka) | {
        "KEYLANE_SCHEMAS": '{"checked-*": {"subject": "{topic}-value"}}',
        **{f"KEYLANE_SCHEMA_REGISTRY_{name}": value for name, value in own.items()},
    }


@contextlib.contextmanager
def functions(variables: dict[str, str]) -> Iterator[Ask]:
    """Warm functions, by their handlers."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        handlers = {each: load_handler(each) for each in ("query", "produce")}

        def ask(question: Question) -> Answer:
            path, _, query = question.path.partition("?")
            event = an_event(
                question.method,
                path,
                query=dict(each.split("=") for each in query.split("&")) if query else None,
                body=question.body,
                headers={"Content-Type": question.media_type},
            )
            answer = handlers[question.application].lambda_handler(event, None)
            return answer["statusCode"], json.loads(body_of(answer))

        yield ask
        handlers["query"].application.parts().store.state.close()


@contextlib.contextmanager
def server(variables: dict[str, str], log: Any) -> Iterator[Ask]:
    """The standing server."""
    with standing(log, variables) as running:

        def ask(question: Question) -> Answer:
            asked = question.method, question.path, question.body
            status, _, body = running.ask(*asked, Content_Type=question.media_type)
            return status, json.loads(body)

        yield ask


@pytest.fixture(scope="module", params=["functions", "server"])
def ask(
    request: pytest.FixtureRequest, variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ask]:
    host = {"functions": functions, "server": partial(server, log=tmp_path_factory.mktemp("serve") / "log")}
    with host[request.param](variables) as asking:
        yield asking


@pytest.fixture(params=QUESTIONS, ids=lambda each: each.__name__)
def question(
    request: pytest.FixtureRequest, redis_cluster: str, kafka: str, registry: RegistryDouble
) -> Question:
    made: Question = request.param(World(redis_cluster, kafka))
    for path, document in made.schemas.items():
        registry.has(path, document)
    return made


@contextlib.contextmanager
def never_answering(registry: RegistryDouble) -> Iterator[None]:
    over = threading.Event()
    registry.pause = over.wait
    try:
        yield
    finally:
        registry.pause = lambda: None
        over.set()


@contextlib.contextmanager
def slow(registry: RegistryDouble) -> Iterator[None]:
    registry.pause = partial(time.sleep, PAUSE_S)
    try:
        yield
    finally:
        registry.pause = lambda: None


def most_attempts(begun_s: float, limit_s: float) -> float:
    """How often one may have tried since: for the limit, and not again for as long."""
    return 1 + (time.monotonic() - begun_s) / (2 * limit_s)


def test_requests_wait_once_and_are_answered_when_the_registry_is_back(
    ask: Ask, question: Question, registry: RegistryDouble
):
    begun_s, before = time.monotonic(), len(registry.asked)
    with never_answering(registry):
        answers = [ask(question) for _ in range(TURNS)]
        asked = [path for path in registry.asked[before:] if path in question.schemas]
        assert len(asked) <= most_attempts(begun_s, LIMIT_S)
    for status, document in answers:
        assert IN_TIME in json.dumps(document)
        assert not question.is_answered(status, document)
    eventually(lambda: question.is_answered(*ask(question)))


def test_all_that_a_request_asks_a_slow_registry_shares_one_limit(
    ask: Ask, question: Question, registry: RegistryDouble
):
    with slow(registry):
        assert not question.is_answered(*ask(question))
    eventually(lambda: question.is_answered(*ask(question)))


FRAMED = join(7, SFO)
REGISTRY = {"value_format": "registry"}
TYPED = {"key_format": "registry"}


@pytest.fixture(scope="module")
def process(variables: dict[str, str]) -> Iterator[Process]:
    running = Process(variables)
    yield running
    running.close()


@pytest.mark.parametrize(
    ("options", "is_fast"),
    [
        (REGISTRY, False),
        (REGISTRY | {"envelope": "debezium"}, False),
        (TYPED, False),
        (TYPED | REGISTRY, False),
        (TYPED | {"envelope": "debezium"}, False),
        ({}, True),
        ({"value_format": "bytes"}, True),
        ({"envelope": "debezium"}, True),
    ],
    ids=lambda each: " ".join(each.values()) or "auto" if isinstance(each, dict) else "",
)
def test_the_fast_path_of_the_server_asks_no_registry(
    process: Process, redis_cluster: str, kafka: str, registry: RegistryDouble, options, is_fast
):
    """It has one budget for its life, which would be spent some day."""
    path = f"/topics/{World(redis_cluster, kafka).topic(FRAMED, **options)}/keys/0"
    process.get(path, OTHER_WAY)
    before = len(registry.asked)
    assert process.get(path).is_fast == is_fast
    assert is_fast is False or registry.asked[before:] == []


JOB_LIMIT_S = 0.3


@pytest.fixture
def job(registry: RegistryDouble, monkeypatch: pytest.MonkeyPatch) -> Iterator[FramedReaders]:
    """What a process of the job reads values by; nothing is kept from another test."""
    monkeypatch.setattr(event_schemas, "TIMEOUT_MS", JOB_LIMIT_S * 1000)
    monkeypatch.setattr(event_schemas, "UNREAD_S", 0.0)
    yield FramedReaders.of(RegistrySettings(registry.url))
    for kept in (event_schemas.registry_client, event_schemas.framed_judge, framed_values.framed_decode):
        kept.cache_clear()


def values_of(*ids: int) -> pa.Array:
    return pa.array([join(each, SFO) for each in ids], pa.binary())


@pytest.mark.parametrize(
    "readers", [("decode",), ("judge",), ("decode", "judge"), ("judge", "decode")], ids=" and ".join
)
def test_a_process_of_the_job_waits_once_for_all_schemas_and_reads_them_when_the_registry_is_back(
    job: FramedReaders, registry: RegistryDouble, readers: tuple[str, ...]
):
    ids = [next(IDS) for _ in range(TURNS)]
    for path, document in by_ids(*ids).items():
        registry.has(path, document)
    begun_s, before = time.monotonic(), len(registry.asked)
    with never_answering(registry):
        for each, reader in itertools.product(ids, readers):
            with pytest.raises(RegistryUnavailable, match=f"schema {each}: .*{IN_TIME}"):
                getattr(job, reader)(values_of(each))
        assert len(registry.asked[before:]) <= most_attempts(begun_s, JOB_LIMIT_S)

    def is_read(reader: str) -> bool:
        try:
            found = getattr(job, reader)(values_of(*ids))
            return len(getattr(found, "documents", found)) == TURNS
        except RegistryUnavailable:
            return False

    eventually(lambda: all(is_read(each) for each in readers))
