"""Rate limits on a real cluster: many processes with one limit, what is taken and given back, rights."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.servers.own import SlotMove, deadline, primary_and_replica
from tests.support import lanes as t
from tests.support.builders import a_topic
from tests.support.fakes import FakeTime

from keylane import routing
from keylane.adapters.redis.cluster import Cluster, Node, RedisSettings
from keylane.adapters.redis.error_replies import NoPermissionError
from keylane.adapters.redis.rate_limits import CIRCUIT_OPEN_S, RedisRateLimiter, key_of
from keylane.adapters.redis.scripts import Run, Script, Scripts
from keylane.errors import StateUnavailable
from keylane.ports import Clock
from keylane.produce.rate_limits import CALLER, TOPIC, Rate, RateLimitSubject, RequestLoad
from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keylane.ports import Deadline
    from keylane.produce.rate_limits import RateLimitState
    from keylane_local.servers.redis_cluster import RedisCluster

PROCESSES = 8
A_MINUTE = 1
"""The slowest rate: however long a test takes on a busy machine, no token comes back meanwhile."""
PER_MINUTE, HOLDS, SECONDS = 30_000, 1_000, 4
WRITER_RIGHTS = (
    "on",
    ">hunter2",
    "resetkeys",
    "~{keylane:limit:*",
    "~{keylane:once:*",
    "-@all",
    *("+cluster|slots", "+evalsha", "+eval", "+time", "+hmget", "+hset", "+pexpire", "+get", "+set", "+del"),
)
"""What the produce function's user needs in Redis, and nothing else."""


@pytest.fixture
def scripts(redis_cluster: str) -> Iterator[Scripts]:
    scripts = Scripts(Cluster(t.settings(redis_cluster)))
    yield scripts
    scripts.close()


@pytest.fixture
def limiter(scripts: Scripts) -> RedisRateLimiter:
    return RedisRateLimiter(scripts, Clock(), 5_000)


def subject(*rates: Rate, cost: int = 1, kind: str = TOPIC, name: str | None = None) -> RateLimitSubject:
    return RateLimitSubject(kind, name or a_topic(), rates, RequestLoad(cost, cost, cost))


def known(limiter: RedisRateLimiter, *subjects: RateLimitSubject) -> list[list[RateLimitState]]:
    found = limiter.take(subjects)
    assert None not in found
    return [each for each in found if each]


def test_eight_processes_with_one_limit_are_let_through_as_one_would_be(redis_cluster: str):
    arguments = [redis_cluster, a_topic(), str(PER_MINUTE), str(HOLDS)]
    command = [sys.executable, "-m", "tests.support.limit_hammer", *arguments]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    try:
        outputs = [process.stdout for process in processes if process.stdout]
        assert [output.readline() for output in outputs] == ["ready\n"] * PROCESSES
        until_s = time.time() + SECONDS
        for process in processes:
            assert process.stdin
            process.stdin.write(f"{until_s}\n")
            process.stdin.flush()
        told = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert sum(each["unknown"] for each in told) == 0
    assert all(each["admitted"] for each in told)
    # When the server counted lies between question and answer.
    first, last = min(each["first"] for each in told), max(each["last"] for each in told)
    least, most = (HOLDS + PER_MINUTE / 60 * seconds for seconds in (last[0] - first[1], last[1] - first[0]))
    admitted = sum(each["admitted"] for each in told)
    assert least * 0.99 <= admitted <= most * 1.01, (least, admitted, most)


def test_a_refused_request_takes_nothing_from_any_limit_of_its_subject(limiter: RedisRateLimiter):
    few, many = Rate("requests", A_MINUTE, 3), Rate("bytes", A_MINUTE, 600)
    one = subject(few, many)
    lefts = [[each.left for each in known(limiter, one)[0]] for _ in range(5)]
    assert lefts == [[2, 599], [1, 598], [0, 597], [0, 597], [0, 597]]
    [[by_requests, by_bytes]] = known(limiter, one)
    assert 40 < by_requests.wait_s <= 60
    assert (by_bytes.wait_s, 160 < by_requests.full_in_s <= 180) == (0, True)


def test_what_is_given_back_can_be_taken_again(limiter: RedisRateLimiter):
    one = subject(Rate("records", 60, 5), cost=5)
    assert known(limiter, one)[0][0].left == 0
    assert known(limiter, one)[0][0].wait_s > 0
    limiter.give_back([one])
    assert known(limiter, one)[0][0].wait_s == 0
    limiter.give_back([one, one])
    assert known(limiter, one._replace(load=RequestLoad(1, 1, 1)))[0][0].left == 4, "never more than it holds"


def test_a_request_larger_than_the_bucket_waits_until_it_is_full_and_is_paid_for_afterwards(
    limiter: RedisRateLimiter,
):
    large = subject(Rate("bytes", A_MINUTE, 10), cost=100)
    assert known(limiter, large)[0][0].wait_s == 0
    [[standing]] = known(limiter, large._replace(load=RequestLoad(1, 1, 1)))
    assert 90 * 60 < standing.wait_s <= 91 * 60
    [[standing]] = known(limiter, large)
    assert 99 * 60 < standing.wait_s <= 100 * 60


def test_topics_and_callers_of_all_shards_are_counted_in_one_go(limiter: RedisRateLimiter):
    rate = Rate("requests", A_MINUTE, 2)
    subjects = [subject(rate) for _ in range(30)]
    subjects += [subject(rate, kind=CALLER, name=name) for name in ("iam:arn:{}:x", "ü }{", "::1", "")]
    assert len({routing.key_slot(key_of(each)) * 3 // routing.SLOTS for each in subjects}) == 3
    assert all(standing.left == 1 for [standing] in known(limiter, *subjects))
    assert all(standing.left == 0 for [standing] in known(limiter, *subjects))
    assert all(standing.wait_s > 0 for [standing] in known(limiter, *subjects))


def test_an_entry_is_gone_when_its_buckets_are_full(limiter: RedisRateLimiter, redis_cluster: str):
    slow, quick = subject(Rate("requests", A_MINUTE, 60)), subject(Rate("requests", 6_000_000, 60))
    known(limiter, slow, quick)
    with t.client(redis_cluster) as client:
        assert 0 < client.pttl(key_of(slow)) <= 60_001
        assert client.pttl(key_of(quick)) <= 2


def test_the_users_rights_are_enough_and_reach_no_lane(cluster: RedisCluster):
    for node in cluster.nodes:
        node.command("ACL", "SETUSER", "keylane-writes", "reset", *WRITER_RIGHTS)
    nodes = tuple(Node(HOST, node.port) for node in cluster.nodes)
    scripts = Scripts(Cluster(RedisSettings(nodes, "keylane-writes", "hunter2")))
    try:
        assert (
            known(RedisRateLimiter(scripts, Clock(), 5_000), subject(Rate("requests", 6, 3)))[0][0].left == 2
        )
        run = Run(Script.named("settle"), b"{keylane}:layout:flights", (b"x", b"", b"1"))
        [reply] = scripts.run([run], deadline(5_000))
        assert isinstance(reply, StateUnavailable)
        assert isinstance(reply.__cause__, NoPermissionError)
    finally:
        scripts.close()
        for node in cluster.nodes:
            node.command("ACL", "DELUSER", "keylane-writes")
    scripts = Scripts(Cluster(RedisSettings(nodes, "keylane-writes", "hunter2")))
    [reply] = scripts.run([run], deadline(2_000))
    scripts.close()
    assert str(reply) == "Redis refused our credentials"


def test_scripts_are_sent_again_to_nodes_that_forgot_them(limiter: RedisRateLimiter, cluster: RedisCluster):
    one = subject(Rate("requests", A_MINUTE, 3))
    assert known(limiter, one)[0][0].left == 2
    for node in cluster.nodes:
        node.command("SCRIPT", "FLUSH")
    assert known(limiter, one)[0][0].left == 1


def test_connections_that_the_server_closed_cost_nothing(limiter: RedisRateLimiter, cluster: RedisCluster):
    one = subject(Rate("requests", A_MINUTE, 3))
    assert known(limiter, one)[0][0].left == 2
    for node in cluster.nodes:
        node.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert known(limiter, one)[0][0].left == 1


def test_a_limit_is_followed_while_its_slot_goes_to_another_node_and_back(
    limiter: RedisRateLimiter, cluster: RedisCluster
):
    one = subject(Rate("requests", A_MINUTE, 10))
    move = SlotMove(cluster, routing.key_slot(key_of(one)))

    def left() -> int:
        return known(limiter, one)[0][0].left

    assert left() == 9
    for lefts in ((8, 7, 6), (5, 4, 3)):
        move.begin()
        try:
            asked = [left()]  # the key is still where it was
            move.move(key_of(one))
            asked.append(left())  # and now on the other side of a slot that is on its way
        finally:
            move.finish()
        assert (*asked, left()) == lefts
        move.turn_round()


def test_a_node_that_does_not_answer_is_left_alone_for_a_second_and_costs_the_others_nothing(
    redis_cluster: str, cluster: RedisCluster
):
    time = FakeTime()
    scripts = Scripts(Cluster(t.settings(redis_cluster)))
    limiter = RedisRateLimiter(scripts, time.clock, 50)
    subjects = [subject(Rate("requests", A_MINUTE, 1_000)) for _ in range(20)]
    known(limiter, *subjects)
    primary, _ = primary_and_replica(cluster, routing.key_slot(key_of(subjects[0])))
    lost = [scripts.node_of(key_of(each)) == Node(HOST, primary.port) for each in subjects]
    runs: list[int] = []
    run = scripts.run

    def noted(asked: Sequence[Run], until: Deadline) -> list[object]:
        runs.append(len(asked))
        gone = [scripts.node_of(each.key) == Node(HOST, primary.port) for each in asked]
        replies = run(
            [each for each, is_gone in zip(asked, gone, strict=True) if not is_gone], deadline(5_000)
        )
        rest = iter(replies)
        return [
            StateUnavailable("Redis did not answer in time") if is_gone else next(rest) for is_gone in gone
        ]

    scripts.run = noted  # type: ignore[method-assign]
    try:
        for _ in range(3):
            assert [standings is None for standings in limiter.take(subjects)] == lost
        time.move(CIRCUIT_OPEN_S)
        limiter.take(subjects)
    finally:
        scripts.close()
    assert runs == [20, 20 - sum(lost), 20 - sum(lost), 20]
