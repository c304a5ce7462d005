"""What the torture says of pages of records found by their fields: each fault, and nothing else."""

from __future__ import annotations

import functools
import json
import random

import pytest
from tests.torture.checks import Facts, check_seen
from tests.torture.found import (
    FIELDS,
    INDEXES,
    Question,
    Scan,
    all_questions,
    document_with_fields,
    draw_question,
)
from tests.torture.oracle import Acknowledged, KeyLog, Logged
from tests.torture.reading import Seen
from tests.torture.schedule import Shape
from tests.torture.sources import Found, as_of_both
from tests.unit.torture.test_checks import AStack

from keylane import routing
from keylane.formats.json_text import parse_verbatim
from keylane.model.records import Answer, Layout, Options, Record, Watermark
from keylane.query.conditions import EQUAL, RANGE, Asked, Order, question_of
from keylane.state.field_index import indexes_of

PARTITIONS = 6
OPTIONS = Options(index=1, fields=FIELDS, indexes=INDEXES)
LAYOUT = Layout("plain", PARTITIONS, options=OPTIONS)
OPEN = Question((Asked("status", EQUAL, "1-open"),))
BY_NUMBER = Question((Asked("n", RANGE, "0", "9"),), Order("n"))
AT_MS = 1_795_000_000_000


class Logs:
    """The records of keys: of each the texts of its status and its numbers, at offsets from 0 on."""

    def __init__(self, **values: list[tuple[str, int] | None]) -> None:
        self.keys = {}
        for name, own in values.items():
            home = routing.partition_for(name.encode(), PARTITIONS)
            records = [
                Logged(home, offset, 10 + offset, each and value_of(*each), (), 10 + offset)
                for offset, each in enumerate(own)
            ]
            shape = Shape("plain", PARTITIONS, options=OPTIONS)
            self.keys[name.encode()] = KeyLog(home, shape, {home: records})

    def of(self, _: str, key: bytes) -> KeyLog:
        return self.keys[key]

    def seen(self, name: str, offset: int | None, next_offset: int = 1) -> Seen:
        key = name.encode()
        key_log = self.keys[key]
        logged = None if offset is None else key_log.records[key_log.own_partition][offset]
        record = logged and Record(key, logged.value, logged.partition, logged.offset, logged.timestamp_ms)
        answer = Answer(LAYOUT, key_log.own_partition, record, Watermark(next_offset, 1, complete_as_of_ms=1))
        return Seen(0, "plain", key, 5, 5, answer, None, ended_ms=100, kind="find", exact=False)

    def faults(self, question: Question, *rows: Seen, absent: tuple[Seen, ...] = (), is_whole: bool = True):
        scan = Scan(question, rows, absent, is_whole)
        now = Seen(0, "plain", next(iter(self.keys)), 5, 5, None, None, ended_ms=100, kind="find", scan=scan)
        return list(check_seen([[now]], Facts(self, Acknowledged(), [], AStack())))


def value_of(status: str, number: int) -> bytes:
    return json.dumps({"status": f"1-{status}", "n": number}).encode()


def test_the_log_s_answer_to_a_question_is_the_application_s():
    source, indexes = random.Random(1), indexes_of(OPTIONS)
    for serial in range(1_500):
        value = document_with_fields(b"7-%d-x" % serial, serial, AT_MS)
        logged = Logged(0, 0, 0, value, (), 0)
        try:
            document = parse_verbatim(value.decode())
        except ValueError:
            document = None
        entries, _ = indexes.entries(document)
        for question in (*all_questions("7"), draw_question(source, "7", AT_MS)):
            conditions = question_of(LAYOUT, question.asked, question.order).conditions
            expected = all(each.is_met(entries) and each.is_met_by(document) for each in conditions)
            assert question.is_met(logged) == expected, (value, question)


@pytest.mark.parametrize("question", all_questions("7"))
def test_some_values_meet_a_question_and_some_do_not(question):
    values = [document_with_fields(b"7-%d-x" % serial, serial, AT_MS) for serial in range(300)]
    met = [question.is_met(Logged(0, 0, 0, value, (), 0)) for value in values]
    assert any(met)
    assert not all(met)


def test_rows_that_meet_the_question_and_keys_that_do_not_are_no_fault():
    logs = Logs(a=[("open", 1)], b=[("paid", 2)])
    assert logs.faults(OPEN, logs.seen("a", 0), absent=(logs.seen("b", None),)) == []


def test_a_row_that_does_not_meet_the_question_is_told():
    logs = Logs(b=[("paid", 2)])
    (fault,) = logs.faults(OPEN, logs.seen("b", 0))
    assert "find?status=1-open has found" in fault


def test_a_row_that_is_older_than_its_watermark_is_told():
    logs = Logs(a=[("open", 1), ("open", 2)])
    (fault,) = logs.faults(OPEN, logs.seen("a", 0, next_offset=2))
    assert "the log has" in fault


def test_a_key_that_all_pages_lack_though_its_record_meets_the_question_is_told():
    logs = Logs(a=[("open", 1)])
    (fault,) = logs.faults(OPEN, absent=(logs.seen("a", None),))
    assert "find?status=1-open has not found it" in fault
    assert logs.faults(OPEN, absent=(logs.seen("a", None),), is_whole=False) == []


@pytest.mark.parametrize("later", [("paid", 1), None, ("open", 2)])
def test_a_key_whose_next_record_does_not_meet_the_question_or_lies_elsewhere_may_be_lacking(later):
    logs = Logs(a=[("open", 1), later])
    assert logs.faults(OPEN, absent=(logs.seen("a", None),)) == []
    logs = Logs(a=[("open", 1), ("open", 1)])
    assert len(logs.faults(OPEN, absent=(logs.seen("a", None),))) == 1


def test_a_lane_that_has_not_read_the_record_may_lack_it():
    logs = Logs(a=[("open", 1)])
    assert logs.faults(OPEN, absent=(logs.seen("a", None, next_offset=0),)) == []


def test_rows_out_of_order_and_a_row_that_comes_twice_are_told():
    logs = Logs(a=[("open", 1)], b=[("open", 2)])
    in_order = logs.seen("a", 0), logs.seen("b", 0)
    assert logs.faults(BY_NUMBER, *in_order) == []
    (fault,) = logs.faults(BY_NUMBER, *reversed(in_order))
    assert "gives ['2', '1']" in fault
    (fault,) = logs.faults(OPEN, *in_order, in_order[1])
    assert "has a row twice" in fault


def test_a_later_page_may_be_of_a_lane_that_is_behind_and_its_records_are_not_due():
    """A replica that lacks the record may answer it: each page is as of its own watermarks."""
    logs = Logs(a=[("open", 1)])
    pages = [Found(logs.seen("a", None, next_offset).answer) for next_offset in (1, 0, 1)]
    both = functools.reduce(as_of_both, pages, None)
    absent = logs.seen("a", None)
    assert logs.faults(OPEN, absent=(absent,))
    assert logs.faults(OPEN, absent=(absent._replace(answer=both.answer),)) == []
