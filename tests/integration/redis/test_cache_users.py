"""The users of infra/cache.yaml and docs/operate/security.md: rights enough for their work, and no more."""

from __future__ import annotations

import itertools
import json
import os
import re
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import redis
from tests.servers.own import SlotMove, deadline, fill
from tests.support import lanes as t
from tests.support.builders import a_layout, a_topic, an_event, layout_entry, load_handler
from tests.support.cloudformation import ROOT, of_type, template

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.idempotency import RedisIdempotencyStore
from keylane.adapters.redis.rate_limits import RedisRateLimiter, key_of
from keylane.adapters.redis.scripts import Scripts
from keylane.adapters.redis.state import RedisState
from keylane.model.records import Options
from keylane.produce.rate_limits import TOPIC, Rate, RateLimitSubject, RequestLoad
from keylane.query.layouts import Layouts
from keylane.state import codec, redis_keys
from keylane_spark.lanes.lane import LaneTarget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane_local.servers.redis_cluster import RedisCluster

PASSWORD = "throw-away"
PARTIAL = {"partial": "true"}
"""This lane has never been marked as complete."""
SECURITY_PAGE = (ROOT / "docs" / "operate" / "security.md").read_text(encoding="utf-8")
DOCUMENTED = dict(re.findall(r"^ACL SETUSER (\S+) on >PASSWORD (.+)$", SECURITY_PAGE, re.MULTILINE))
USERS = {
    each["Properties"]["UserName"]: each["Properties"]["AccessString"]
    for each in of_type(template("infra/cache.yaml"), "AWS::ElastiCache::User").values()
} | {name: f"on {rights}" for name, rights in DOCUMENTED.items()}
READERS = ("reader", "server", "keylane-functions")
COUNTERS = ("counter", "server", "keylane-functions", "keylane-produce")
WRITERS = ("writer", "keylane-job")
FORBIDDEN_TO_READERS = (
    ("SET", "{a}key", "1"),
    ("DEL", "{a}key"),
    ("HSET", "{a}key", "field", "1"),
    ("EVAL", "return 1", "1", "{a}key"),
    ("FUNCTION", "FLUSH"),
    ("FLUSHALL",),
    ("KEYS", "*"),
    ("CONFIG", "GET", "*"),
)
FORBIDDEN_TO_COUNTERS = (
    ("GET", "{a}key"),
    ("SET", "{keylane}:layout:orders", "{}"),
    ("FUNCTION", "FLUSH"),
)
FORBIDDEN_TO_WRITERS = (
    ("CONFIG", "SET", "maxmemory", "1"),
    ("FLUSHALL",),
    ("ACL", "LIST"),
    ("CLUSTER", "FORGET", "x" * 40),
)


@pytest.fixture(scope="module")
def users(cluster: RedisCluster) -> Iterator[str]:
    """The nodes of a cluster that knows the template's users."""
    for node in cluster.nodes:
        with redis.Redis(port=node.port) as client:
            for name, rights in USERS.items():
                client.execute_command("ACL", "SETUSER", name, "reset", f">{PASSWORD}", *rights.split())
    yield cluster.addresses
    for node in cluster.nodes:
        with redis.Redis(port=node.port) as client:
            client.execute_command("ACL", "DELUSER", *USERS)


def cluster_as(name: str, nodes: str) -> Cluster:
    return Cluster(replace(t.settings(nodes), username=name, password=PASSWORD))


@contextmanager
def migrating(cluster: RedisCluster, key: bytes) -> Iterator[SlotMove]:
    """The slot of a key on its way to another shard; its keys are back afterwards."""
    move = SlotMove(cluster, routing.key_slot(key))
    move.begin()
    try:
        yield move
    finally:
        move.undo()


def take(nodes: str, name: str, topic: str) -> object:
    """What a user's limiter answers about a request, None if it could not count."""
    with closing(Scripts(cluster_as(name, nodes))) as scripts:
        subject = RateLimitSubject(TOPIC, topic, (Rate("requests", 60, 60),), RequestLoad(1, 1, 1))
        return RedisRateLimiter(scripts, t.CLOCK, 5_000).take([subject])[0]


def kept_response(nodes: str, name: str, key: str) -> bytes | None:
    """The response that a user's store has kept for a key."""
    with closing(Scripts(cluster_as(name, nodes))) as scripts:
        store = RedisIdempotencyStore(scripts, t.CLOCK, timeout_ms=5_000, expiry_s=60, in_progress_s=30)
        fingerprint = os.urandom(32)
        store.settle(key, store.claim(key, fingerprint).token, b"saved")
        return store.claim(key, fingerprint).response


def test_the_page_names_a_user_for_the_functions_and_one_for_the_job():
    assert DOCUMENTED.keys() == {"keylane-functions", "keylane-job", "keylane-produce"}


@pytest.mark.parametrize(
    ("writer_name", "reader_name"),
    [("writer", "reader"), ("writer", "server"), ("keylane-job", "keylane-functions")],
)
def test_the_writer_writes_lanes_and_the_reader_reads_them(users, monkeypatch, writer_name, reader_name):
    options = Options(index=True, history_count=5, fields=(("n", "number"),))
    layout = a_layout(a_topic(), 1, options=options)
    lane = LaneTarget.of(layout, 0, 0)
    events = [t.Event(0, b"ann", b'{"n": 1}'), t.Event(1, b"bob", b'{"n": 2}')]
    cluster = cluster_as(writer_name, users)
    writer = t.writer_over(cluster, 1)
    writer.open([(lane, 0)])
    t.write(writer, lane, 0, events, 2, options=layout.options)
    cluster.close()
    fill(users, layout_entry(layout))
    monkeypatch.setenv("KEYLANE_REDIS_NODES", users)
    monkeypatch.setenv("KEYLANE_REDIS_USERNAME", reader_name)
    monkeypatch.setenv("KEYLANE_REDIS_PASSWORD", PASSWORD)
    function = load_handler("query")
    try:
        for path in ("/keys/ann", "/keys", "/keys/ann/history"):
            event = an_event("GET", f"/topics/{layout.topic}{path}", query=PARTIAL)
            answer = function.lambda_handler(event, None)
            assert answer["statusCode"] == 200, answer
        event = an_event("GET", f"/topics/{layout.topic}/find", query=PARTIAL | {"n": "2"})
        answer = function.lambda_handler(event, None)
        assert [each["key"] for each in json.loads(answer["body"])["records"]] == ["bob"], answer
        body = json.dumps({"keys": ["ann", "bob"]}).encode()
        answer = function.lambda_handler(
            an_event("POST", f"/topics/{layout.topic}/keys:read", query=PARTIAL, body=body), None
        )
        assert json.loads(answer["body"])["records"][1]["value"] == {"n": 2}
    finally:
        function.application.parts().store.state.close()


@pytest.mark.parametrize("name", READERS)
def test_a_reader_may_ask_whether_a_shard_has_keys_of_a_slot(users, name):
    """Without that, a replica of a migrating slot would be believed about keys that have left."""
    port = int(users.split(",")[0].rpartition(":")[2])
    with redis.Redis(port=port, username=name, password=PASSWORD) as client:
        assert client.execute_command("CLUSTER COUNTKEYSINSLOT", 1) >= 0


@pytest.mark.parametrize("name", READERS)
def test_a_reader_follows_a_key_that_has_left_its_slot(cluster, users, name):
    key = f"{{{a_topic()}}}".encode()
    fill(users, {key: b"1"})
    state = RedisState(cluster_as(name, users))
    with migrating(cluster, key) as move:
        move.move(key)
        assert state.read(move.slot, [key], deadline()) == [b"1"]
    state.close()


@pytest.mark.parametrize("name", COUNTERS)
def test_the_counter_reads_what_readers_expect_of_a_topic(users, name):
    """Also where the record of its shard is lost: the copies are in other slots."""
    layout = a_layout(a_topic(), options=Options(value_format="json"))
    for tag in (redis_keys.RECORD_TAG, *redis_keys.COPY_TAGS):
        fill(users, {redis_keys.layout_key(layout.topic, tag): codec.encode_layout(layout)})
    cluster = cluster_as(name, users)
    assert Layouts(RedisState(cluster), t.CLOCK, 30).get(layout.topic, deadline()) == layout
    for tag in redis_keys.COPY_TAGS:
        key = redis_keys.layout_key(layout.topic, tag)
        assert RedisState(cluster).read(routing.key_slot(key), [key], deadline()) != [None]


@pytest.mark.parametrize("name", COUNTERS)
def test_the_counter_counts_limits_while_their_slot_migrates(cluster, users, name):
    """A counter that is new, or has left the shard, is at the other one, which answers after ASKING alone."""
    topic = a_topic()
    with migrating(cluster, key_of(RateLimitSubject(TOPIC, topic, (), RequestLoad(0, 0, 0)))):
        assert take(users, name, topic) is not None


@pytest.mark.parametrize("name", COUNTERS)
def test_the_counter_keeps_responses_while_their_slot_migrates(cluster, users, name):
    key = os.urandom(32).hex()
    with migrating(cluster, f"{{keylane:once:{key}}}".encode()):
        assert kept_response(users, name, key) == b"saved"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        *itertools.product(READERS, FORBIDDEN_TO_READERS),
        *itertools.product(("counter", "keylane-produce"), FORBIDDEN_TO_COUNTERS),
        *itertools.product(WRITERS, FORBIDDEN_TO_WRITERS),
    ],
)
def test_user_may_not(users, name, command):
    port = int(users.split(",")[0].rpartition(":")[2])
    refused = pytest.raises(redis.exceptions.NoPermissionError)
    with redis.Redis(port=port, username=name, password=PASSWORD) as client, refused:
        client.execute_command(*command)


def test_the_writer_may_load_the_library_of_the_lanes(users):
    port = int(users.split(",")[0].rpartition(":")[2])
    code = "#!lua name=throwaway\nredis.register_function('throwaway', function() return 1 end)"
    with redis.Redis(port=port, username="writer", password=PASSWORD) as client:
        assert client.execute_command("FUNCTION", "LOAD", "REPLACE", code) == b"throwaway"
        assert client.execute_command("FUNCTION", "LIST", "LIBRARYNAME", "throwaway")
        assert client.execute_command("FUNCTION", "DELETE", "throwaway")
