"""`KEYLANE_REST_COMPATIBILITY`: requests and answers as clients of REST Proxy and of Karapace expect them."""

from __future__ import annotations

import json

import pytest

from keylane.api.http.request import Request
from keylane.api.http.response import Response
from keylane.api.rest_proxy.compatibility import KARAPACE, MODES, adapt_answer, adapt_request
from keylane.api.rest_proxy.v2_answers import JSON as V2
from keylane.config.api import ApiSettings
from keylane.errors import NotAcceptable, SettingsError


def get(path: str = "/topics", **headers: str) -> Request:
    return Request("GET", path, {}, headers)


def post(content_type: str | None, body: bytes = b"") -> Request:
    headers = {} if content_type is None else {"content-type": content_type}
    return Request("POST", "/topics/t", {}, headers, body)


@pytest.mark.parametrize(
    "accept", [None, "*/*", "application/json", "application/*", "*/json", "text/html, */*"]
)
def test_a_reader_that_asks_for_nothing_else_gets_documents_of_v2(accept):
    request = get(**({} if accept is None else {"accept": accept}))
    assert adapt_request(request).headers["accept"] == V2


def test_a_reader_that_asks_for_keylanes_own_documents_gets_them():
    request = get(accept="application/vnd.keylane+json, application/json, */*;q=0.5")
    assert adapt_request(request) is request


@pytest.mark.parametrize("accept", ["foo/*", "*/baz", "application/text", "application/octet-stream"])
def test_what_is_no_json_is_not_acceptable(accept):
    with pytest.raises(NotAcceptable):
        adapt_request(get(accept=accept))


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("application/vnd.kafka.v1+json", "binary"),
        ("application/vnd.kafka.binary.v1+json", "binary"),
        ("application/vnd.kafka.avro.v1+json; charset=utf-8", "avro"),
        ("application/vnd.kafka.json+json", "json"),
        ("application/json", "binary"),
        ("application/octet-stream", "binary"),
        (None, "binary"),
    ],
)
def test_types_of_v1_and_plain_ones_are_taken_as_those_of_v2(given, taken):
    found = adapt_request(post(given)).headers["content-type"]
    assert found.partition(";")[0] == f"application/vnd.kafka.{taken}.v2+json"


@pytest.mark.parametrize(
    "given", ["application/vnd.kafka.v3+json", "application/vnd.kafka.json+avro", "bar/baz"]
)
def test_other_types_stay_what_they_are_and_are_refused_later(given):
    assert adapt_request(post(given)).headers["content-type"] == given


def adapted(request: Request, status: int, **document: object) -> tuple[int, dict]:
    response = adapt_answer(request, Response(status, V2, json.dumps(document), {}))
    return response.status_code, json.loads(response.body or "")


UNKNOWN = {"error_code": 40401, "message": "topic 'foo' is unknown: Kafka has no topic of this name"}


@pytest.mark.parametrize(
    ("path", "code"),
    [("/topics/foo", 40403), ("/topics/foo/partitions", 40401), ("/topics/foo/partitions/0", 40401)],
)
def test_an_unknown_topic_has_karapaces_codes(path, code):
    status, document = adapted(get(path), 404, **UNKNOWN)
    assert (status, document["error_code"], document["message"]) == (404, code, "Topic foo not found")


def test_a_partition_that_is_no_number_is_not_found():
    request = get("/topics/foo/partitions/x/offsets")
    status, document = adapted(request, 400, error_code=400, message="m", parameter="partition")
    assert (status, document["status"], document["error_code"]) == (404, 404, 404)


AVRO = post("application/vnd.kafka.avro.v2+json", b'{"value_schema_id": 7}')


@pytest.mark.parametrize(
    ("given", "status", "code", "message"),
    [
        ({"error_code": 42203}, 422, 42205, "Object does not fit to stored schema"),
        (
            {"error_code": 42207, "parameter": "value_schema_id"},
            422,
            42205,
            "Invalid schema. format = AVRO, schema_id = 7",
        ),
        ({"error_code": 42207, "parameter": "value_schema"}, 408, 40801, "Error when registering schema. m"),
        ({"error_code": 42202}, 422, 42202, "m"),
    ],
)
def test_faults_of_schemas_have_karapaces_statuses_and_codes(given, status, code, message):
    found, document = adapted(AVRO, 422, **{"message": "m", "detail": "ours", **given})
    assert (found, document["error_code"], document["message"]) == (status, code, message)
    assert document["detail"] == "ours"


def test_a_record_that_failed_is_422_for_the_request():
    offsets = [
        {"partition": 0, "offset": 1, "error_code": None, "error": None},
        {"error_code": 50003, "error": "later", "retriable": True},
        {"error_code": 50002, "error": "large", "retriable": False, "code": "MESSAGE_TOO_LARGE"},
    ]
    status, document = adapted(AVRO, 200, offsets=offsets)
    assert status == 422
    assert [each["error_code"] for each in document["offsets"]] == [None, 2, 1]
    assert document["offsets"][2]["error"].startswith("The server has a configurable maximum message size")
    status, document = adapted(AVRO, 200, offsets=offsets[:1])
    assert (status, document["offsets"]) == (200, offsets[:1])


@pytest.mark.parametrize(("size", "status"), [(1_048_576, 422), (1_048_577, 413)])
def test_a_record_that_is_too_large_in_a_body_that_karapace_does_not_take_is_413(size, status):
    failed = {"error_code": 50002, "error": "large", "retriable": False, "code": "MESSAGE_TOO_LARGE"}
    assert adapted(post("application/json", b"x" * size), 200, offsets=[failed])[0] == status


@pytest.mark.parametrize("body", ['["a"]', "not JSON", ""])
def test_other_answers_stay_what_they_are(body):
    assert adapt_answer(get(), Response(200, V2, body, {})).body == body


def test_the_setting_has_two_words():
    assert MODES == ("rest-proxy", "karapace")
    for mode in MODES:
        found = ApiSettings.from_environment({"KEYLANE_REST_COMPATIBILITY": mode})
        assert found.rest_compatibility == mode
    assert ApiSettings.from_environment({}).rest_compatibility == ""
    with pytest.raises(SettingsError, match="KEYLANE_REST_COMPATIBILITY"):
        ApiSettings.from_environment({"KEYLANE_REST_COMPATIBILITY": KARAPACE.upper()})
