"""Values checked before they are written: settings, the error in each form of request, and what passes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import FUNCTIONS, load_produce
from tests.support.fakes import FakeIdempotencyStore, FakeLog, FakeTime, a_runtime

from keylane.config.schemas import schema_rules
from keylane.errors import BadConfig, SettingsError
from keylane.produce.guards import Guards
from keylane.wiring.guards import build_checks
from keylane.wiring.schemas import open_circuit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from keylane.ports import Checks

    Post = Callable[..., dict[str, Any]]

ORDER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
GOOD, BAD = '{"n": 1}', '{"n": "1"}'
REST_JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}


def checks_of(environment: dict[str, str]) -> Checks | None:
    rules = schema_rules(environment)
    checks = build_checks(a_runtime(FakeTime().clock), environment, rules, open_circuit(2_000))
    return checks() if rules else None


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog()
    for topic in ("orders", "free"):
        log.create(topic, 1)
    return log


@pytest.fixture
def post(log: FakeLog) -> Post:
    """A function whose topics `orders...` have a schema."""
    environment = {"KEYLANE_SCHEMAS": json.dumps({"orders*": {"schema": ORDER}})}
    return load_produce(log, checks=checks_of(environment))


def test_a_record_of_a_push_that_is_not_as_its_schema_keeps_no_other_back(post: Post, log: FakeLog):
    records = [
        {"topic": "orders", "data": GOOD},
        {"topic": "orders", "data": BAD},
        {"topic": "free", "data": BAD},
        {"topic": "orders", "data": "text"},
        {"topic": "no topic", "data": BAD},
    ]
    answer = post("/push", {"records": records})
    document = json.loads(answer["body"])
    assert (answer["statusCode"], document["status"]) == (422, "err")
    assert [bool(position) for position in document["positions"]] == [True, False, True, False, False]
    first, second = document["errors"][1], document["errors"][3]
    assert (first["index"], first["field"], first["path"]) == (1, "data", "/n")
    assert (first["code"], first["retriable"], "uncertain" in first) == ("INVALID_RECORD", False, False)
    assert first["message"] == (
        "the value does not match the schema of topic 'orders' at /n: the value is not of type \"integer\""
    )
    assert (second["path"], "not valid JSON" in second["message"]) == ("", True)
    assert document["errors"][4]["code"] == "INVALID_TOPIC_EXCEPTION"
    assert [record.topic for record in log.sent] == ["orders", "free"]


def test_rest_proxys_form_tells_the_place_too(post: Post, log: FakeLog):
    records = [{"value": {"n": 1}}, {"value": {"n": 1.5}}, {"value": None}]
    answer = post("/topics/orders", {"records": records}, headers=REST_JSON)
    first, second, tombstone = json.loads(answer["body"])["offsets"]
    assert (answer["statusCode"], first["error_code"], tombstone["error_code"]) == (200, None, None)
    told = (second["error_code"], second["index"], second["field"], second["path"])
    assert told == (50002, 1, "value", "/n")
    assert len(log.sent) == 2


def test_a_key_is_refused_with_a_problem_and_a_tombstone_passes(post: Post, log: FakeLog):
    answer = post("/topics/orders/keys/k", BAD.encode(), method="PUT")
    problem = json.loads(answer["body"])
    assert (answer["statusCode"], problem["type"]) == (422, "urn:keylane:problem:value-invalid")
    assert (problem["code"], problem["path"]) == ("INVALID_RECORD", "/n")
    assert not log.sent
    assert post("/topics/orders/keys/k", GOOD.encode(), method="PUT")["statusCode"] == 201
    assert post("/topics/orders/keys/k", b"", method="DELETE")["statusCode"] == 200


def test_a_record_that_was_refused_frees_its_idempotency_key(log: FakeLog):
    store = FakeIdempotencyStore()
    checks = checks_of({"KEYLANE_SCHEMAS": json.dumps({"*": {"schema": ORDER}})})
    post = load_produce(log, guards=Guards(idempotency=lambda: store), checks=checks)
    headers = {"Idempotency-Key": "1"}
    for _ in range(2):
        answer = post("/topics/orders/keys/k", BAD.encode(), method="PUT", headers=headers)
        assert (answer["statusCode"], "Idempotency-Replayed" in answer["multiValueHeaders"]) == (422, False)
    assert post("/topics/orders/keys/k", GOOD.encode(), method="PUT", headers=headers)["statusCode"] == 201


def test_schemas_are_read_from_files_of_the_functions_folder(tmp_path: Path):
    (tmp_path / "order.json").write_text(json.dumps(ORDER), encoding="utf-8")
    environment = {
        "KEYLANE_SCHEMAS": '{"a": {"file": "order.json"}, "*": {"subject": "{topic}-value", "plain": true}}',
        "LAMBDA_TASK_ROOT": str(tmp_path),
    }
    first, second = schema_rules(environment)
    assert (first.pattern, first.schema) == ("a", ORDER)
    assert (second.subject_of("flights"), second.is_plain) == ("flights-value", True)


@pytest.mark.parametrize(
    "given",
    [
        "[]",
        "{",
        '{"a": 5}',
        '{"a": {}}',
        '{"a": {"schema": {}, "file": "x"}}',
        '{"a": {"schema": {}, "other": 1}}',
        '{"a": {"schema": {}, "plain": true}}',
        '{"a": {"subject": ""}}',
        '{"a": {"subject": 5}}',
        '{"a": {"subject": "s", "plain": "yes"}}',
        '{"a": {"file": "nowhere.json"}}',
        '{"a": {"schema": {"type": "nonsense"}}}',
        '{"a": {"schema": {"$ref": "http://127.0.0.1:1/x"}}}',
    ],
)
def test_schemas_that_are_none_name_their_variable(given: str):
    with pytest.raises(SettingsError) as caught:
        checks_of({"KEYLANE_SCHEMAS": given})
    assert caught.value.variable == "KEYLANE_SCHEMAS"


def test_subjects_need_a_registry():
    with pytest.raises(BadConfig, match="KEYLANE_SCHEMA_REGISTRY_URL"):
        checks_of({"KEYLANE_SCHEMAS": '{"a": {"subject": "s"}}'})
    assert checks_of({}) is None


def test_without_the_setting_no_library_for_it_is_imported():
    code = (
        "import sys, runpy; runpy.run_path('handler.py')['application'].parts(); "
        "print([m for m in ('jsonschema_rs', 'boto3', 'redis') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=FUNCTIONS / "produce",
        env={
            "PYTHONPATH": ":".join(sys.path),
            "KEYLANE_KAFKA_BOOTSTRAP": "a:1",
            "KEYLANE_REDIS_NODES": "a:1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "[]\n"
