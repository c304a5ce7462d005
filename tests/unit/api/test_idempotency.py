"""Idempotency keys through the produce function, over fakes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import headers_of, load_produce, problem_of
from tests.support.fakes import FakeIdempotencyStore, FakeLog

from keylane.errors import LogUnavailable, Unacknowledged
from keylane.produce.guards import Guards

if TYPE_CHECKING:
    from collections.abc import Callable

    Post = Callable[..., dict[str, Any]]

KEY = {"Idempotency-Key": '"8e03978e-40d5-43dd-bc93-6894a57f9324"'}
REST_JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}


@pytest.fixture
def store() -> FakeIdempotencyStore:
    return FakeIdempotencyStore()


@pytest.fixture
def post(log: FakeLog, store: FakeIdempotencyStore) -> Post:
    return load_produce(log, guards=Guards(idempotency=lambda: store))


def replayed(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer without the header that marks a saved response."""
    headers = dict(answer["multiValueHeaders"])
    assert headers.pop("Idempotency-Replayed") == ["true"]
    return answer | {"multiValueHeaders": headers}


@pytest.mark.parametrize(
    ("path", "body", "more"),
    [
        ("/topics/t/keys/k", b"v", {"method": "PUT"}),
        ("/topics/t/keys/k", b"", {"method": "DELETE"}),
        ("/push", {"records": [{"topic": "t", "data": "1"}]}, {}),
        ("/push", {"records": [{"topic": "t", "data": "1"}, {"topic": "elsewhere", "data": "1"}]}, {}),
        ("/topics/t", {"records": [{"value": 1}, {"value": 2}]}, {"headers": REST_JSON}),
        ("/topics/t/partitions/0", {"records": [{"value": 1}]}, {"headers": REST_JSON}),
    ],
)
def test_the_same_request_gets_the_saved_response_and_is_not_written_again(
    post: Post, log: FakeLog, path: str, body: Any, more: dict[str, Any]
):
    more = more | {"headers": more.get("headers", {}) | KEY}
    first = post(path, body, **more)
    count = len(log.sent)
    assert "Idempotency-Replayed" not in headers_of(first)
    assert [replayed(post(path, body, **more)) for _ in range(2)] == [first, first]
    assert len(log.sent) == count


@pytest.mark.parametrize(
    ("path", "body", "more"),
    [
        ("/topics/t/keys/k", b"w", {"method": "PUT"}),
        ("/topics/t/keys/other", b"v", {"method": "PUT"}),
        ("/topics/t/keys/k", b"v", {"method": "PUT", "query": {"key_format": "text"}}),
        ("/topics/t/keys/k", b"v", {"method": "PUT", "headers": {"Content-Type": "text/plain"}}),
        ("/topics/t/keys/k", b"v", {"method": "DELETE"}),
        ("/push", {"records": []}, {}),
    ],
)
def test_another_request_with_the_key_is_refused(
    post: Post, log: FakeLog, path: str, body: Any, more: dict[str, Any]
):
    assert post("/topics/t/keys/k", b"v", method="PUT", headers=KEY)["statusCode"] == 201
    more = more | {"headers": more.get("headers", {}) | KEY}
    assert problem_of(post(path, body, **more))[:2] == (422, "idempotency-key-reused")
    assert len(log.sent) == 1


def test_while_the_first_request_is_written_the_second_is_told_to_retry(
    post: Post, store: FakeIdempotencyStore
):
    assert post("/topics/t/keys/k", b"v", method="PUT", headers=KEY)["statusCode"] == 201
    store.entries = {name: (entry[0], entry[1], None) for name, entry in store.entries.items()}
    answer = post("/topics/t/keys/k", b"v", method="PUT", headers=KEY)
    assert problem_of(answer)[:2] == (409, "request-in-progress")
    assert headers_of(answer)["Retry-After"] == "1"


def test_keys_belong_to_their_callers_and_an_address_is_no_name(post: Post, log: FakeLog):
    def put(**context: Any) -> dict[str, Any]:
        return post("/topics/t/keys/k", b"v", method="PUT", headers=KEY, context=context)

    ann, bob = ({"authorizer": {"principalId": name}} for name in ("ann", "bob"))
    assert [put(**ann)["statusCode"], put(**bob)["statusCode"]] == [201, 201]
    assert len(log.sent) == 2
    replayed(put(**ann))
    put(identity={"sourceIp": "192.0.2.1"})
    replayed(put(identity={"sourceIp": "192.0.2.2"}))
    assert len(log.sent) == 3


@pytest.mark.parametrize(
    ("path", "body", "more"),
    [
        ("/topics/t/keys/k", b"v", {"method": "PUT"}),
        ("/push", {"records": [{"topic": "t", "data": "1"}]}, {}),
        ("/topics/t", {"records": [{"value": 1}]}, {"headers": REST_JSON}),
    ],
)
def test_what_may_have_been_written_is_not_written_again_by_the_same_key(
    post: Post, log: FakeLog, path: str, body: Any, more: dict[str, Any]
):
    more = more | {"headers": more.get("headers", {}) | KEY}
    log.refusals = {"t": Unacknowledged()}
    first = post(path, body, **more)
    assert first["statusCode"] == 503
    assert '"uncertain": true' in first["body"]
    assert "Retry-After" not in headers_of(first), "the same request gets the same answer"
    log.refusals = {}
    assert replayed(post(path, body, **more)) == first
    assert len(log.sent) == 1


def test_where_nothing_was_written_the_request_may_be_repeated(post: Post, log: FakeLog):
    log.refusals = {"t": LogUnavailable("Kafka is away")}
    assert post("/topics/t/keys/k", b"v", method="PUT", headers=KEY)["statusCode"] == 503
    log.refusals = {}
    answer = post("/topics/t/keys/k", b"v", method="PUT", headers=KEY)
    assert answer["statusCode"] == 201
    assert "Idempotency-Replayed" not in headers_of(answer)


def test_after_an_error_that_nobody_foresaw_the_key_is_not_free_again(
    post: Post, log: FakeLog, monkeypatch: pytest.MonkeyPatch
):
    """A record may have been written by then."""

    def write_and_fail(*given: Any) -> Any:
        FakeLog.append_all(log, *given)
        raise RuntimeError("a fault in the code")

    with monkeypatch.context() as patch:
        patch.setattr(log, "append_all", write_and_fail)
        assert post("/topics/t/keys/k", b"v", method="PUT", headers=KEY)["statusCode"] == 500
    again = post("/topics/t/keys/k", b"v", method="PUT", headers=KEY)
    assert problem_of(again)[:2] == (409, "request-in-progress")
    assert len(log.sent) == 1


def test_an_invalid_request_claims_no_key(post: Post, store: FakeIdempotencyStore):
    assert post("/push", b"{", headers=KEY)["statusCode"] == 400
    assert store.claims == 0
    assert post("/push", {"records": [{"topic": "t", "data": "1"}]}, headers=KEY)["statusCode"] == 200


@pytest.mark.parametrize("key", ["", "a b", "a\tb", "ü", "k" * 256, "a, b"])
def test_bad_idempotency_keys_are_refused(post: Post, log: FakeLog, key: str):
    answer = post("/topics/t/keys/k", b"v", method="PUT", headers={"Idempotency-Key": key})
    assert problem_of(answer)[:2] == (400, "bad-request")
    assert json.loads(answer["body"])["parameter"] == "Idempotency-Key"
    assert not log.sent


def test_keys_may_have_255_characters(post: Post):
    answer = post("/topics/t/keys/k", b"v", method="PUT", headers={"idempotency-key": "k" * 255})
    assert answer["statusCode"] == 201


def test_without_a_redis_a_key_is_refused_and_not_ignored(log: FakeLog):
    answer = load_produce(log)("/topics/t/keys/k", b"v", method="PUT", headers=KEY)
    assert problem_of(answer)[:2] == (400, "bad-request")
    assert not log.sent
