"""What the torture makes of the answers to a scoped caller: all that may be seen, and nothing else."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.torture.checks import Facts, check_seen
from tests.torture.configurations import STANDARD
from tests.torture.found import Question, Scan
from tests.torture.oracle import Acknowledged, KeyLog, Logged
from tests.torture.reading import Seen
from tests.torture.rights import Rights, StackIssuer
from tests.torture.schedule import Schedule
from tests.torture.scoped import CountSeen, check_count, judged
from tests.torture.scoped_streams import ScopedStream, ShownEvent, check_stream
from tests.torture.sources import SERVER

from keylane.config.access import read_policy
from keylane.model.records import Answer, Layout, Record, Watermark

RIGHTS = Rights("7", "rich", ("plain",))
OPEN, VOID = (json.dumps({"status": f"7-{state}"}).encode() for state in ("open", "void"))
INSIDE, OUTSIDE = b"7-3_001", b"7-1_001"
SHAPES = {shape.name: shape for shape in STANDARD.shapes}


class SmallLog:
    """The log of a topic: by key the values of its records, at offsets from 0 on."""

    def __init__(self, topic: str, **values: list[bytes | None]) -> None:
        self.logs: dict[bytes, KeyLog] = {}
        for name, own in values.items():
            key = name.replace("k", "7-").encode()
            partition = SHAPES[topic].partition_of(key)
            log = self.logs[key] = KeyLog(partition, SHAPES[topic])
            log.records[partition] = [
                Logged(partition, offset, 10 + offset, value, (), 10 + offset)
                for offset, value in enumerate(own)
            ]

    def of(self, _: str, key: bytes) -> KeyLog:
        return self.logs.get(key) or KeyLog(0)

    def keys_of(self, _: str) -> list[bytes]:
        return list(self.logs)


def facts_of(log: Any) -> Facts:
    stack = SimpleNamespace(
        cluster=SimpleNamespace(shards=1),
        stripes={name: {1} for name in SHAPES},
        shard_of=lambda _: 0,
        layouts=lambda: {name: Layout(name, 6) for name in SHAPES},
    )
    return Facts(log, Acknowledged(), [], stack)  # type: ignore[arg-type]


def seen(topic: str, key: bytes, value: bytes | None, offset: int = 0, below: int = 1, **more: Any) -> Seen:
    """A read that found a value at an offset, or nothing, in a lane that has all below another one."""
    shape = SHAPES[topic]
    partition = shape.partition_of(key)
    record = None if value is None else Record(key, value, partition, offset, 10 + offset)
    answer = Answer(Layout(topic, shape.partitions), partition, record, Watermark(below, 1))
    return Seen(6, topic, key, 1.0, 1.0, answer, None, ended_ms=100, source=SERVER, **more)


def faults(log: SmallLog, *reads: Seen) -> list[str]:
    return list(check_seen([[one for each in reads for one in judged(each, RIGHTS)]], facts_of(log)))


def test_the_policy_of_a_stack_is_one_that_the_server_takes():
    issuer = StackIssuer(STANDARD)
    policy = read_policy({"KEYLANE_ACCESS": issuer.policy})
    assert {each.name for each in policy.rules} == {"values", *(f"keys {number}" for number in range(1, 6))}
    assert issuer.rights(Schedule(7, ())) == Rights("7", "rich", ("plain", "mixed"))


def test_a_record_inside_is_no_fault_and_neither_is_the_absence_of_one_outside():
    log = SmallLog("plain", k3_001=[b"a"], k1_001=[b"b"])
    assert faults(log, seen("plain", INSIDE, b"a"), seen("plain", OUTSIDE, None)) == []
    log = SmallLog("rich", k3_001=[OPEN], k1_001=[VOID])
    assert faults(log, seen("rich", INSIDE, OPEN), seen("rich", OUTSIDE, None)) == []


@pytest.mark.parametrize("kind", ["latest", "range", "many", "join"])
@pytest.mark.parametrize(("topic", "value"), [("plain", b"a"), ("rich", VOID)])
def test_a_record_outside_is_a_fault_in_any_read(topic, value, kind):
    log = SmallLog(topic, k1_001=[value])
    (fault,) = faults(log, seen(topic, OUTSIDE, value, kind=kind))
    assert "has found" in fault


def test_a_record_inside_that_is_not_shown_is_a_fault():
    assert faults(SmallLog("plain", k3_001=[b"a"]), seen("plain", INSIDE, None))
    (fault,) = faults(SmallLog("rich", k3_001=[OPEN]), seen("rich", INSIDE, None))
    assert "has not found it" in fault


def test_a_record_that_may_have_left_since_need_not_be_shown():
    assert faults(SmallLog("rich", k3_001=[OPEN, VOID]), seen("rich", INSIDE, None)) == []


def test_a_find_shows_what_was_asked_for_and_may_be_seen():
    log = SmallLog("rich", k3_001=[OPEN], k1_001=[VOID])

    def found(*rows: Seen) -> list[str]:
        scan = Scan(Question(()), rows, [], is_whole=True)
        return faults(log, seen("rich", INSIDE, None)._replace(answer=None, scan=scan))

    assert found(seen("rich", INSIDE, OPEN, kind="find")) == []
    assert found(seen("rich", OUTSIDE, VOID, kind="find"))


@pytest.mark.parametrize(("number", "is_right"), [(0, False), (1, True), (2, False)])
def test_a_count_at_rest_is_that_of_the_permitted_records(number, is_right):
    log = SmallLog("rich", k3_001=[VOID, OPEN], k1_001=[OPEN, VOID])
    absent = [seen("rich", key, None, below=2) for key in (INSIDE, OUTSIDE)]
    count = CountSeen("rich", number, absent, is_last=True)
    assert (not list(check_count(count, facts_of(log), RIGHTS))) == is_right


def test_a_count_meanwhile_may_have_a_key_that_left_later():
    log = SmallLog("rich", k3_001=[OPEN], k1_001=[OPEN, VOID])
    absent = [seen("rich", key, None, below=1) for key in (INSIDE, OUTSIDE)]
    counts = [CountSeen("rich", number, absent, is_last=False) for number in range(4)]
    assert [not list(check_count(each, facts_of(log), RIGHTS)) for each in counts] == [
        False,
        True,
        True,
        False,
    ]


def heard(log: SmallLog, topic: str, *events: ShownEvent) -> list[str]:
    """The faults of a stream that has heard these from its topic's beginning on."""
    stream = ScopedStream.__new__(ScopedStream)
    stream.__dict__ |= {
        "topic": topic,
        "events": list(events),
        "since": dict.fromkeys(range(6), 0),
        "latest": {each.key: each for each in events},
        "began_s": 0.0,
        "refused": [],
        "close": lambda: None,
    }
    return list(check_stream(stream, facts_of(log), RIGHTS, is_at_rest=True))


def shown(name: str, key: bytes, log: SmallLog, offset: int = 0) -> ShownEvent:
    if name != "record":
        return ShownEvent(name, key)
    key_log = log.of("", key)
    logged = key_log.records[key_log.own_partition][offset]
    return ShownEvent(name, key, logged.partition, logged.offset, logged.value or b"", has_value=True)


def test_a_stream_sends_what_enters_and_that_it_left():
    log = SmallLog("rich", k3_001=[OPEN, VOID], k1_001=[VOID], k4_001=[OPEN])
    entered = shown("record", b"7-4_001", log)
    assert heard(log, "rich", shown("record", INSIDE, log), ShownEvent("left", INSIDE), entered) == []


def test_a_stream_that_shows_or_names_what_may_not_be_seen_is_a_fault(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.torture.scoped_streams.HEARD_WITHIN_S", 0)
    log = SmallLog("rich", k3_001=[OPEN], k1_001=[VOID])
    own = shown("record", INSIDE, log)
    assert any("not permitted" in each for each in heard(log, "rich", own, shown("record", OUTSIDE, log)))
    assert any("never had" in each for each in heard(log, "rich", own, ShownEvent("left", OUTSIDE)))
    with_value = ShownEvent("left", INSIDE, value=OPEN, has_value=True)
    assert any("has a value" in each for each in heard(log, "rich", with_value))


def test_a_stream_that_has_not_sent_a_record_inside_or_that_it_left_is_a_fault(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("tests.torture.scoped_streams.HEARD_WITHIN_S", 0)
    log = SmallLog("rich", k3_001=[OPEN])
    assert any("has not sent" in each for each in heard(log, "rich"))
    log = SmallLog("rich", k3_001=[OPEN, VOID])
    assert any("has left" in each for each in heard(log, "rich", shown("record", INSIDE, log)))
