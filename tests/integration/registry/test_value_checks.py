"""Values checked by the subjects of a real Schema Registry, and of one that fails."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference
from tests.servers import schema_registry as sr
from tests.servers.registry_double import RegistryDouble, client_of
from tests.support.builders import a_topic
from tests.support.fakes import FakeTime

from keylane.adapters.registry.client import FOREIGN_ID_MS
from keylane.adapters.registry.value_checks import LATEST_MS, ValueChecks
from keylane.errors import RegistryUnavailable, ValueInvalid
from keylane.formats import confluent
from keylane.model.records import NewRecord
from keylane.model.schema_rules import SchemaRule
from keylane.ports import Deadline, FramedField

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.schema_registry import Registry

    from keylane.errors import KeylaneError

FLIGHT = '{"type": "record", "name": "Flight", "fields": [{"name": "delay", "type": "int"}]}'
HOUR_MS = 3_600_000
JSON_FLIGHT = '{"title": "Flight", "type": "object", "properties": {"delay": {"type": "integer"}}}'


def checks(url: str, time: FakeTime, *, is_plain: bool = False) -> ValueChecks:
    rules = (SchemaRule("*", None, "{topic}-value", is_plain),)
    return ValueChecks(rules, client_of(url), time.clock)


def fault(found: ValueChecks, topic: str, value: bytes | None) -> KeylaneError | None:
    [fault] = found.faults([NewRecord(topic, b"k", value)], Deadline.after_ms(5_000, found._clock))
    return fault


def invalid(found: ValueChecks, topic: str, value: bytes) -> tuple[int | None, str, str]:
    error = fault(found, topic, value)
    assert isinstance(error, ValueInvalid)
    return error.schema_id, error.path, str(error)


def unread(found: ValueChecks, *framed: FramedField) -> list[str]:
    """The reasons why these can't be read, "" for those that can."""
    faults = found.framing_faults(framed, Deadline.after_ms(5_000, found._clock))
    return ["" if each is None else each.reason for each in faults]


def a_schema(*references: SchemaReference, **words: Any) -> Schema:
    draft = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
    return Schema(json.dumps(draft | words), "JSON", list(references))


@pytest.fixture
def served() -> Iterator[RegistryDouble]:
    with RegistryDouble() as served:
        yield served


def test_values_of_confluents_serializers_pass_and_those_of_other_subjects_do_not(registry: Registry):
    found, topic, other = checks(registry.url, FakeTime()), a_topic(), a_topic()
    value = sr.avro(registry.client, topic, FLIGHT, {"delay": 7})
    schema_id = confluent.split(value).schema_id
    strange = sr.avro(registry.client, other, FLIGHT.replace("Flight", other), {"delay": 7})
    strange_id = confluent.split(strange).schema_id
    assert [fault(found, topic, each) for each in (value, None)] == [None, None]
    told = invalid(found, topic, strange)
    assert told[:2] == (strange_id, "")
    assert f"schema {strange_id} is not a version of subject '{topic}-value'" in told[2]
    assert "can't be decoded" in invalid(found, topic, value + b"\x00")[2]
    assert invalid(found, topic, b'{"delay": 7}')[0] is None
    unknown = confluent.join(1_000_000 + schema_id, b"\x0e")
    assert "is not a version of subject" in invalid(found, topic, unknown)[2]


def test_values_must_match_their_json_schema(registry: Registry):
    found, topic = checks(registry.url, FakeTime()), a_topic()
    good = sr.json_schema(registry.client, topic, JSON_FLIGHT, {"delay": 7})
    schema_id, payload = confluent.split(good)
    assert fault(found, topic, good) is None
    bad = confluent.join(schema_id, payload.replace(b"7", b'"late"'))
    assert invalid(found, topic, bad)[:2] == (schema_id, "/delay")


def test_plain_json_must_match_the_latest_schema_and_its_references(registry: Registry):
    topic, time = a_topic(), FakeTime()
    client, found = registry.client, checks(registry.url, time, is_plain=True)
    client.register_schema(f"{topic}-who", a_schema(required=[topic]))
    reference = SchemaReference("who.json", f"{topic}-who", 1)
    client.register_schema(f"{topic}-value", a_schema(reference, properties={"who": {"$ref": "who.json"}}))
    assert fault(found, topic, json.dumps({"who": {topic: 1}}).encode()) is None
    assert invalid(found, topic, b'{"who": {}}')[1] == "/who"
    client.register_schema(
        f"{topic}-value", Schema(json.dumps({"properties": {"n": {"const": topic}}}), "JSON")
    )
    assert invalid(found, topic, b'{"who": {}}')[1] == "/who"
    time.move(LATEST_MS / 1000)
    assert fault(found, topic, b'{"who": {}}') is None
    assert invalid(found, topic, b'{"n": 1}')[1] == "/n"


def latest(schema: str = JSON_FLIGHT, kind: str = "JSON") -> dict[str, Any]:
    return {"subject": "t-value", "version": 1, "id": 1, "schemaType": kind, "schema": schema}


def test_without_an_answer_of_the_registry_the_last_known_schema_is_used(served: RegistryDouble):
    time = FakeTime()
    found = checks(served.url, time, is_plain=True)
    served.has("/subjects/t-value/versions/latest", latest())
    assert fault(found, "t", b"{}") is None
    del served.answers["/subjects/t-value/versions/latest"]
    time.move(LATEST_MS / 1000)
    assert invalid(found, "t", b'{"delay": "x"}')[1] == "/delay"
    assert [fault(found, "t", b"{}") for _ in range(3)] == [None] * 3
    assert served.asked.count("/subjects/t-value/versions/latest") == 2, "once a minute, away or not"
    served.has("/subjects/t-value/versions/latest", latest("{}"))
    time.now_ms -= HOUR_MS
    time.move(LATEST_MS / 1000)
    assert fault(found, "t", b'{"delay": "x"}') is None, "whatever the wall clock says"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {"error_code": 40401},
        latest(FLIGHT, "AVRO"),
        latest("{"),
        latest('{"type": "nonsense"}'),
        latest('{"$ref": "http://127.0.0.1:1/x.json"}'),
    ],
)
def test_a_schema_that_cannot_be_fetched_is_unavailable_and_fetched_once_a_request(
    served: RegistryDouble, answer: dict[str, Any] | None
):
    found = checks(served.url, FakeTime(), is_plain=True)
    path = "/subjects/t-value/versions/latest"
    if answer:
        served.has(path, answer, 404 if "error_code" in answer else 200)
    faults = found.faults([NewRecord("t", b"k", b"{}")] * 3, Deadline.after_ms(5_000, found._clock))
    assert [type(each) for each in faults] == [RegistryUnavailable] * 3
    assert served.asked == [path]


def test_an_id_foreign_to_the_subject_is_looked_up_again_after_a_while_whatever_the_wall_clock_says(
    served: RegistryDouble,
):
    time = FakeTime()
    found, path = checks(served.url, time), "/schemas/ids/7/versions"
    value = confluent.join(7, b"{}")
    served.has(path, [{"subject": "other", "version": 1}, None, 5])
    for _ in range(3):
        assert invalid(found, "t", value)[0] == 7
    assert served.asked == [path]
    served.has(path, [{"subject": "t-value", "version": 3}])
    served.has("/schemas/ids/7", latest())
    time.now_ms -= HOUR_MS
    time.move(FOREIGN_ID_MS / 1000)
    assert fault(found, "t", value) is None
    assert fault(found, "t", value) is None
    assert served.asked == [path, path, "/schemas/ids/7"]


def test_keys_and_values_are_of_a_version_of_the_subject_that_the_topic_needs(registry: Registry):
    topic, other = a_topic(), a_topic()
    value = sr.avro(registry.client, topic, FLIGHT, {"delay": 7})
    strange = sr.avro(registry.client, other, FLIGHT.replace("Flight", other), {"delay": 7})
    subject = f"{topic}-value"
    found = ValueChecks((), client_of(registry.url), FakeTime().clock)
    reasons = unread(
        found,
        FramedField(subject, value),
        FramedField(subject, strange),
        FramedField(f"{topic}-key", value),
        FramedField(subject, value + b"\x00"),
    )
    strange_id, own_id = (confluent.split(each).schema_id for each in (strange, value))
    assert reasons[:3] == [
        "",
        f"schema {strange_id} is not a version of subject {subject!r}",
        f"schema {own_id} is not a version of subject '{topic}-key'",
    ]
    assert "can't be decoded" in reasons[3]


def test_while_the_registry_does_not_answer_what_names_a_schema_passes(served: RegistryDouble):
    found = ValueChecks((), client_of(served.url), FakeTime().clock)
    assert unread(found, *[FramedField("t-value", confluent.join(1, b"\x0e"))] * 2) == ["", ""]
    assert len(served.asked) == 1
