"""What a lane claims of its own age, where the log or a clock would make the claim false."""

from __future__ import annotations

import itertools
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.servers.own import create_topic, eventually, hanging, primary_and_replica
from tests.support import clocked_job, jobs
from tests.support import lanes as t
from tests.support.jobs import State

from keylane.adapters.redis.cluster import Cluster
from keylane.errors import TopicChanged
from keylane.model.records import Layout
from keylane_spark.config.topics import Config
from keylane_spark.lanes import claim_clock
from keylane_spark.lanes.claim_clock import ClaimClock
from keylane_spark.lanes.function_library import WriteOptions
from keylane_spark.lanes.lane import LaneTarget
from keylane_spark.stream.freshness import ObservedEnds
from keylane_spark.stream.heartbeat import Heartbeat
from keylane_spark.stream.leaders import AnsweredEnds
from keylane_spark.stream.openings import Opening, WriterSpec
from keylane_spark.stream.reading_query import ReadingQuery

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUMBERS = itertools.count()
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def topics(kafka) -> list[str]:
    """Two topics with one partition each."""
    names = [f"age-{next(NUMBERS)}" for _ in range(2)]
    for name in names:
        create_topic(kafka, name, 1)
    return names


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The job's folder. Its file `clock` says by how much the job's clock is ahead."""
    made = tmp_path_factory.mktemp("age")
    clocked_job.move(made / "clock", 0)
    return made


@pytest.fixture(scope="module")
def shared_job(kafka, redis_cluster, topics, folder):
    """Returns the job that the tests of this module share. One of them ends it: the next starts another."""
    config = "[job]\nheartbeat_ms = 100\n" + "".join(f"[topics.{name}]\n" for name in topics)
    clocked = {"module": "tests.support.clocked_job", "TEST_CLOCK": str(folder / "clock")}
    begun: list[jobs.RunningJob] = []

    def current() -> jobs.RunningJob:
        if not begun or begun[-1].process.poll() is not None:
            begun.append(jobs.start(kafka, redis_cluster, folder, config, **clocked))
            begun[-1].wait_for("keylane: ready")
        return begun[-1]

    yield current
    for each in begun:
        each.end()


@pytest.fixture
def job(shared_job) -> jobs.RunningJob:
    return shared_job()


@pytest.fixture
def clock(folder):
    """The file with the job's clock, which is right again after each test."""
    yield folder / "clock"
    clocked_job.move(folder / "clock", 0)


@pytest.fixture
def states(job, redis_cluster, topics):
    found = [State(redis_cluster, topic) for topic in topics]
    yield found
    for state in found:
        state.close()


def claimed_ms(state: State) -> int:
    return state.watermarks()[0, 0].complete_as_of_ms


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def is_fresh(state: State) -> bool:
    return now_ms() - claimed_ms(state) < 1_000


def produce(producer: Producer, topic: str, value: bytes) -> int:
    """Write a record; the time at which Kafka had acknowledged it."""
    producer.produce(topic, key=b"k", value=value)
    assert producer.flush(60) == 0
    return now_ms()


def test_an_acknowledged_record_behind_an_open_transaction_is_not_claimed_before_it_is_read(
    kafka, topics, states
):
    held_up, idle = states
    plain = Producer({"bootstrap.servers": kafka})
    open_ = Producer({"bootstrap.servers": kafka, "transactional.id": topics[0]})
    open_.init_transactions(30)
    open_.begin_transaction()
    produce(open_, topics[0], b"undecided")
    eventually(lambda: is_fresh(idle))
    acknowledged_ms = produce(plain, topics[0], b"acknowledged")
    eventually(lambda: claimed_ms(idle) > acknowledged_ms + 500)
    # The record is acknowledged, and no reader of committed records may see it yet.
    assert held_up.watermarks()[0, 0].next_offset == 0
    assert claimed_ms(held_up) <= acknowledged_ms
    open_.abort_transaction(30)
    # Three offsets: two records, and behind them the transaction's marker, which is no record.
    eventually(lambda: held_up.watermarks()[0, 0].next_offset == 3)
    eventually(lambda: claimed_ms(held_up) > acknowledged_ms and is_fresh(held_up))
    reader = held_up.reader()
    assert reader.value(b"k") == b"acknowledged"
    reader.close()


def test_a_driver_s_clock_that_is_behind_makes_ages_larger_and_never_takes_a_claim_back(clock, states):
    eventually(lambda: is_fresh(states[0]))
    before_ms = claimed_ms(states[0])
    clocked_job.move(clock, -HOUR_MS)
    eventually(lambda: now_ms() - claimed_ms(states[0]) > 1_500)
    assert claimed_ms(states[0]) >= before_ms
    clocked_job.move(clock, 0)
    eventually(lambda: is_fresh(states[0]))


class TopicRecreated(ReadingQuery):
    """A query that has read its topic to offset 5, and looks at it; and leaders by whom the topic ends below.

    `ends`: what the leaders answer, one after the other. `has_grown`: whether the topic has a partition more.
    """

    def __init__(self, spec: WriterSpec, topic: str, ends: list[int], folder: Path) -> None:
        super().__init__(
            "age", f"the query of {topic}", folder, Opening(spec, {(topic, 0): 5}, [], frozenset())
        )
        self.topic, self.ends, self.checks, self.has_grown = topic, ends, 0, False

    def answered_ends(self) -> AnsweredEnds:
        return AnsweredEnds({(self.topic, 0): self.ends.pop(0)}, {})

    def check_topics(self) -> None:
        self.checks += 1
        if self.has_grown:
            raise TopicChanged("it has 2 partitions now, 1 before")

    def write(self, *_: Any) -> None:
        pytest.fail("nothing is read here")

    def say(self, text: str) -> None:
        pytest.fail(text)


@contextmanager
def beating(redis_cluster, monkeypatch, folder, ends: list[int]) -> Iterator[tuple[Any, Any]]:
    """A heartbeat and the topic that it sees; `claim` beats and returns the time that the lane has then."""
    monkeypatch.setattr(claim_clock, "_REPLIES_MS", 20_000)
    layout = Layout(f"age-{next(NUMBERS)}", 1)
    lane = LaneTarget.of(layout, 0, 0)
    t.writer(redis_cluster, 1).open([(lane, 5)])
    context: Any = SimpleNamespace(
        clock=t.CLOCK,
        claim_clock=ClaimClock(t.CLOCK),
        config=Config.model_validate({"topics": {layout.topic: {}}}),
    )
    spec = WriterSpec(t.settings(redis_cluster), {layout.topic: layout}, 1, WriteOptions())
    query: Any = TopicRecreated(spec, layout.topic, ends, folder)
    heartbeat = Heartbeat(context, spec, ObservedEnds(), query, query)

    def claim() -> int:
        with suppress(TopicChanged):
            heartbeat._beat()
        found: int = t.held(redis_cluster, lane, [])[1].complete_as_of_ms
        return found

    yield query, claim
    heartbeat.stop()


def test_a_log_that_ends_below_the_state_proves_nothing(redis_cluster, monkeypatch, tmp_path):
    with beating(redis_cluster, monkeypatch, tmp_path, [5, 4, 5]) as (query, claim):
        claims = [claim() for _ in range(3)]
    assert 0 < claims[0] == claims[1] < claims[2]
    # Once in each beat, and after the end that had fallen.
    assert query.checks == 4


def test_a_lane_is_complete_as_of_a_time_before_the_broker_was_asked(redis_cluster, monkeypatch, tmp_path):
    """What is acknowledged while the broker's answer is under way is not in it."""
    with beating(redis_cluster, monkeypatch, tmp_path, [5]) as (query, claim):
        answer, asked_ms = query.answered_ends, []

        def answer_after_a_while() -> AnsweredEnds:
            asked_ms.append(now_ms())
            eventually(lambda: now_ms() > asked_ms[0] + 50)
            found: AnsweredEnds = answer()
            return found

        monkeypatch.setattr(query, "answered_ends", answer_after_a_while)
        assert 0 < claim() <= asked_ms[0]


def test_a_lane_is_not_complete_as_of_a_time_when_its_topic_had_grown(redis_cluster, monkeypatch, tmp_path):
    """A read that sees a younger lane takes a partition without watermarks for one that does not exist."""
    with beating(redis_cluster, monkeypatch, tmp_path, [5, 5]) as (query, claim):
        before_ms = claim()
        query.has_grown = True
        assert claim() == before_ms > 0


def test_the_claim_clock_is_no_later_than_either_clock_and_one_hung_primary_stops_it_not(
    cluster, redis_cluster, monkeypatch
):
    """A clock that is behind by a minute, then ahead; meanwhile a primary hangs."""
    layout = Layout("any", 9)
    slots = {LaneTarget.of(layout, partition, 0).slot for partition in range(9)}
    wrong_ms = -60_000
    claims = ClaimClock(replace(t.CLOCK, now_ms=lambda: now_ms() + wrong_ms))
    redis = Cluster(t.settings(redis_cluster))
    assert claims.now_ms() == 0
    with monkeypatch.context() as patch:
        patch.setattr(claim_clock, "_REPLIES_MS", 20_000)
        claims.compare(redis, slots)
    assert 59_000 < now_ms() - claims.now_ms() < 61_000
    assert -61_000 < claims.largest_skew()[1] < -59_000
    wrong_ms = 60_000
    hung, _ = primary_and_replica(cluster, min(slots))
    with hanging(hung):
        before_ms = now_ms()
        claims.compare(redis, slots)
        assert now_ms() - before_ms < 5_000
        assert now_ms() - 1_000 < claims.now_ms() <= now_ms()
    redis.close()


def test_the_claim_clock_goes_on_while_no_primary_can_be_asked(redis_cluster):
    """All lanes are parked then. It said 1970, and the metric `Age` was minus 56 years."""
    claims = ClaimClock(t.CLOCK)
    with closing(Cluster(t.settings(redis_cluster))) as redis:
        claims.compare(redis, [1])
        before_ms = claims.now_ms()
        claims.compare(redis, [])
    assert 0 < before_ms <= claims.now_ms() <= now_ms()


def test_clocks_that_differ_are_reported(job, clock, states):
    eventually(lambda: is_fresh(states[0]))
    clocked_job.move(clock, HOUR_MS)
    job.wait_for("ms ahead of that of Redis node")


def test_a_driver_s_clock_that_is_ahead_for_a_while_leaves_no_claim_of_the_future(job, clock, states):
    for ahead_ms in (HOUR_MS, 0, HOUR_MS):
        clocked_job.move(clock, ahead_ms)
        moved_ms = now_ms()
        for state in states:
            eventually(lambda state=state, after_ms=moved_ms: claimed_ms(state) > after_ms + 500)
            before_ms = claimed_ms(state)
            assert before_ms <= now_ms()
    job.end()
    last = [claimed_ms(state) for state in states]
    assert max(last) <= now_ms()
