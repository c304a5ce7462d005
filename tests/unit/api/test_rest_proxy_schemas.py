"""REST Proxy's avro.v2 over fakes: which schema a request may name, and what its faults are called."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import load_produce

from keylane.formats import confluent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fakes import FakeLog, FakeSchemaWriter

    Post = Callable[..., tuple[int, dict[str, Any]]]

AVRO = {"Content-Type": "application/vnd.kafka.avro.v2+json"}
TRIP = json.dumps({"type": "record", "name": "Trip", "fields": [{"name": "days", "type": "int"}]})
GOOD, BAD = {"days": 3}, {"days": "three"}


@pytest.fixture
def post(log: FakeLog, schemas: FakeSchemaWriter) -> Post:
    function = load_produce(log, schemas=schemas)

    def ask(path: str = "/topics/test", **body: Any) -> tuple[int, dict[str, Any]]:
        answer = function(path, body, headers=AVRO)
        return answer["statusCode"], json.loads(answer["body"])

    return ask


def refused(answer: tuple[int, dict[str, Any]]) -> tuple[int, int, str]:
    status, document = answer
    assert document["status"] == status
    assert document["message"] == document["detail"]
    return status, document["error_code"], document["parameter"]


@pytest.mark.parametrize("field", ["key", "value"])
@pytest.mark.parametrize("path", ["/topics/test", "/topics/test/partitions/1"])
def test_an_id_of_another_subjects_schema_is_42207_and_nothing_is_written(
    post: Post, log: FakeLog, schemas: FakeSchemaWriter, field: str, path: str
):
    schema_id = schemas.add(f"other-{field}", TRIP)
    body = {f"{field}_schema_id": schema_id, "records": [{field: GOOD}]}
    assert refused(post(path, **body)) == (422, 42207, f"{field}_schema_id")
    assert log.sent == []
    schemas.add(f"test-{field}", TRIP)
    status, document = post(path, **body)
    assert (status, document[f"{field}_schema_id"]) == (200, schema_id)
    assert getattr(log.sent[0], field) == confluent.join(schema_id, b"\x06")


@pytest.mark.parametrize("schema_id", [1, "1", " 1 ", 1.0])
def test_ids_are_read_as_jackson_reads_them(post: Post, schemas: FakeSchemaWriter, schema_id: Any):
    assert schemas.add("test-value", TRIP) == 1
    status, document = post(value_schema_id=schema_id, records=[{"value": GOOD}])
    assert (status, document["value_schema_id"]) == (200, 1)


@pytest.mark.parametrize("schema_id", [2**31 - 1, "99", 0, -1])
def test_an_unknown_id_is_42207(post: Post, schema_id: Any):
    assert refused(post(value_schema_id=schema_id, records=[{"value": GOOD}])) == (
        *(422, 42207),
        "value_schema_id",
    )


@pytest.mark.parametrize("schema_id", ["one", 2**31, 1.5, True, [1], {}])
def test_an_id_of_a_wrong_type_is_400(post: Post, schema_id: Any):
    answer = post(value_schema_id=schema_id, records=[{"value": GOOD}])
    assert refused(answer) == (400, 400, "value_schema_id")


@pytest.mark.parametrize("schema", [{"type": "string"}, ["null", "string"]])
def test_a_schema_that_is_no_string_is_400(post: Post, schema: Any):
    assert refused(post(value_schema=schema, records=[{"value": GOOD}])) == (400, 400, "value_schema")


@pytest.mark.parametrize("schema", ['{"type": "nothing"}', "{", "", 7, True])
def test_a_schema_that_is_not_usable_is_42205(post: Post, schema: Any):
    assert refused(post(value_schema=schema, records=[{"value": GOOD}])) == (422, 42205, "value_schema")


def test_a_schemas_text_beside_its_id_is_400(post: Post, schemas: FakeSchemaWriter):
    schema_id = schemas.add("test-value", TRIP)
    answer = post(value_schema=TRIP, value_schema_id=schema_id, records=[{"value": GOOD}])
    assert refused(answer) == (400, 400, "value_schema")


def test_a_value_that_its_schema_rejects_is_400_with_42203(post: Post, log: FakeLog):
    answer = post(value_schema=TRIP, records=[{"value": GOOD}, {"value": BAD}])
    assert refused(answer) == (400, 42203, "records[1].value.days")
    assert log.sent == []


def test_missing_schemas_are_42201_and_42202(post: Post):
    assert refused(post(records=[{"value": GOOD}])) == (422, 42202, "value_schema")
    assert refused(post(value_schema=TRIP, records=[{"key": 1}])) == (422, 42201, "key_schema")


def test_a_registry_that_rejects_a_schema_or_is_away_is_42207(
    post: Post, schemas: FakeSchemaWriter, log: FakeLog
):
    schemas.rejects = True
    answer = post(value_schema=TRIP, records=[{"value": GOOD}])
    assert refused(answer) == (422, 42207, "value_schema")
    schemas.away = True
    for body in ({"value_schema": TRIP}, {"value_schema_id": 1}):
        status, document = post(records=[{"value": GOOD}], **body)
        assert (status, document["status"], document["error_code"]) == (422, 422, 42207)
        assert document["type"] == "urn:keylane:problem:registry-unavailable"
    assert log.sent == []


def test_without_a_registry_avro_is_42206(log: FakeLog):
    answer = load_produce(log)("/topics/test", {"records": [{"value": GOOD}]}, headers=AVRO)
    document = json.loads(answer["body"])
    assert (answer["statusCode"], document["error_code"]) == (422, 42206)
    assert "Schema Registry" in document["detail"]


@pytest.mark.parametrize(
    ("kind", "schema", "encoded"),
    [
        ("jsonschema", '{"properties": {"days": {"type": "integer"}}}', b'{"days":3}'),
        ("protobuf", 'syntax = "proto3"; message Trip { int32 days = 1; }', b"\x00\x08\x03"),
    ],
)
def test_the_media_type_says_the_type_of_the_schemas(
    log: FakeLog, schemas: FakeSchemaWriter, kind: str, schema: str, encoded: bytes
):
    function = load_produce(log, schemas=schemas)
    headers = {"Content-Type": f"application/vnd.kafka.{kind}.v2+json"}

    def ask(**body: Any) -> tuple[int, dict[str, Any]]:
        answer = function("/topics/test", body, headers=headers)
        return answer["statusCode"], json.loads(answer["body"])

    status, document = ask(value_schema=schema, records=[{"value": GOOD}, {"value": None}])
    assert (status, document["value_schema_id"]) == (200, 1)
    assert [each.value for each in log.sent] == [confluent.join(1, encoded), None]
    assert refused(ask(value_schema=schema, records=[{"value": BAD}]))[:2] == (400, 42203)
    assert refused(ask(value_schema="[", records=[{"value": GOOD}])) == (422, 42205, "value_schema")
    avro = schemas.add("test-value", TRIP)
    answer = ask(value_schema_id=avro, records=[{"value": GOOD}])
    assert refused(answer) == (422, 42205, "value_schema_id")
    assert len(log.sent) == 2
