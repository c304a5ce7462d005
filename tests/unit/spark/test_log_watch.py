"""Which of two sessions with the leaders is used, over doubles of both."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.servers.own import eventually

from keylane_spark.log.kafka_admin import LogEnd
from keylane_spark.log.leader_session import LeaderAnswers
from keylane_spark.log.log_watch import LogWatch

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
