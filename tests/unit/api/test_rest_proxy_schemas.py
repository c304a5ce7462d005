"""REST Proxy's data with schemas over fakes: which schemas requests and records may name, and faults."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import load_produce
from tests.support.fakes import FakeLog, FakeSchemaWriter, FakeTime

from keylane.api.rest_proxy.v2_schemas import CHECKS_MS, RequestSchemas
from keylane.api.rest_proxy.v3_schemas import RecordSchemas
from keylane.errors import RecordRejected
from keylane.formats import confluent
from keylane.model.served_topics import ALL_TOPICS, ServedTopics
from keylane.ports import WaitBudget

if TYPE_CHECKING:
    from collections.abc import Callable

    Post = Callable[..., list[dict[str, Any]]]
    PostV2 = Callable[..., tuple[int, dict[str, Any]]]

PATH = "/v3/clusters/cluster-1/topics/test/records"
JSON = {"Content-Type": "application/json"}
TRIP = json.dumps({"type": "record", "name": "Trip", "fields": [{"name": "days", "type": "int"}]})
OBJECT = '{"type": "object", "properties": {"days": {"type": "integer"}}}'
PROTO = 'syntax = "proto3"; package org.trips; message Trip { int32 days = 1; }'
AVRO_V2 = {"Content-Type": "application/vnd.kafka.avro.v2+json"}
GOOD, BAD = {"days": 3}, {"days": "three"}
ENCODED = {"AVRO": b"\x06", "JSONSCHEMA": b'{"days":3}', "PROTOBUF": b"\x00\x08\x03"}
SCHEMAS = {"AVRO": TRIP, "JSONSCHEMA": OBJECT, "PROTOBUF": PROTO}


@pytest.fixture
def post(log: FakeLog, schemas: FakeSchemaWriter) -> Post:
    function = load_produce(log, schemas=schemas)

    def ask(*records: Any) -> list[dict[str, Any]]:
        body = b"".join(json.dumps(each).encode() for each in records)
        answer = function(PATH, body, headers=JSON)
        assert answer["statusCode"] == 200
        return [json.loads(report) for report in answer["body"].split("\r\n")[:-1]]

    return ask


@pytest.mark.parametrize("field", ["key", "value"])
@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_of_each_type_is_registered_under_the_topics_subject(
    post: Post, log: FakeLog, schemas: FakeSchemaWriter, kind: str, field: str
):
    (report,) = post({field: {"type": kind, "schema": SCHEMAS[kind], "data": GOOD}})
    assert getattr(log.sent[0], field) == confluent.join(1, ENCODED[kind])
    assert schemas.subjects == {f"test-{field}": [1]}
    size = 5 + len(ENCODED[kind])
    described = {"subject": f"test-{field}", "schema_id": 1, "schema_version": 1, "size": size}
    assert report[field] == {"type": kind, **described}


def test_an_id_a_version_and_the_latest_version_name_schemas_of_the_subject(
    post: Post, log: FakeLog, schemas: FakeSchemaWriter
):
    schemas.add("test-value", TRIP)
    schemas.add("test-value", TRIP.replace("Trip", "Journey"))
    named: list[dict[str, Any]] = [{"schema_id": 1}, {"schema_id": "2"}, {"schema_version": 1}, {}]
    reports = post(*({"value": {**each, "data": GOOD}} for each in named))
    assert [each["value"]["schema_version"] for each in reports] == [1, 2, 1, 2]
    assert [confluent.split(each.value or b"").schema_id for each in log.sent] == [1, 2, 1, 2]
    said = {"subject": "test-value", "data": GOOD}, {"subject_name_strategy": "TOPIC_NAME", "data": GOOD}
    assert [each["error_code"] for each in post(*({"value": each} for each in said))] == [200, 200]


def test_null_data_with_a_schema_is_a_tombstone(post: Post, log: FakeLog, schemas: FakeSchemaWriter):
    schemas.add("test-value", TRIP)
    reports = post({"value": {"schema_id": 1}}, {"value": {"schema_version": 1, "data": None}})
    assert [each["value"]["size"] for each in reports] == [-1, -1]
    assert [each.value for each in log.sent] == [None, None]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"type": "AVRO", "data": GOOD}, 400),
        ({"type": "AVRO", "schema_id": 1, "data": GOOD}, 400),
        ({"type": "AVRO", "schema_version": 1, "data": GOOD}, 400),
        ({"type": "AVRO", "schema": TRIP, "schema_id": 1, "data": GOOD}, 400),
        ({"schema": TRIP, "data": GOOD}, 400),
        ({"schema_id": 1, "schema_version": 1, "data": GOOD}, 400),
        ({"schema_id": "one", "data": GOOD}, 400),
        ({"schema_version": 0, "data": GOOD}, 400),
        ({"schema_version": 7, "data": GOOD}, 400),
        ({"type": "AVRO", "schema": [TRIP], "data": GOOD}, 400),
        ({"schema_id": 1, "subject": "test-value", "subject_name_strategy": "TOPIC_NAME"}, 400),
        ({"schema_id": 1, "subject_name_strategy": "NAME"}, 400),
        ({"schema_version": 1, "subject_name_strategy": "RECORD_NAME", "data": GOOD}, 400),
        ({"subject_name_strategy": "TOPIC_RECORD_NAME", "data": GOOD}, 400),
        ({"schema_id": 1, "subject_name_strategy": "RECORD_NAME", "data": GOOD}, 422),
        ({"type": "AVRO", "subject": "other-value", "schema": TRIP, "data": GOOD}, 422),
        ({"schema_id": 1, "data": {"days": "three"}}, 400),
        ({"schema_id": 1, "data": {"days": 3, "nights": 2}}, 400),
        ({"type": "JSONSCHEMA", "schema": OBJECT, "data": {"days": "three"}}, 400),
        ({"type": "JSONSCHEMA", "schema": OBJECT, "data": {"days": "\ud800"}}, 400),
        ({"type": "PROTOBUF", "schema": PROTO, "data": {"days": "three"}}, 400),
        ({"type": "PROTOBUF", "schema": PROTO, "data": {"nights": 3}}, 400),
        ({"type": "PROTOBUF", "schema": PROTO, "data": []}, 400),
        ({"type": "PROTOBUF", "schema": PROTO, "data": ""}, 400),
        ({"schema_id": 2, "data": GOOD}, 42207),
        ({"type": "AVRO", "schema": "{", "data": GOOD}, 42205),
        ({"type": "AVRO", "schema": "[" * 100_000, "data": GOOD}, 42205),
        ({"type": "JSONSCHEMA", "schema": '{"type": 7}', "data": GOOD}, 42205),
        ({"type": "JSONSCHEMA", "schema": '{"anyOf": [' * 100_000, "data": GOOD}, 42205),
        ({"type": "PROTOBUF", "schema": "message {", "data": GOOD}, 42205),
        ({"type": "PROTOBUF", "schema": 'syntax = "proto3";', "data": GOOD}, 42205),
    ],
)
def test_faults_have_rest_proxys_codes_and_hold_up_no_other_record(
    post: Post, log: FakeLog, schemas: FakeSchemaWriter, value: dict[str, Any], code: int
):
    schemas.add("test-value", TRIP)
    schemas.add("other-value", TRIP.replace("Trip", "Other"))
    good, faulty = post({"value": {"schema_id": 1, "data": GOOD}}, {"value": value})
    assert (faulty["error_code"], set(faulty)) == (code, {"error_code", "message"})
    assert good["error_code"] == 200
    assert len(log.sent) == 1


def test_a_fault_names_the_place_in_the_data(post: Post):
    nested = {
        "type": "record",
        "name": "T",
        "fields": [{"name": "a", "type": {"type": "array", "items": "int"}}],
    }
    (avro,) = post({"value": {"type": "AVRO", "schema": json.dumps(nested), "data": {"a": [1, "b"]}}})
    assert avro["message"].startswith("value.data.a[1] is not")
    (checked,) = post({"key": {"type": "JSONSCHEMA", "schema": OBJECT, "data": {"days": "three"}}})
    assert checked["message"].startswith("key.data.days does not match its schema")


def test_a_request_asks_the_registry_once_for_each_schema_that_its_records_name(
    post: Post, schemas: FakeSchemaWriter, log: FakeLog
):
    schemas.add("test-value", TRIP)
    post(*({"value": {"data": GOOD}} for _ in range(100)))
    assert (schemas.requests, len(log.sent)) == (2, 100)


def test_a_registry_that_is_away_is_asked_once_and_records_without_schemas_are_written(
    post: Post, schemas: FakeSchemaWriter, log: FakeLog
):
    schemas.away = True
    reports = post(
        {"value": {"data": GOOD}}, {"value": {"data": GOOD}}, {"value": {"type": "JSON", "data": GOOD}}
    )
    assert [each["error_code"] for each in reports] == [42207, 42207, 200]
    assert (schemas.requests, len(log.sent)) == (1, 1)


def test_a_registry_that_rejects_a_schema_is_42207(post: Post, schemas: FakeSchemaWriter):
    schemas.rejects = True
    (report,) = post({"value": {"type": "AVRO", "schema": TRIP, "data": GOOD}})
    assert report["error_code"] == 42207


def test_no_schema_is_registered_for_a_topic_that_is_not_served(log: FakeLog, schemas: FakeSchemaWriter):
    function = load_produce(log, schemas=schemas, served=ServedTopics(write=("other",)))
    body = {"value": {"type": "AVRO", "schema": TRIP, "data": GOOD}}
    report = json.loads(function(PATH, body, headers=JSON)["body"])
    assert report["error_code"] == 40301
    assert (schemas.subjects, log.sent) == ({}, [])


def test_a_requests_schemas_and_its_checks_are_bounded_in_time(schemas: FakeSchemaWriter):
    time = FakeTime()
    registered = schemas.registered

    def answer_after_a_second(*asked: Any) -> Any:
        found = registered(*asked)
        time.move(1)
        return found

    schemas.registered = answer_after_a_second  # type: ignore[method-assign]
    request = RequestSchemas(lambda: schemas, WaitBudget(2_000, time.clock))
    found = RecordSchemas(request, "test", ALL_TOPICS)
    checked = {"type": "JSONSCHEMA", "schema": OBJECT, "data": GOOD}
    avro = {"type": "AVRO", "schema": TRIP, "data": GOOD}
    found.encode(checked, "value")
    found.encode(avro, "key")
    asked = schemas.requests
    with pytest.raises(RecordRejected, match="the request's time for its schemas is over") as refused:
        found.encode({**checked, "schema": "{}"}, "value")
    assert (refused.value.error_code, schemas.requests) == (42207, asked)
    found.encode(checked, "value")
    time.move(CHECKS_MS / 1000)
    with pytest.raises(RecordRejected, match=r"value\.data was not checked: .* send fewer records"):
        found.encode(checked, "value")
    assert found.encode(avro, "key")[1] == confluent.join(2, ENCODED["AVRO"])


@pytest.fixture
def post_v2(log: FakeLog, schemas: FakeSchemaWriter) -> PostV2:
    function = load_produce(log, schemas=schemas)

    def ask(path: str = "/topics/test", **body: Any) -> tuple[int, dict[str, Any]]:
        answer = function(path, body, headers=AVRO_V2)
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
    post_v2: PostV2, log: FakeLog, schemas: FakeSchemaWriter, field: str, path: str
):
    schema_id = schemas.add(f"other-{field}", TRIP)
    body = {f"{field}_schema_id": schema_id, "records": [{field: GOOD}]}
    assert refused(post_v2(path, **body)) == (422, 42207, f"{field}_schema_id")
    assert log.sent == []
    schemas.add(f"test-{field}", TRIP)
    status, document = post_v2(path, **body)
    assert (status, document[f"{field}_schema_id"]) == (200, schema_id)
    assert getattr(log.sent[0], field) == confluent.join(schema_id, b"\x06")


@pytest.mark.parametrize("schema_id", [1, "1", " 1 ", 1.0])
def test_ids_are_read_as_jackson_reads_them(post_v2: PostV2, schemas: FakeSchemaWriter, schema_id: Any):
    assert schemas.add("test-value", TRIP) == 1
    status, document = post_v2(value_schema_id=schema_id, records=[{"value": GOOD}])
    assert (status, document["value_schema_id"]) == (200, 1)


@pytest.mark.parametrize("schema_id", ["one", 2**31, 1.5, True, [1], {}])
def test_an_id_of_a_wrong_type_is_400(post_v2: PostV2, schema_id: Any):
    answer = post_v2(value_schema_id=schema_id, records=[{"value": GOOD}])
    assert refused(answer) == (400, 400, "value_schema_id")


def test_what_is_wrong_with_the_request_is_found_before_the_registry_is_asked(
    post_v2: PostV2, schemas: FakeSchemaWriter
):
    schemas.away = True
    answer = post_v2(key_schema_id=2_147_483_647, value_schema_id="one", records=[{}])
    assert refused(answer)[::2] == (400, "value_schema_id")
    assert schemas.requests == 0


@pytest.mark.parametrize("schema", ['{"type": "nothing"}', "{", "", 7, True])
def test_a_schema_that_is_not_usable_is_42205(post_v2: PostV2, schema: Any):
    assert refused(post_v2(value_schema=schema, records=[{"value": GOOD}])) == (422, 42205, "value_schema")


def test_a_schemas_text_beside_its_id_is_400(post_v2: PostV2, schemas: FakeSchemaWriter):
    schema_id = schemas.add("test-value", TRIP)
    answer = post_v2(value_schema=TRIP, value_schema_id=schema_id, records=[{"value": GOOD}])
    assert refused(answer) == (400, 400, "value_schema")


def test_a_value_that_its_schema_rejects_is_400_with_42203(post_v2: PostV2, log: FakeLog):
    answer = post_v2(value_schema=TRIP, records=[{"value": GOOD}, {"value": BAD}])
    assert refused(answer) == (400, 42203, "records[1].value.days")
    assert log.sent == []


def test_missing_schemas_are_42201_and_42202(post_v2: PostV2):
    assert refused(post_v2(records=[{"value": GOOD}])) == (422, 42202, "value_schema")
    assert refused(post_v2(value_schema=TRIP, records=[{"key": 1}])) == (422, 42201, "key_schema")


def test_a_registry_that_rejects_a_schema_or_is_away_is_42207(
    post_v2: PostV2, schemas: FakeSchemaWriter, log: FakeLog
):
    schemas.rejects = True
    answer = post_v2(value_schema=TRIP, records=[{"value": GOOD}])
    assert refused(answer) == (422, 42207, "value_schema")
    schemas.away = True
    for body in ({"value_schema": TRIP}, {"value_schema_id": 1}):
        status, document = post_v2(records=[{"value": GOOD}], **body)
        assert (status, document["status"], document["error_code"]) == (422, 422, 42207)
        assert document["type"] == "urn:keylane:problem:registry-unavailable"
    assert log.sent == []


def test_without_a_registry_avro_is_42206(log: FakeLog):
    answer = load_produce(log)("/topics/test", {"records": [{"value": GOOD}]}, headers=AVRO_V2)
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
