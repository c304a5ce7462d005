"""Records that their topic's readers could not read, by each way to write; writers that know no layout."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.support.builders import a_layout, layout_entry, load_produce
from tests.support.fakes import FakeLog, FakeSchemaWriter, FakeState, FakeTime

from keylane.errors import BadRequest, KeylaneError
from keylane.formats import avro_reader, confluent
from keylane.model.records import NewRecord, Options
from keylane.model.served_topics import ServedTopics
from keylane.ports import FramedField, FramingFault, WaitBudget
from keylane.produce.readable import ReadersRules
from keylane.produce.topic_formats import AGAIN_S, TopicFormats
from keylane.query.layouts import Layouts

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.ports import Deadline

    Post = Callable[..., dict[str, Any]]

FLIGHT = '{"type": "record", "name": "Flight", "fields": [{"name": "delay", "type": "int"}]}'
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
JSON_V2 = {"Content-Type": "application/vnd.kafka.json.v2+json"}
JSON = {"Content-Type": "application/json"}
BINARY_V2 = {"Content-Type": "application/vnd.kafka.binary.v2+json"}
OF_ID_1 = confluent.join(1, b"\x0e")
EVENT = '{"op": "c", "after": {"id": 7}}'
SCHEMA = '{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}],"optional":false}'
TOPICS = {
    "cars": Options(value_format="registry"),
    "keyed": Options(key_format="registry"),
    "json": Options(value_format="json"),
    "text": Options(value_format="text"),
    "rows": Options(envelope="debezium", key_fields=(("id", "integer"),)),
    "typed": Options(key_schema=SCHEMA),
    "chosen": Options(value_format="json", transform="{}"),
    "free": Options(),
}


class FakeFramingChecks:
    """The port Checks as far as framed data is concerned: schemas by subject, faults otherwise."""

    def __init__(self, **ids: int) -> None:
        self.ids = ids
        self.asked: list[FramedField] = []

    def framing_faults(self, framed: list[FramedField], _: Deadline) -> list[FramingFault | None]:
        self.asked += framed
        return [self._fault(each) for each in framed]

    def _fault(self, framed: FramedField) -> FramingFault | None:
        schema_id = confluent.split(framed.data).schema_id
        if self.ids.get(framed.subject.replace("-", "_")) == schema_id:
            return None
        return FramingFault("", f"schema {schema_id} is not a version of subject {framed.subject!r}")


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog()
    for topic in TOPICS:
        log.create(topic, 1)
    return log


@pytest.fixture
def state() -> FakeState:
    state = FakeState()
    for topic, options in TOPICS.items():
        state.entries |= layout_entry(a_layout(topic, options=options))
    return state


def rules_over(state: FakeState, time: FakeTime | None = None, **more: Any) -> ReadersRules:
    clock = (time or FakeTime()).clock
    return ReadersRules(TopicFormats(Layouts(state, clock, 30), clock), **more)


def faults_of(rules: ReadersRules, *records: NewRecord) -> list[KeylaneError | None]:
    expected = rules.expectations({record.topic for record in records})
    return rules.faults(records, expected, WaitBudget(1_000, FakeTime().clock))


@pytest.fixture
def post(log: FakeLog, state: FakeState) -> Post:
    checks = FakeFramingChecks(cars_value=1, keyed_key=1)
    schemas = FakeSchemaWriter()
    schemas.add("cars-value", FLIGHT)
    return load_produce(log, readers=rules_over(state, checks=lambda: checks), schemas=schemas)


def refused(answer: dict[str, Any]) -> tuple[int, str]:
    problem = json.loads(answer["body"])
    return answer["statusCode"], problem["type"].removeprefix("urn:keylane:problem:")


def test_json_under_a_topic_of_a_registry_is_refused_and_the_answer_says_what_to_do(post: Post, log: FakeLog):
    answer = post("/topics/cars/keys/k", b'{"delay": 7}', method="PUT")
    problem = json.loads(answer["body"])
    assert refused(answer) == (422, "value-invalid")
    assert (problem["code"], problem["path"]) == ("INVALID_RECORD", "")
    assert problem["detail"] == (
        "readers of topic 'cars' could not read the value: it does not begin with the byte 0 and a schema "
        "id; give JSON and a schema for it (schema=latest), or write it as it is with raw=true"
    )
    assert not log.sent


@pytest.mark.parametrize("schema", ["latest", "1"])
def test_json_with_a_schema_is_written_by_it(post: Post, log: FakeLog, schema: str):
    answer = post("/topics/cars/keys/k", b'{"delay": 7}', method="PUT", query={"schema": schema})
    assert answer["statusCode"] == 201
    assert [record.value for record in log.sent] == [OF_ID_1]


@pytest.mark.parametrize(
    ("schema", "body", "found"),
    [
        ("latest", b'{"delay": "late"}', (422, "value-invalid")),
        ("latest", b'{"delay": ', (400, "bad-request")),
        ("9", b'{"delay": 7}', (400, "bad-request")),
        ("newest", b'{"delay": 7}', (400, "bad-request")),
    ],
)
def test_json_that_is_not_of_the_schema_is_refused(
    post: Post, log: FakeLog, schema: str, body: bytes, found: tuple[int, str]
):
    assert refused(post("/topics/cars/keys/k", body, method="PUT", query={"schema": schema})) == found
    assert not log.sent


def test_json_as_reads_show_it_is_written_back(log: FakeLog, state: FakeState):
    """Unions have no names of types there, bytes are base64, and a decimal is its digits."""
    kinds = {"delay": ["null", "int"], "gate": "bytes", "fare": DECIMAL, "at": TIME}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    schema = json.dumps({"type": "record", "name": "Shown", "fields": fields})
    schemas = FakeSchemaWriter()
    schemas.add("cars-value", schema)
    post = load_produce(log, readers=rules_over(state), schemas=schemas)
    shown = '{"delay":7,"gate":"AAE=","fare":"1.50","at":"2026-11-28T10:00:00.000Z"}'
    answer = post("/topics/cars/keys/k", shown.encode(), method="PUT", query={"schema": "latest"})
    assert answer["statusCode"] == 201, answer["body"]
    _, payload = confluent.split(log.sent[0].value or b"")
    assert json.loads(avro_reader.decoder(schema)(payload)) == json.loads(shown)


def test_a_schema_needs_a_registry(log: FakeLog):
    answer = load_produce(log)("/topics/cars/keys/k", b"{}", method="PUT", query={"schema": "latest"})
    assert refused(answer) == (400, "bad-request")
    assert "the service has none" in answer["body"]


def test_framed_values_pass_by_a_schema_of_their_subject_alone(post: Post, log: FakeLog):
    assert post("/topics/cars/keys/k", OF_ID_1, method="PUT")["statusCode"] == 201
    answer = post("/topics/cars/keys/k", confluent.join(2, b"\x0e"), method="PUT")
    assert refused(answer) == (422, "value-invalid")
    assert "schema 2 is not a version of subject 'cars-value'" in answer["body"]
    assert post("/topics/cars/keys/k", b"", method="DELETE")["statusCode"] == 200
    assert [record.value for record in log.sent] == [OF_ID_1, None]


def test_raw_records_are_written_as_they_are(post: Post, log: FakeLog):
    raw = {"raw": "true"}
    assert post("/topics/cars/keys/k", b"{}", method="PUT", query=raw)["statusCode"] == 201
    assert post("/topics/rows/keys/7", b"x", method="PUT", query=raw)["statusCode"] == 201
    body = {"records": [{"topic": "cars", "data": "x"}]}
    assert post("/push", body, query=raw)["statusCode"] == 200
    binary = {"records": [{"value": base64.b64encode(b"x").decode()}]}
    assert post("/topics/cars", binary, headers=BINARY_V2, query=raw)["statusCode"] == 200
    v3 = {"value": {"type": "STRING", "data": "x"}}
    assert post("/v3/clusters/c/topics/cars/records", v3, headers=JSON, query=raw)["statusCode"] == 200
    assert [record.value for record in log.sent] == [b"{}", b"x", b"x", b"x", b"x"]
    assert log.sent[1].key == b"7"


def test_each_way_of_many_records_refuses_those_that_cannot_be_read_and_writes_the_others(
    post: Post, log: FakeLog
):
    pushed = post("/push", {"records": [{"topic": "cars", "data": "x"}, {"topic": "free", "data": "x"}]})
    first, second = json.loads(pushed["body"])["errors"]
    assert (first["code"], first["field"], first["retriable"]) == ("INVALID_RECORD", "data", False)
    assert not second["error"]
    as_json = post("/topics/cars", {"records": [{"value": {"delay": 7}}]}, headers=JSON_V2)
    [offset] = json.loads(as_json["body"])["offsets"]
    assert (as_json["statusCode"], offset["error_code"], offset["field"]) == (200, 50002, "value")
    binary = {"records": [{"value": base64.b64encode(each).decode()} for each in (b"x", OF_ID_1)]}
    answer = post("/topics/cars", binary, headers=BINARY_V2)
    assert [each["error_code"] for each in json.loads(answer["body"])["offsets"]] == [50002, None]
    body = {"value": {"type": "JSON", "data": {"delay": 7}}}
    v3 = post("/v3/clusters/c/topics/cars/records", body, headers=JSON)
    assert json.loads(v3["body"])["error_code"] == 50002
    assert "schema=latest" in json.loads(v3["body"])["message"]
    assert [(record.topic, record.value) for record in log.sent] == [("free", b"x"), ("cars", OF_ID_1)]


def test_a_key_is_written_as_readers_ask_for_it(post: Post, log: FakeLog):
    for topic, key in [("rows", "7"), ("rows", '{"id": 7}'), ("typed", "7")]:
        path = f"/topics/{topic}/keys/{base64.b64encode(key.encode()).decode()}"
        assert refused(post(path, EVENT.encode(), method="PUT", query={"key_format": "base64"})) == (
            422,
            "key-unreadable",
        )
        assert post(f"/topics/{topic}/keys/{key}", EVENT.encode(), method="PUT")["statusCode"] == 201
    assert post("/topics/rows/keys/7", b"", method="DELETE")["statusCode"] == 200
    whole = f'{{"schema":{SCHEMA},"payload":{{"id":7}}}}'.encode()
    assert post(f"/topics/typed/keys/{quote(whole.decode())}", b"", method="DELETE")["statusCode"] == 200
    assert [record.key for record in log.sent] == [b'{"id":7}', b'{"id":7}', whole, b'{"id":7}', whole]
    assert refused(post("/topics/rows/keys/x", EVENT.encode(), method="PUT")) == (400, "bad-request")


@pytest.mark.parametrize(
    ("topic", "key", "value", "reason"),
    [
        ("rows", b"7", EVENT, "readers ask for it as"),
        ("rows", b'{"id": 7}', EVENT, 'readers ask for it as {"id":7}'),
        ("rows", b'{"other":7}', EVENT, "the key has other fields"),
        ("rows", b"\xff", EVENT, "the key is not UTF-8"),
        ("rows", b'{"id":7}', "{}", "it is not a change event"),
        ("keyed", b"7", "x", "it does not begin with the byte 0 and a schema id"),
        ("keyed", confluent.join(2, b"\x0e"), "x", "schema 2 is not a version of subject 'keyed-key'"),
        ("json", b"k", "{", "it is not valid JSON"),
        ("text", b"k", "\udcff", "it is not UTF-8"),
    ],
)
def test_what_is_wrong_with_a_record_is_said(
    state: FakeState, topic: str, key: bytes, value: str, reason: str
):
    rules = rules_over(state, checks=lambda: FakeFramingChecks(keyed_key=1))
    record = NewRecord(topic, key, value.encode(errors="surrogateescape"))
    [fault] = faults_of(rules, record)
    assert reason in str(fault)
    assert str(fault).endswith("write it as it is with raw=true")


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [
        ("rows", b'{"id":7}', EVENT.encode()),
        ("rows", b'{"id":7}', b'{"op": "d", "before": {"id": 7}}'),
        ("rows", None, None),
        ("keyed", confluent.join(1, b"\x0e"), b"x"),
        ("json", b"k", b"{}"),
        ("text", b"k", b"x"),
        ("chosen", b"k", b"\xff"),
        ("free", b"\xff", b"\xff"),
        ("nowhere", b"\xff", b"\xff"),
    ],
)
def test_what_readers_can_read_passes(state: FakeState, topic: str, key: bytes | None, value: bytes | None):
    rules = rules_over(state, checks=lambda: FakeFramingChecks(keyed_key=1))
    assert faults_of(rules, NewRecord(topic, key, value)) == [None]


def test_a_rule_of_keylane_schemas_decides_on_values_of_a_registry(state: FakeState):
    checks = FakeFramingChecks()
    rules = rules_over(state, checks=lambda: checks, is_ruled=lambda topic: topic == "cars")
    record = NewRecord("cars", b"k", confluent.join(2, b""))
    assert faults_of(rules, record) == [None]
    assert not checks.asked


def test_without_a_registry_a_value_needs_to_name_a_schema(state: FakeState):
    rules = rules_over(state)
    framed, bare = (NewRecord("cars", b"k", each) for each in (confluent.join(2, b""), b"x"))
    assert [fault is None for fault in faults_of(rules, framed, bare)] == [True, False]


def test_writes_do_not_depend_on_the_state(state: FakeState):
    time = FakeTime()
    formats = rules_over(state, time).formats
    assert formats.options_of("cars").value_format == "registry"
    state.away = True
    time.move(31)
    assert formats.options_of("cars").value_format == "registry", "what was known before counts"
    assert formats.options_of("json") == Options()
    asked = len(state.reads)
    assert formats.options_of("json") == Options()
    assert len(state.reads) == asked, "Redis is not asked again at once"
    state.away = False
    time.move(AGAIN_S)
    assert formats.options_of("json").value_format == "json"


def test_a_topic_without_a_layout_is_looked_for_once_in_a_while():
    state, time = FakeState(), FakeTime()
    formats = rules_over(state, time).formats
    for _ in range(3):
        assert formats.options_of("flights") == Options()
    asked = len(state.reads)
    time.move(AGAIN_S)
    state.entries |= layout_entry(a_layout("flights", options=TOPICS["json"]))
    assert formats.options_of("flights").value_format == "json"
    assert len(state.reads) > asked


def test_a_key_that_cannot_be_one_of_the_topic_says_so(state: FakeState):
    with pytest.raises(BadRequest, match="keys of this topic are"):
        rules_over(state).key_of("rows", b"x")


def test_a_part_of_a_value_is_not_written(post: Post, log: FakeLog):
    headers = {"Content-Range": "bytes 0-1/4"}
    answer = post("/topics/free/keys/k", b"ab", method="PUT", headers=headers)
    assert refused(answer) == (400, "bad-request")
    assert json.loads(answer["body"])["parameter"] == "Content-Range"
    assert not log.sent


def test_of_a_topic_that_may_not_be_written_nothing_is_asked(log: FakeLog, state: FakeState):
    served = ServedTopics(read=("*",), write=("cars",))
    post = load_produce(log, readers=rules_over(state), served=served)
    assert post("/topics/rows/keys/7", b"x", method="PUT")["statusCode"] == 403
    assert not state.reads
