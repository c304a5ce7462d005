"""The judge of clients over HTTP: what one read alone says must be as the log has it."""

from __future__ import annotations

import pytest
from tests.support.replies import ABSENT, Reply
from tests.torture.judge import Judge
from tests.torture.oracle import KeyLog, Log, Logged
from tests.torture.schedule import Shape

from keylane.model.records import Options, Position

TOPIC, KEY = "plain", b"k"
SHAPE = Shape(TOPIC, 3)
HOME = SHAPE.partition_of(KEY)


class ALog:
    """Records at offsets 0, 4 (a tombstone) and 7, at times of their offsets."""

    def __init__(self) -> None:
        records = [Logged(HOME, at, at, value, (), at) for at, value in ((0, b"a"), (4, None), (7, b"b"))]
        self.key_log = KeyLog(HOME, SHAPE, {HOME: records})

    def of(self, *_: object) -> KeyLog:
        return self.key_log

    def read_on(self) -> None:
        pass


@pytest.fixture
def judge() -> Judge:
    return Judge(ALog(), {TOPIC: SHAPE})  # type: ignore[arg-type]


def reply(next_offset: int, offset: int | None, age_ms: int = 5, began_ms: int = 1_000) -> Reply:
    headers = {"keylane-watermark": f"{HOME}:{next_offset}", "keylane-age-ms": str(age_ms)}
    times_ms = began_ms, began_ms + 1
    if offset is None:
        return Reply(404, headers, f'{{"type": "{ABSENT}"}}'.encode(), *times_ms)
    headers |= {"keylane-position": f"{HOME}:{offset}", "keylane-timestamp": str(offset)}
    return Reply(200, headers, {0: b"a", 7: b"b"}[offset], *times_ms)


def faults(judge: Judge, *replies: Reply, **more: object) -> list[str]:
    for each in replies:
        judge.note_latest(TOPIC, KEY, each, **more)  # type: ignore[arg-type]
    return judge.check()


def test_each_read_is_compared_with_the_log_and_none_with_another(judge):
    assert faults(judge, reply(8, 7), reply(5, None), reply(1, 0)) == []
    assert "the log has" in faults(judge, reply(8, 0))[0]
    assert judge.check() == []


def test_no_read_of_a_reader_with_a_number_goes_back_behind_one_before_it(judge):
    assert faults(judge, reply(1, 0), reply(8, 7), reader=1) == []
    assert faults(judge, reply(1, 0), reader=2) == []
    assert "went back" in faults(judge, reply(1, 0), reader=1)[0]


def test_an_age_is_judged_unless_the_server_has_another_clock(judge):
    judge.acknowledged.note(100, [(TOPIC, HOME, 7)])
    late = reply(5, None, age_ms=5, began_ms=106)
    assert "claims to be complete" in faults(judge, late)[0]
    assert faults(judge, late, has_age=False) == faults(judge, reply(5, None, 6, began_ms=106)) == []


def test_an_answer_that_no_server_may_give_is_a_fault(judge):
    assert "an age of -1 ms" in faults(judge, reply(8, 7, age_ms=-1))[0]


def test_a_read_at_a_position_has_reached_it(judge):
    assert faults(judge, reply(8, 7), waited_for=Position(HOME, 7)) == []
    assert "the lane is at 7" in faults(judge, reply(7, None), waited_for=Position(HOME, 7))[0]


def test_a_log_that_forgets_keeps_the_newest_records_and_no_key_that_has_expired():
    log = Log.__new__(Log)
    expiring = Shape("expiring", 3, options=Options(ttl_ms=500))
    records = [Logged(HOME, at, at, b"%d" % at, (), at) for at in range(100)]
    log._offsets = {(TOPIC, HOME): [(at, KEY) for at in range(100)]}
    log.keys = {
        (TOPIC, KEY): KeyLog(HOME, SHAPE, {HOME: records}),
        (TOPIC, b"deleted"): KeyLog(HOME, SHAPE, {HOME: [Logged(HOME, 0, 0, None, (), 0)]}),
        ("expiring", b"gone"): KeyLog(HOME, expiring, {HOME: records[-1:]}),
        ("expiring", b"there"): KeyLog(HOME, expiring, {HOME: [Logged(HOME, 0, 700, b"x", (), 700)]}),
    }
    log.forget(10, 1_000)
    assert [each.offset for each in log.keys[TOPIC, KEY].records[HOME]] == list(range(90, 100))
    assert log.keys.keys() == {(TOPIC, KEY), (TOPIC, b"deleted"), ("expiring", b"there")}
