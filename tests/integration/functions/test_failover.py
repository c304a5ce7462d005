"""Failovers under the functions: limits, idempotency keys, sessions and ages, by what the replica has."""

from __future__ import annotations

import contextlib
import json
import math
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis
from tests.servers.own import (
    catch_up,
    eventually,
    hanging,
    primary_and_replica,
    records_of,
    repair,
)
from tests.support import lanes as t
from tests.support.builders import an_event, headers_of, lane_of, load_handler
from tests.support.served import Served

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.rate_limits import key_of
from keylane.produce.rate_limits import TOPIC, RateLimitSubject, RequestLoad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keylane_local.servers.redis_cluster import RedisCluster

    Ask = Callable[..., dict[str, Any]]

KEY = b"N14228"
SLOT_OF_EACH_SHARD = (0, 8_000, 16_000)
FAILOVER_S = 6.0
"""A replica on a busy machine may give a manual failover up, after 5 s: then it is asked again."""


def asker(name: str) -> Ask:
    use = load_handler(name).lambda_handler
    return lambda method, path, **event: dict(use(an_event(method, path, **event), None))


@pytest.fixture
def write(kafka: str, breaking: RedisCluster, monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", kafka)
    monkeypatch.setenv("KEYLANE_REDIS_NODES", breaking.addresses)
    monkeypatch.setenv("KEYLANE_RATE_LIMITS", '{"topics": {"*": {"requests_per_minute": 1}}}')
    return asker("produce")


@pytest.fixture
def read(breaking: RedisCluster, monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.setenv("KEYLANE_REDIS_NODES", breaking.addresses)
    return asker("query")


@pytest.fixture
def served(breaking: RedisCluster) -> Iterator[Served]:
    cluster = Cluster(t.settings(breaking.addresses))
    yield Served(breaking.addresses, cluster)
    cluster.close()


def fail_over(servers: RedisCluster, slot: int) -> None:
    """A manual failover: the replica has all that its primary acknowledged."""
    primary, replica = primary_and_replica(servers, slot)
    asked_s = -math.inf

    def has_failed_over() -> bool:
        nonlocal asked_s
        if primary_and_replica(servers, slot)[0] is replica:
            return True
        if time.monotonic() > asked_s + FAILOVER_S:
            asked_s = time.monotonic()
            with contextlib.suppress(redis.ResponseError):  # it has just become the primary
                replica.command("CLUSTER", "FAILOVER")
        return False

    eventually(has_failed_over)
    eventually(lambda: primary.facts().get("role") == "slave")


def lose(servers: RedisCluster, slot: int, write_what: Callable[[], Any]) -> Any:
    """Write what the replica has not got when it becomes the primary; return what the writing returned."""
    primary, replica = primary_and_replica(servers, slot)
    catch_up(primary, replica)  # what was written before is not to be lost
    with hanging(replica):
        # What is in its socket it would read before it takes over.
        primary.command("CLIENT", "KILL", "TYPE", "replica")
        written = write_what()
        primary.kill()
    replica.command("CLUSTER", "FAILOVER", "TAKEOVER")
    repair(servers)
    eventually(lambda: primary_and_replica(servers, slot)[0] is replica)
    return written


def limit_slot(topic: str) -> int:
    return routing.key_slot(key_of(RateLimitSubject(TOPIC, topic, (), RequestLoad(1, 1, 1))))


def test_what_a_limit_has_taken_and_a_key_has_answered_is_known_after_a_failover(
    write: Ask, breaking: RedisCluster, topic: str, kafka: str
):
    path, headers = f"/topics/{topic}/keys/k", {"Idempotency-Key": topic}
    first = write("PUT", path, body=b"v", headers=headers)
    for slot in SLOT_OF_EACH_SHARD:
        fail_over(breaking, slot)
    again = write("PUT", path, body=b"v", headers=headers)
    refused = write("PUT", path, body=b"w")
    assert (first["statusCode"], again["statusCode"], refused["statusCode"]) == (201, 201, 429)
    assert headers_of(again)["Idempotency-Replayed"] == "true"
    assert records_of(kafka, topic, 0) == [(b"k", b"v")]


def test_a_limit_that_the_new_primary_lacks_begins_full_and_no_write_fails(
    write: Ask, breaking: RedisCluster, topic: str, kafka: str
):
    path = f"/topics/{topic}/keys/k"
    first = lose(breaking, limit_slot(topic), lambda: write("PUT", path, body=b"v"))
    statuses = [first["statusCode"], *(write("PUT", path, body=b"w")["statusCode"] for _ in range(2))]
    assert statuses == [201, 201, 429]
    assert records_of(kafka, topic, 0) == [(b"k", b"v"), (b"k", b"w")]


def test_a_read_that_waits_for_a_write_never_answers_without_it_when_the_new_primary_lacks_it(
    read: Ask, breaking: RedisCluster, served: Served
):
    path, slot = f"/topics/{served.topic}/keys/{KEY.decode()}", lane_slot(served)
    first = served.put(KEY, b"1")
    assert read("GET", path, headers={"Keylane-Min-Position": first})["body"] == "1"
    lost = lose(breaking, slot, lambda: served.put(KEY, b"2"))
    headers = {"Keylane-Min-Position": lost, "Prefer": "wait=1"}
    unmet = read("GET", path, headers=headers)
    assert unmet["statusCode"] == 412, unmet
    assert json.loads(unmet["body"])["type"] == "urn:keylane:problem:position-not-reached"
    assert read("GET", path)["body"] == "1", "without the session it is the state as the shard has it"


def test_the_age_after_a_failover_counts_from_what_the_new_primary_knows(
    read: Ask, breaking: RedisCluster, served: Served
):
    path, slot = f"/topics/{served.topic}/keys/{KEY.decode()}", lane_slot(served)
    served.put(KEY, b"1")
    before_ms = served.now_ms
    partition, stripe, _ = lane_of(served.layout, KEY)
    lane = served.lanes[partition * served.layout.stripes + stripe]
    # The heartbeat that says that the lane is complete as of an hour later is lost with the primary.
    lose(breaking, slot, lambda: t.complete(served.writer, lane, 1, before_ms + 3_600_000))
    answer = read("GET", path)
    assert answer["body"] == "1"
    age_ms = int(headers_of(answer)["Keylane-Age-Ms"])
    assert age_ms > 0
    refused = read("GET", path, query={"max_age_ms": "0"})
    assert refused["statusCode"] == 412, refused


def lane_slot(served: Served) -> int:
    return routing.key_slot(b"{%b}" % lane_of(served.layout, KEY)[2])
