"""200 reads a second while a node of a real cluster is killed, hangs, or comes back."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest
from tests.servers.own import (
    CLOCK,
    PATIENCE_S,
    catch_up,
    deadline,
    eventually,
    fill,
    hanging,
    primary_and_replica,
    repair,
)
from tests.support.builders import a_topic
from tests.support.steady import SteadyReads
from tests.support.stopwatch import Stopwatch

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.idempotency import FINGERPRINT_BYTES, RedisIdempotencyStore
from keylane.adapters.redis.rate_limits import RedisRateLimiter, key_of
from keylane.adapters.redis.scripts import Scripts
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import redis_settings
from keylane.errors import RequestInProgress, StateUnavailable
from keylane.produce.rate_limits import TOPIC, Rate, RateLimitSubject, RequestLoad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keylane_local.servers.redis_cluster import RedisCluster
    from keylane_local.servers.redis_node import RedisNode

SLOTS = (0, 3_000, 6_000, 9_000, 12_000, 15_000)
VICTIM = SLOTS[0]
READERS = 4
LONGEST_S = 1.5
"""Less than the third of a deadline, which one attempt may take where nothing else bounds it."""


@pytest.fixture
def reads(breaking: RedisCluster) -> Iterator[SteadyReads]:
    """Reads of keys of all shards, as several functions at once make them; each key holds its own name."""
    keys = {slot: b"{%b}%b" % (routing.hash_tag(slot), a_topic().encode()) for slot in SLOTS}
    fill(breaking.addresses, {key: key for key in keys.values()})
    states = [
        RedisState(Cluster(redis_settings({"KEYLANE_REDIS_NODES": breaking.addresses}))) for _ in range(4)
    ]

    def reader(state: RedisState) -> Callable[[int], None]:
        def read(number: int) -> None:
            slot = SLOTS[number // READERS % len(SLOTS)]
            assert state.read(slot, [keys[slot]], deadline()) == [keys[slot]]

        return read

    with SteadyReads([reader(state) for state in states]) as steady:
        eventually(lambda: len(steady.done) > 100)
        yield steady
    for state in states:
        state.close()


def primary_again(node: RedisNode) -> bool:
    return node.running and node.facts()["role"] == "master"


@pytest.mark.parametrize("trouble", ["killed", "hanging"])
def test_primary_in_trouble_costs_no_read_until_its_replica_is_promoted_nor_when_it_comes_back(
    breaking: RedisCluster, reads: SteadyReads, trouble: str
):
    primary, replica = primary_and_replica(breaking, VICTIM)
    with hanging(primary) if trouble == "hanging" else nullcontext(primary.kill()):
        eventually(lambda: primary_again(replica))
        reads.wait_for_more()
    repair(breaking)
    reads.wait_for_more()
    assert reads.failures == []
    assert reads.longest_s < LONGEST_S


def test_new_function_finds_the_state_while_a_primary_hangs(breaking: RedisCluster):
    key = b"{%b}%b" % (routing.hash_tag(VICTIM), a_topic().encode())
    fill(breaking.addresses, {key: key})
    primary, _ = primary_and_replica(breaking, VICTIM)
    addresses = breaking.addresses.split(",")
    with hanging(primary):
        for turn in range(len(addresses)):  # whichever node is asked first
            nodes = ",".join(addresses[turn:] + addresses[:turn])
            state = RedisState(Cluster(redis_settings({"KEYLANE_REDIS_NODES": nodes})))
            with Stopwatch() as watch:
                assert state.read(VICTIM, [key], deadline(2_500)) == [key]
            assert watch.seconds < 0.6 * 2.5
            state.close()


def test_killed_replica_costs_no_read(breaking: RedisCluster, reads: SteadyReads):
    _, replica = primary_and_replica(breaking, VICTIM)
    replica.kill()
    reads.wait_for_more(4)
    assert reads.failures == []
    assert reads.longest_s < LONGEST_S


@pytest.mark.long
def test_primary_without_a_replica_costs_its_own_reads_alone_and_they_come_back_with_it(
    breaking: RedisCluster, reads: SteadyReads
):
    primary, replica = primary_and_replica(breaking, VICTIM)
    replica.kill()
    reads.wait_for_more(0.5)
    assert reads.failures == []
    primary.kill()
    began = len(reads.done)
    eventually(lambda: len(reads.failures) > READERS and len(reads.done) > began)
    repair(breaking)
    reads.wait_for_more()
    failed = len(reads.failures)
    reads.wait_for_more()
    assert len(reads.failures) == failed


def test_limits_hold_on_when_their_primary_is_killed_and_its_replica_counts(breaking: RedisCluster):
    primary, replica = primary_and_replica(breaking, VICTIM)
    rate = Rate("requests", 6_000, 500)
    cluster = Cluster(redis_settings({"KEYLANE_REDIS_NODES": breaking.addresses}))
    cluster.refresh(deadline())
    limiter = RedisRateLimiter(Scripts(cluster), CLOCK, 50)
    subjects = (RateLimitSubject(TOPIC, a_topic(), (rate,), RequestLoad(1, 1, 1)) for _ in range(1_000))
    ours = next(
        each for each in subjects if cluster.primary(routing.key_slot(key_of(each))).port == primary.port
    )
    counts = Counter[str]()

    def hammer(until: str) -> None:
        before = counts[until]
        end_s = time.monotonic() + PATIENCE_S
        while counts[until] == before:
            assert time.monotonic() < end_s, f"never {until}"
            [standings] = limiter.take([ours])
            counts["unknown" if standings is None else "refused" if standings[0].wait_s else "admitted"] += 1

    begin_s = time.time()
    hammer("refused")
    primary.kill()
    hammer("unknown")
    hammer("admitted")
    hammer("refused")
    allowed = rate.holds + rate.per_minute / 60 * (time.time() - begin_s)
    cluster.close()
    assert replica.facts()["role"] == "master"
    # A load that had not reached the replica when its primary was killed may be admitted twice.
    assert counts["admitted"] < allowed * 1.05
    # A dead node is tried once a second: meanwhile nobody waits for it.
    assert counts["unknown"] > 1_000


def test_no_second_write_is_let_through_while_the_primary_of_a_claim_fails_over(breaking: RedisCluster):
    """Between claim and answer: the claim is on the replica, and the answer is saved where that serves."""
    primary, replica = primary_and_replica(breaking, VICTIM)
    cluster = Cluster(redis_settings({"KEYLANE_REDIS_NODES": breaking.addresses}))
    cluster.refresh(deadline())
    store = RedisIdempotencyStore(Scripts(cluster), CLOCK, timeout_ms=1_000, expiry_s=600, in_progress_s=300)
    names = (f"{number:064}" for number in range(1_000))
    name = next(
        each
        for each in names
        if cluster.primary(routing.key_slot(b"{keylane:once:%b}" % each.encode())).port == primary.port
    )
    print_of_request = b"f" * FINGERPRINT_BYTES
    token = store.claim(name, print_of_request).token
    catch_up(primary, replica)
    primary.kill()
    refused = Counter[type]()

    def is_refused_by_the_replica() -> bool:
        with pytest.raises((RequestInProgress, StateUnavailable)) as error:
            store.claim(name, print_of_request)
        refused[error.type] += 1
        return error.type is RequestInProgress

    eventually(is_refused_by_the_replica)
    store.settle(name, token, b"answer")
    assert store.claim(name, print_of_request).response == b"answer"
    cluster.close()
    assert replica.facts()["role"] == "master"
    assert refused[StateUnavailable] > 0
