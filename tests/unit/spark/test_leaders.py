"""A query ends when a partition has another leader, or follows it; sessions with leaders; what is said."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import eventually
from tests.support.fakes import FakeTime

from keylane.adapters.kafka.admin import KafkaAdmin
from keylane.adapters.kafka.options import Connection
from keylane.errors import LogUnavailable, StateUnavailable, TopicChanged
from keylane_spark.log.kafka_admin import JobKafka, LogEnd
from keylane_spark.log.leader_session import LeaderAnswers
from keylane_spark.log.log_watch import LogWatch
from keylane_spark.stream.away_leaders import AwayLeaders, numbered
from keylane_spark.stream.leaders import Follow, Leaders, Observe

if TYPE_CHECKING:
    from collections.abc import Collection

SOURCE = ("orders", 0)


@dataclass
class FakeBroker:
    """Leaders that answer in turn; the last answer comes again and again. One without an answer is away."""

    answers: list[LogEnd | LogUnavailable]
    doubted: int = 0
    asked: int = 0
    levels: set[bool] = field(default_factory=set)

    def ends(self, *, committed: bool = False) -> LeaderAnswers:
        self.asked += 1
        self.levels.add(committed)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, LogUnavailable):
            return LeaderAnswers({}, {SOURCE: str(answer)})
        return LeaderAnswers({SOURCE: answer})

    def doubt(self) -> None:
        self.doubted += 1


def leaders_of(
    broker: FakeBroker, known: dict[tuple[str, int], int] | None = None, follow: Follow | None = None
) -> Leaders:
    context: Any = SimpleNamespace(watch=lambda _: broker, clock=FakeTime().clock)
    return Leaders(context, {"orders": 1}, {SOURCE: 5} if known is None else known, follow)


def test_a_new_leader_ends_the_query():
    broker = FakeBroker([LogEnd(10, 5), LogEnd(10, 6)])
    leaders = leaders_of(broker)
    assert leaders.end_offsets() == {SOURCE: 10}
    assert broker.levels == {False}
    with pytest.raises(TopicChanged, match="new leader, of epoch 6 after 5"):
        leaders.end_offsets()


def test_a_new_leader_is_followed_before_its_end_counts():
    broker = FakeBroker([LogEnd(10, 5), LogEnd(12, 6)])
    followed: list[set[tuple[str, int]]] = []

    def follow(partitions: Collection[tuple[str, int]], observe: Observe) -> dict[tuple[str, int], int]:
        followed.append(set(partitions))
        return {SOURCE: observe()[SOURCE].leader_epoch or 0}

    leaders = leaders_of(broker, follow=follow)
    assert leaders.end_offsets() == {SOURCE: 10}
    with pytest.raises(LogUnavailable, match="not compared yet"):
        leaders.end_offsets()
    leaders.settle([SOURCE])
    broker.answers = [LogEnd(13, 7)]
    with pytest.raises(LogUnavailable, match="not compared yet"):
        leaders.end_offsets()
    leaders.settle([SOURCE])
    assert [leaders.end_offsets() for _ in range(2)] == [{SOURCE: 13}, {SOURCE: 13}]
    assert followed == [{SOURCE}, {SOURCE}]
    assert leaders.epochs == {SOURCE: 7}


def test_the_others_go_on_while_a_new_leader_is_compared():
    other, may_end = ("orders", 1), threading.Event()
    answers, closed = LeaderAnswers({SOURCE: LogEnd(10, 6), other: LogEnd(3, 5)}), threading.Event()
    context: Any = SimpleNamespace(
        watch=lambda _: SimpleNamespace(ends=lambda **_: answers, close=closed.set), clock=FakeTime().clock
    )

    def follow(partitions: Collection[tuple[str, int]], _: Observe) -> dict[tuple[str, int], int]:
        may_end.wait(30)
        return dict.fromkeys(partitions, 6)

    leaders = Leaders(context, {"orders": 2}, {SOURCE: 5, other: 5}, follow)
    try:
        for _ in range(3):
            assert leaders.answered_ends().offsets == {other: 3}
        leaders.settle([other])
        (thread,) = [each for each in threading.enumerate() if each.name == "elections"]
        assert thread.daemon
    finally:
        may_end.set()
    leaders.close()
    assert closed.is_set()
    assert leaders.answered_ends().offsets == {SOURCE: 10, other: 3}


def test_a_former_leader_s_answer_of_the_other_level_is_not_believed_once_a_new_one_is_followed():
    levels = {True: LeaderAnswers({SOURCE: LogEnd(10, 5)}), False: LeaderAnswers({SOURCE: LogEnd(12, 6)})}
    watch: Any = SimpleNamespace(ends=lambda *, committed: levels[committed], doubt=lambda: None)
    leaders = leaders_of(watch, follow=lambda *_: {SOURCE: 6})
    assert leaders.answered_ends(committed=True).offsets == {SOURCE: 10}
    leaders.answered_ends()
    leaders.settle([SOURCE])
    assert leaders.answered_ends().offsets == {SOURCE: 12}
    assert leaders.answered_ends(committed=True).offsets == {}


def test_a_new_leader_that_goes_away_is_not_compared_yet():
    broker = FakeBroker([LogEnd(12, 6), LogUnavailable("its broker is gone"), LogEnd(12, 6)])
    leaders = leaders_of(broker, follow=lambda _, observe: {SOURCE: observe()[SOURCE].leader_epoch or 0})
    assert leaders.answered_ends().offsets == {}
    leaders.settle([SOURCE])
    assert "no leader of partition 0 of 'orders' answers: its broker" in leaders.answered_ends().away[SOURCE]


def test_what_a_comparison_finds_out_ends_the_query():
    def follow(*_: Any) -> dict[tuple[str, int], int]:
        raise TopicChanged("it was truncated")

    leaders = leaders_of(FakeBroker([LogEnd(10, 6)]), follow=follow)
    assert leaders.answered_ends().offsets == {}
    leaders.settle([SOURCE])
    for _ in range(2):
        with pytest.raises(TopicChanged, match="truncated"):
            leaders.answered_ends()


def test_a_leader_that_is_away_leaves_the_ends_of_the_others():
    other = ("orders", 1)
    answers = LeaderAnswers({other: LogEnd(3, 5)}, {SOURCE: "its broker is gone"})
    watch: Any = SimpleNamespace(ends=lambda **_: answers)
    leaders = leaders_of(watch)
    found = leaders.answered_ends()
    assert (found.offsets, found.away) == ({other: 3}, {SOURCE: "its broker is gone"})
    assert leaders.answered_ends() is found
    with pytest.raises(LogUnavailable, match=r"no leader of partition 0 of 'orders' answers: its broker"):
        leaders.end_offsets()


def test_a_new_leader_that_cannot_be_compared_yet_is_away_and_tried_again_after_a_while():
    time, tried = FakeTime(), []

    def follow(*_: Any) -> dict[tuple[str, int], int]:
        tried.append(1)
        if len(tried) < 3:
            raise StateUnavailable("the shard is away")
        return {SOURCE: 6}

    context: Any = SimpleNamespace(watch=lambda _: FakeBroker([LogEnd(10, 6)]), clock=time.clock)
    leaders = Leaders(context, {"orders": 1}, {SOURCE: 5}, follow)
    for _ in range(5):
        found = leaders.answered_ends()
        assert found.offsets == {}
        leaders.settle([SOURCE])
    assert "not compared yet: the shard is away" in found.away[SOURCE]
    assert len(tried) == 1
    for _ in range(2):
        time.pause(1)
        leaders.answered_ends()
        leaders.settle([SOURCE])
    found = leaders.answered_ends()
    assert (found.offsets, leaders.epochs) == ({SOURCE: 10}, {SOURCE: 6})


def test_the_leaders_of_topics_that_the_query_does_not_read_are_not_asked_for():
    assert leaders_of(FakeBroker([LogEnd(10, 5)]), {SOURCE: 5, ("others", 3): 1}).end_offsets() == {
        SOURCE: 10
    }


def test_a_former_leader_is_not_believed():
    broker = FakeBroker([LogEnd(10, 4)])
    leaders = leaders_of(broker)
    with pytest.raises(LogUnavailable, match="a former leader"):
        leaders.end_offsets()
    assert broker.doubted == 1
    leaders.doubt()
    assert broker.doubted == 2


def test_a_leader_of_unknown_epoch_is_taken_as_it_is():
    assert leaders_of(FakeBroker([LogEnd(10, None)])).end_offsets() == {SOURCE: 10}
    assert leaders_of(FakeBroker([LogEnd(10, 7)]), {}).end_offsets() == {SOURCE: 10}


def test_a_batch_waits_for_a_leader_that_has_all_of_it():
    broker = FakeBroker([LogUnavailable("no leader", 2), LogEnd(9, 5), LogEnd(10, 5)])
    assert leaders_of(broker).wait({SOURCE: 10}, lambda: False) == {SOURCE: 10}
    assert (broker.asked, broker.doubted) == (3, 1)


def test_a_batch_does_not_wait_for_ever_nor_when_the_query_ends():
    broker = FakeBroker([LogUnavailable("no leader", 2)])
    with pytest.raises(LogUnavailable):
        leaders_of(broker).wait({SOURCE: 10}, lambda: False)
    assert 100 < broker.asked < 1000
    broker.asked = 0
    with pytest.raises(LogUnavailable):
        leaders_of(broker).wait({SOURCE: 10}, lambda: True)
    assert broker.asked == 1


def test_a_partition_without_a_leader_does_not_end_at_0(monkeypatch):
    """The whole topic would be taken for truncated."""
    monkeypatch.setattr(KafkaAdmin, "request_once", lambda *_, **__: [None])
    with pytest.raises(LogUnavailable, match="has no leader"):
        JobKafka(Connection("nowhere:1")).end_offsets({"orders": 1})


def noted(*steps: tuple[float, dict[tuple[str, int], str]]) -> list[str]:
    """What is said of leaders that are away, each step so many seconds after the one before."""
    time, said = FakeTime(), list[str]()
    leaders = AwayLeaders(time.clock, said.append)
    for seconds, away in steps:
        time.move(seconds)
        leaders.note(away)
    return said


def test_leaders_that_go_away_and_come_back_are_a_line_each():
    away = {("orders", 3): "broker 2 is gone", ("orders", 1): "broker 2 is gone", ("users", 0): "no leader"}
    assert noted((0, {}), (0, away), (1, away), (1, away), (5, {}), (1, {})) == [
        (
            "no leader answers for partitions 1, 3 of topic 'orders': "
            "their lanes wait, and all others go on: broker 2 is gone"
        ),
        (
            "no leader answers for partitions 0 of topic 'users': their lanes wait, and all others go on: "
            "no leader"
        ),
        "leaders answer again for partitions 1, 3 of topic 'orders'",
        "leaders answer again for partitions 0 of topic 'users'",
    ]


def test_an_election_that_is_soon_over_is_no_line():
    away = {("orders", 3): "not the leader"}
    assert noted((0, away), (0.5, away), (0.1, {}), (5, away)) == []


def test_leaders_that_come_back_one_by_one_are_named_when_they_do():
    both = {("orders", 0): "gone", ("orders", 1): "gone"}
    said = noted((0, both), (1, both), (1, {("orders", 1): "gone"}), (1, {}))
    assert said[1:] == [
        "leaders answer again for partitions 0 of topic 'orders'",
        "leaders answer again for partitions 1 of topic 'orders'",
    ]


def test_of_many_partitions_the_first_are_named():
    assert numbered([*range(25)]).endswith("18, 19 and 5 more")
    assert numbered([4]) == "4"


FORMER, PRESENT, AWAY = ({("t", 0): LogEnd(5, 1)}, {("t", 0): LogEnd(7, 2)}, {("t", 1): "it has no leader"})


@dataclass
class Session:
    """A session whose leaders answer so. `is_closed`: it is not used any more."""

    found: dict = field(default_factory=dict)
    away: dict = field(default_factory=dict)
    failure: Exception | None = None
    is_closed: bool = False

    def ends(self, *, committed: bool) -> LeaderAnswers:  # noqa: ARG002
        return LeaderAnswers(self.found, self.away)

    def close(self) -> None:
        self.is_closed = True


class Watch(LogWatch):
    """Opens these sessions, one after the other; the last one again and again."""

    def __init__(self, *sessions: Session) -> None:
        super().__init__(lambda: None, {"t": 2}, ["t"])  # type: ignore[arg-type,return-value]
        self.sessions = list(sessions)

    def _new_session(self) -> Session:  # type: ignore[override]
        return self.sessions.pop(0) if len(self.sessions) > 1 else self.sessions[0]


@pytest.mark.parametrize("away", [{}, AWAY])
def test_a_doubt_replaces_a_session_by_one_in_which_as_many_answer(away):
    """A former leader answers as well as the present one: only another session knows who leads."""
    watch = Watch(Session(FORMER, away), Session(PRESENT, away))
    assert watch._open().found == FORMER
    watch.doubt()
    eventually(lambda: watch.ends().ends == PRESENT)
    watch.close()


def test_without_a_doubt_only_one_in_which_more_answer_replaces_a_session():
    sessions = [Session(FORMER, AWAY), Session(PRESENT, AWAY)]
    watch = Watch(*sessions)
    watch.ends()
    eventually(lambda: sessions[1].is_closed)
    assert watch.ends().ends == FORMER
    watch.sessions = [Session(PRESENT)]
    eventually(lambda: watch.ends().away == {})
    assert sessions[0].is_closed
    watch.close()


def test_a_doubt_keeps_a_session_in_which_more_answer():
    sessions = [Session(FORMER), Session(PRESENT, AWAY)]
    watch = Watch(*sessions)
    watch._open()
    watch.doubt()
    eventually(lambda: sessions[1].is_closed)
    assert watch.ends().ends == FORMER
    watch.close()
