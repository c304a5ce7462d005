"""The torture's comparison of answers with the log: each promise of a write is missed where it is broken."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.replies import Reply
from tests.torture.oracle import KeyLog, Logged
from tests.torture.written import OF_SERVER, Queued, Result, Sent, check_written, results_of

from keylane.model.records import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY, TOPIC = b"k", "t"
NOTHING = Queued(Counter(), {})
WRITTEN, UNCERTAIN = Result("written", Position(0, 5)), Result("uncertain")
REFUSED, RETRIABLE = Result("refused", detail="no"), Result("refused", is_retriable=True)


class FakeLog:
    """What `check_written` asks of the log: the records of the one key."""

    def __init__(self, *records: Logged) -> None:
        self._key_log = KeyLog(0, records={0: list(records)})

    def of(self, topic: str, key: bytes) -> KeyLog:
        return self._key_log if (topic, key) == (TOPIC, KEY) else KeyLog(0)


def reply(status: int, document: dict[str, Any]) -> Reply:
    return Reply(status, {}, json.dumps(document).encode())


def sent(number: int, *results: Result, **more: Any) -> Sent:
    fields = {"client": "function", "topic": TOPIC, "key": KEY, "value": b"v%d" % number} | more
    return Sent(**fields, trace=f"{number:032x}", results=list(results))


def copy(number: int, offset: int, record_id: bytes | None = None, value: bytes | None = None) -> Logged:
    headers: list[tuple[str, bytes | None]] = [("traceparent", b"00-%032x-%016x-01" % (number, 1))]
    if record_id:
        headers.append(("keylane-id", record_id))
    return Logged(0, offset, 0, value or b"v%d" % number, tuple(headers), 0)


def faults(records: Sequence[Sent], *log: Logged, queued: Queued = NOTHING) -> list[str]:
    return list(check_written(records, FakeLog(*log), queued))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("record", "log"),
    [
        (sent(1, WRITTEN), [copy(1, 5)]),
        (sent(1, UNCERTAIN), []),
        (sent(1, UNCERTAIN), [copy(1, 9)]),
        (sent(1, RETRIABLE), []),
        (sent(1, UNCERTAIN, WRITTEN), [copy(1, 2), copy(1, 5)]),
        (sent(1, REFUSED, is_bad=True), []),
    ],
)
def test_what_keeps_its_promise_is_no_fault(record: Sent, log: list[Logged]):
    assert faults([record], *log) == []


@pytest.mark.parametrize(
    ("record", "log", "fault"),
    [
        (sent(1, WRITTEN), [], "it is in the log 0 times"),
        (sent(1, WRITTEN), [copy(1, 5), copy(1, 6)], "it is in the log 2 times"),
        (sent(1, WRITTEN), [copy(1, 6)], "0:5 was answered 1 times, and the log has it at 0:6"),
        (sent(1, WRITTEN, WRITTEN), [copy(1, 5), copy(1, 6)], "0:5 was answered 2 times"),
        (sent(1, WRITTEN), [copy(1, 5, value=b"w")], "the log has another value"),
        (sent(1, WRITTEN, is_bad=True), [copy(1, 5)], "Kafka refuses such records"),
        (sent(1, RETRIABLE), [copy(1, 5)], "it is in the log 1 times"),
        (sent(1, REFUSED, is_bad=True), [copy(1, 5)], "it is in the log 1 times"),
        (sent(1, REFUSED), [], "it was refused for good: no"),
        (sent(1, UNCERTAIN), [copy(1, 5), copy(1, 6)], "it is in the log 2 times"),
        (sent(1, UNCERTAIN, RETRIABLE), [copy(1, 5), copy(1, 6)], "it is in the log 2 times"),
    ],
)
def test_a_promise_that_is_broken_is_a_fault(record: Sent, log: list[Logged], fault: str):
    assert any(fault in each for each in faults([record], *log))


def test_a_record_of_the_server_may_be_there_once_more_only_while_another_expired():
    expired = sent(2, Result("uncertain", began_s=1, ended_s=3), client=OF_SERVER[1], key=b"other")
    for began_s, is_excused in ((2, True), (4, True), (6, False)):
        written = Result("written", Position(0, 5), began_s=began_s, ended_s=began_s + 1)
        found = faults([sent(1, written, client=OF_SERVER[0]), expired], copy(1, 5), copy(1, 6))
        assert (found == []) is is_excused
    during = Result("written", Position(0, 5), began_s=2, ended_s=3)
    assert faults([sent(1, during), expired], copy(1, 5), copy(1, 6))


def test_a_key_s_records_lie_in_the_order_in_which_they_were_sent():
    first, second = sent(1, Result("written", Position(0, 6))), sent(2, Result("written", Position(0, 5)))
    assert any("was sent later" in each for each in faults([first, second], copy(2, 5), copy(1, 6)))
    assert faults([second, first], copy(2, 5), copy(1, 6)) == []


def test_a_superseded_record_has_a_newer_one_of_its_request():
    older = sent(1, Result("refused", is_superseded=True), request=1)
    newer = sent(2, WRITTEN, request=1)
    assert faults([older, newer], copy(2, 5)) == []
    newer.request = 2
    assert any("by nothing" in each for each in faults([older, newer], copy(2, 5)))


def test_a_queued_record_is_there_at_least_once_and_once_for_each_delivery_or_a_dead_letter():
    queued, two = sent(1, Result("queued", id="q-0")), Queued(Counter({"q-0": 2}), {})
    copies = [copy(1, offset, b"q-0") for offset in range(3)]
    assert faults([queued], *copies[:1], queued=two) == faults([queued], *copies[:2], queued=two) == []
    assert any("0 times" in each for each in faults([queued], queued=two))
    assert any("3 times" in each for each in faults([queued], *copies, queued=two))
    assert any("with the ids" in each for each in faults([queued], copy(1, 5, b"other"), queued=two))
    dead = Queued(Counter({"q-0": 1}), {"q-0": "INVALID_TIMESTAMP"})
    assert any("it is a dead letter" in each for each in faults([queued], queued=dead))
    queued.is_bad = True
    assert faults([queued], queued=dead) == []
    assert any("it is no dead letter" in each for each in faults([queued], *copies[:1], queued=two))


def test_where_the_queue_did_not_answer_the_record_may_have_one_id_more_for_each_time():
    asked_again = sent(1, UNCERTAIN, Result("queued", id="q-1"))
    once, twice = Queued(Counter({"q-0": 1, "q-1": 1}), {}), Queued(Counter({"q-0": 2, "q-1": 1}), {})
    unanswered, answered, third = copy(1, 3, b"q-0"), copy(1, 5, b"q-1"), copy(1, 7, b"q-2")
    assert faults([asked_again], answered, queued=once) == []
    assert faults([asked_again], unanswered, answered, queued=once) == []
    assert faults([asked_again], unanswered, copy(1, 4, b"q-0"), answered, queued=twice) == []
    assert any(
        "3 times" in each for each in faults([asked_again], unanswered, unanswered, answered, queued=once)
    )
    assert any(
        "with the ids" in each for each in faults([asked_again], unanswered, answered, third, queued=once)
    )


def test_of_a_queue_the_last_copies_have_the_order_of_their_key():
    records = [sent(number, Result("queued", id=f"q-{number}")) for number in (1, 2)]
    deliveries = Queued(Counter({"q-1": 2, "q-2": 2}), {})
    first, second, again = copy(1, 0, b"q-1"), copy(2, 1, b"q-2"), copy(1, 2, b"q-1")
    assert faults(records, first, second, again, copy(2, 3, b"q-2"), queued=deliveries) == []
    assert any("was sent later" in each for each in faults(records, first, second, again, queued=deliveries))


def test_results_are_read_from_every_kind_of_answer():
    entries = [
        {"partition": 1, "offset": 2},
        {"status": "queued", "id": "q-0"},
        {"offset": None, "error": "?", "uncertain": True, "retriable": True},
        {"offset": None, "error": "older", "retriable": False, "superseded": True},
    ]
    found = results_of(reply(200, {"offsets": entries}), 4)
    assert [result.kind for result in found] == ["written", "queued", "uncertain", "refused"]
    assert (found[0].position, found[1].id, found[2].is_retriable) == (Position(1, 2), "q-0", True)
    assert (found[3].is_superseded, found[3].is_retriable) == (True, False)
    assert [each.kind for each in results_of(None, 2)] == ["uncertain"] * 2
    assert results_of(reply(500, {}), 1)[0].kind == "uncertain"
    [problem] = results_of(reply(503, {"status": 503, "title": "Kafka is unavailable"}), 1)
    assert (problem.kind, problem.is_retriable) == ("refused", True)
    [problem] = results_of(reply(503, {"status": 503, "uncertain": True}), 1)
    assert problem.kind == "uncertain"


def test_the_results_of_a_push_are_positions_ids_and_errors():
    ok = {"status": "ok", "error": False, "message": None}
    failed = {"status": "error", "error": True, "message": "no", "code": "X", "retriable": True}
    document = {"positions": ["0:5", None, None], "errors": [ok, failed, ok], "queued": ["id-0"]}
    written, refused, queued = results_of(reply(503, {**document, "status": "err"}), 3)
    assert (written.kind, written.position) == ("written", Position(0, 5))
    assert (refused.kind, refused.detail, refused.is_retriable) == ("refused", "X: no", True)
    assert (queued.kind, queued.id) == ("queued", "id-0")
    [alone] = results_of(reply(200, {"status": "ok", "errors": [], "positions": ["1:7"]}), 1)
    assert alone.position == Position(1, 7)
