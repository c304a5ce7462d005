"""The reads of the soak over a server that answers what a test says: each wrong answer is a fault."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.soak.plan import STEADY, Plan
from tests.soak.reading import Readers
from tests.soak.traffic import Minute, partition_of
from tests.soak.writing import Writers
from tests.support.replies import ABSENT, Reply
from tests.torture.judge import Judge
from tests.torture.oracle import KeyLog, Logged

KEY = "s0001"
PARTITION = partition_of(KEY)
PLAN = Plan(1)


class AnsweringTraffic:
    """Answers requests in order with (status, headers, document), and keeps requests and faults."""

    def __init__(self):
        self.answers, self.asked, self.faults, self.failed = [], [], [], []
        self.minute = Minute()

    def fault(self, text):
        if text:
            self.faults.append(text)

    def fail(self, name):
        self.failed.append(name)

    def note_age(self, name, age_ms):
        self.minute.ages_ms[name].append(age_ms)

    async def ask(self, kind, *_, **headers):
        self.asked.append((kind, headers))
        answer = self.answers.pop(0)
        status, own, document = answer() if callable(answer) else answer
        lanes = {"keylane-watermark": f"{PARTITION}:30", "keylane-age-ms": "10"}
        return Reply(status, lanes | own, json.dumps(document).encode(), 1000, 1001)


class ALog:
    """The records of the one key: number 5 at offset 10, and number 6 at offset 20."""

    def __init__(self):
        self.key_log = KeyLog(PARTITION, PLAN.shapes[STEADY], {PARTITION: []})
        self.add(10, 5)
        self.add(20, 6)

    def add(self, offset, number):
        value = json.dumps({"number": number}).encode()
        self.key_log.records[PARTITION].append(Logged(PARTITION, offset, offset, value, (), offset))

    def of(self, *_):
        return self.key_log

    def read_on(self):
        pass


class Reading:
    """Readers over the log."""

    def __init__(self):
        self.traffic, self.log = AnsweringTraffic(), ALog()
        self.judge = Judge(self.log, PLAN.shapes)
        self.writers = Writers(self.traffic, self.judge, PLAN)
        self.writers.any_steady = lambda: KEY
        self.readers = Readers(self.traffic, self.judge, self.writers, 1)

    def faults_of(self, kind, *answers):
        self.traffic.answers = list(answers)
        asyncio.run(getattr(self.readers, kind)())
        assert self.traffic.answers == []
        told, self.traffic.faults = self.traffic.faults, []
        return told + self.judge.check()


@pytest.fixture
def reading():
    return Reading()


def at(offset, number):
    tag = f'"{PARTITION}-{offset}@7"'
    headers = {"keylane-position": f"{PARTITION}:{offset}", "keylane-timestamp": str(offset), "etag": tag}
    return 200, headers, {"number": number}


def test_a_304_is_true_only_while_that_is_the_newest_record(reading):
    assert reading.faults_of("conditional", at(20, 6), (304, {}, None)) == []
    assert reading.traffic.asked[1][1] == {"If_None_Match": f'"{PARTITION}-20@7"'}

    def answer_after_a_write():
        reading.log.add(25, 7)
        return 304, {}, None

    (fault,) = reading.faults_of("conditional", at(20, 6), answer_after_a_write)
    assert "below 30 the log has" in fault


def test_a_read_at_the_position_of_a_write_has_that_write(reading):
    written = (201, {}, {"position": f"{PARTITION}:40"})
    faults = reading.faults_of("waited", written, at(20, 6))
    assert f"the lane is at 30, and a read waited for {PARTITION}:40" in faults[0]
    assert reading.faults_of("waited", written, (412, {}, {"type": "x"})) == []
    assert reading.traffic.failed == ["read at position 412"]


def test_an_absent_key_is_checked_and_another_404_is_a_fault(reading):
    reading.readers._any = lambda: (STEADY, KEY)
    assert "a read returned nothing" in reading.faults_of("latest", (404, {}, {"type": ABSENT}))[0]
    assert len(reading.faults_of("latest", (404, {}, {"type": "urn:keylane:problem:unknown-topic"}))) == 1


def test_a_read_that_failed_is_no_wrong_read(reading):
    reading.readers._any = lambda: (STEADY, KEY)
    assert reading.faults_of("latest", (503, {}, {"type": "x"})) == []


def record(offset, number, key=KEY):
    claims = {"watermark": f"{PARTITION}:30", "age_ms": 10}
    at = {"key": key, "partition": PARTITION, "offset": offset, "timestamp": offset, **claims}
    return at | {"value_format": "json", "value": {"number": number}}


def document(*records):
    return {"records": list(records), "watermarks": {str(PARTITION): 30}, "age_ms": 10}


@pytest.mark.parametrize(
    ("offset", "number", "wrong"), [(20, 6, None), (10, 5, "the log has"), (20, 5, "the log has")]
)
def test_each_record_of_a_document_is_checked(reading, offset, number, wrong):
    faults = reading.faults_of("many", (200, {}, document(*[record(offset, number)] * 20)))
    assert len(faults) == (20 if wrong else 0)
    assert all(wrong in fault for fault in faults)


def test_an_answer_of_another_key_is_a_fault(reading):
    answer = 200, {}, document(*[record(20, 6, key="s0002")] * 20)
    assert "is of 's0002'" in reading.faults_of("many", answer)[0]


def test_a_page_has_its_keys_once_in_order_and_with_the_prefix(reading):
    reading.readers._chance.randrange = lambda _: 0
    twice = document(record(20, 6), record(20, 6))
    assert "a page of s00" in reading.faults_of("page", (200, {}, twice))[0]
    assert reading.faults_of("page", (200, {}, document(record(20, 6)))) == []


def test_a_history_begins_with_the_newest_record_and_goes_back(reading):
    def answer(*offsets):
        numbers = {10: 5, 20: 6, 25: 7}
        return 200, {}, document(*(record(offset, numbers[offset]) for offset in offsets))

    assert reading.faults_of("history", answer(20, 10)) == []
    assert len(reading.faults_of("history", answer(10))) == 1
    assert "not in order" in reading.faults_of("history", answer(10, 20))[0]
    reading.log.add(25, 7)
    assert reading.faults_of("history", answer(25, 20, 10)) == []


def test_a_total_is_never_more_than_was_written_nor_less_than_before(reading):
    def answer(number):
        return 200, {}, {"windows": [{"values": {"n": number}}], "age_ms": 5}

    reading.writers.begun[KEY] = 2
    assert reading.faults_of("total", answer(2)) == []
    assert "1, after 2" in reading.faults_of("total", answer(1))[0]
    assert "3, after 2" in reading.faults_of("total", answer(3))[0]
