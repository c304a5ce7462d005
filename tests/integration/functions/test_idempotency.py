"""Idempotency keys on a real cluster and a real broker: several environments, one that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import CLOCK, eventually, records_of
from tests.support import lanes as t
from tests.support.builders import a_topic, an_event, headers_of, load_handler

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.idempotency import RedisIdempotencyStore
from keylane.adapters.redis.scripts import Scripts
from keylane.errors import IdempotencyKeyReused, RequestInProgress, StateUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Environment = Callable[[dict[str, Any]], dict[str, Any]]

IN_PROGRESS_S = 4
"""Longer than a write may take, by the timeouts below."""
PRINT = b"f" * 32


@pytest.fixture
def environment(kafka: str, redis_cluster: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Environment]:
    """Gives one more warm environment of the produce function."""
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", kafka)
    monkeypatch.setenv("KEYLANE_REDIS_NODES", redis_cluster)
    monkeypatch.setenv("KEYLANE_IDEMPOTENCY_IN_PROGRESS_S", str(IN_PROGRESS_S))
    monkeypatch.setenv("KEYLANE_PRODUCE_TIMEOUT_MS", "2800")
    monkeypatch.setenv("KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS", "100")

    def make() -> Environment:
        handler = load_handler("produce").lambda_handler
        return lambda event: dict(handler(event, None))

    return make


@pytest.fixture
def store(redis_cluster: str) -> Iterator[RedisIdempotencyStore]:
    scripts = Scripts(Cluster(t.settings(redis_cluster)))
    yield RedisIdempotencyStore(scripts, CLOCK, timeout_ms=5_000, expiry_s=2, in_progress_s=1)
    scripts.close()


def a_put(topic: str, key: str, value: bytes = b"v") -> dict[str, Any]:
    headers = {"Idempotency-Key": key}
    return an_event("PUT", f"/topics/{topic}/keys/k", body=value, headers=headers)


def test_another_environment_replays_the_first_ones_response(
    environment: Callable[[], Environment], topic: str, kafka: str
):
    first, second = environment(), environment()
    answer = first(a_put(topic, topic))
    again = second(a_put(topic, topic))
    assert (answer["statusCode"], again["statusCode"]) == (201, 201)
    assert headers_of(again) == headers_of(answer) | {"Idempotency-Replayed": "true"}
    assert again["body"] == answer["body"]
    assert second(a_put(topic, topic, b"w"))["statusCode"] == 422
    assert records_of(kafka, topic, 0) == [(b"k", b"v")]


def test_large_answers_are_given_again_byte_by_byte(
    environment: Callable[[], Environment], topic: str, kafka: str
):
    body = json.dumps({"records": [{"topic": topic, "data": "1"}] * 5_000}).encode()
    push = an_event("POST", "/push", body=body, headers={"Idempotency-Key": topic})
    use = environment()
    answer, again = use(push), use(push)
    assert (answer["statusCode"], again["body"]) == (200, answer["body"])
    assert len(records_of(kafka, topic, 0)) == 5_000


def test_of_many_at_the_same_time_one_is_written(
    environment: Callable[[], Environment], topic: str, kafka: str
):
    uses = [environment() for _ in range(4)]
    uses[0](a_put(topic, f"{topic}-connects"))
    with ThreadPoolExecutor(4) as pool:
        asked = pool.map(lambda use: [use(a_put(topic, topic)) for _ in range(5)], uses)
    answers = [answer for each in asked for answer in each]
    written = [answer for answer in answers if answer["statusCode"] == 201]
    assert {answer["statusCode"] for answer in answers} <= {201, 409}
    assert len([answer for answer in written if "Idempotency-Replayed" not in headers_of(answer)]) == 1
    assert len(records_of(kafka, topic, 0)) == 2


def test_after_a_kill_the_key_is_held_until_the_claim_runs_out_then_written_again(
    environment: Callable[[], Environment], topic: str, kafka: str
):
    killed = subprocess.run(
        [sys.executable, "-m", "tests.support.killed_writer"],
        input=json.dumps(a_put(topic, topic)),
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ),
    )
    assert killed.returncode == -signal.SIGKILL
    use = environment()
    statuses: list[int] = []

    def is_written() -> bool:
        statuses.append(use(a_put(topic, topic))["statusCode"])
        return statuses[-1] != 409

    eventually(is_written)
    assert (statuses[0], statuses[-1]) == (409, 201)
    assert records_of(kafka, topic, 0) == [(b"k", b"v"), (b"k", b"v")], "at least once"


def test_a_claim_that_ran_out_takes_nothing_from_who_has_the_key_now(store: RedisIdempotencyStore):
    name = a_topic()
    late = store.claim(name, PRINT).token
    with pytest.raises(RequestInProgress):
        store.claim(name, PRINT)
    found: list[Any] = []

    def is_free() -> bool:
        try:
            found.append(store.claim(name, PRINT))
        except RequestInProgress:
            return False
        return True

    eventually(is_free)
    store.settle(name, late, None)
    store.settle(name, late, b"late")
    with pytest.raises(RequestInProgress):
        store.claim(name, PRINT)
    store.settle(name, found[0].token, b"answer")
    assert store.claim(name, PRINT).response == b"answer"


def test_answers_and_freed_keys_are_gone_in_time(store: RedisIdempotencyStore):
    name = a_topic()
    store.settle(name, store.claim(name, PRINT).token, None)
    store.settle(name, store.claim(name, PRINT).token, b"answer")
    with pytest.raises(IdempotencyKeyReused):
        store.claim(name, b"g" * 32)
    eventually(lambda: store.claim(name, PRINT).response is None)


def test_with_redis_away_a_key_is_503_and_nothing_is_written(
    environment: Callable[[], Environment], topic: str, kafka: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEYLANE_REDIS_NODES", "127.0.0.1:1")
    monkeypatch.setenv("KEYLANE_STATE_TIMEOUT_MS", "100")
    use = environment()
    answer = use(a_put(topic, topic))
    assert (answer["statusCode"], headers_of(answer)["Retry-After"]) == (503, "1")
    assert json.loads(answer["body"])["type"] == "urn:keylane:problem:state-unavailable"
    assert records_of(kafka, topic, 0) == []
    assert use(an_event("PUT", f"/topics/{topic}/keys/k", body=b"v"))["statusCode"] == 201


def test_a_response_that_can_not_be_saved_is_returned_all_the_same(
    store: RedisIdempotencyStore, monkeypatch: pytest.MonkeyPatch
):
    name = a_topic()
    token = store.claim(name, PRINT).token
    monkeypatch.setattr(store._scripts, "run", lambda *_: [StateUnavailable("Redis did not answer in time")])
    store.settle(name, token, b"answer")
    with pytest.raises(StateUnavailable):
        store.claim(name, PRINT)
