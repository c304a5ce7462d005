"""The reads of the soak over a server that answers what a test says: each wrong answer is a fault."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.soak.ledger import Ledger, Write
from tests.soak.plan import STEADY, Plan
from tests.soak.reading import ABSENT, Readers
from tests.soak.traffic import Minute, Reply, partition_of
from tests.soak.writing import Writers

KEY = "s0001"
PARTITION = partition_of(KEY)


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
        return Reply(status, lanes | own, json.dumps(document).encode(), 1000.0, 1001.0)


class Reading:
    """Readers over written records of one key: number 5 at offset 10, and number 6 at offset 20."""

    def __init__(self):
        self.traffic = AnsweringTraffic()
        self.ledger = Ledger({})
        self.writers = Writers(self.traffic, self.ledger, Plan(1))
        self.writers.any_steady = lambda: KEY
        self.readers = Readers(self.traffic, self.ledger, self.writers, 1)
        self.acknowledge(10, 5)
        self.acknowledge(20, 6)

    def acknowledge(self, offset, number):
        write = Write(STEADY, KEY, number, 100.0)
        self.ledger.begin(write)
        self.ledger.acknowledge(write, PARTITION, offset, 200.0)

    def faults_of(self, kind, *answers):
        self.traffic.answers = list(answers)
        asyncio.run(getattr(self.readers, kind)())
        assert self.traffic.answers == []
        return self.traffic.faults


@pytest.fixture
def reading():
    return Reading()


def at(offset, number):
    headers = {"keylane-position": f"{PARTITION}:{offset}", "etag": f'"{PARTITION}-{offset}@7"'}
    return 200, headers, {"number": number}


def test_a_304_is_true_only_while_that_is_the_newest_record(reading):
    assert reading.faults_of("conditional", at(20, 6), (304, {}, None)) == []
    assert reading.traffic.asked[1][1] == {"If_None_Match": f'"{PARTITION}-20@7"'}

    def answer_after_a_write():
        reading.acknowledge(25, 7)
        return 304, {}, None

    (fault,) = reading.faults_of("conditional", at(20, 6), answer_after_a_write)
    assert "an older record" in fault


def test_a_read_at_the_position_of_a_write_has_that_write(reading):
    written = (201, {}, {"position": f"{PARTITION}:40"})
    faults = reading.faults_of("waited", written, at(20, 6))
    assert "this was to be at 40" in faults[0]
    reading.traffic.faults.clear()
    assert reading.faults_of("waited", written, (412, {}, {"type": "x"})) == []
    assert reading.traffic.failed == ["read at position 412"]


def test_an_absent_key_is_checked_and_another_404_is_a_fault(reading):
    reading.readers._any = lambda: (STEADY, KEY)
    assert "absent, though" in reading.faults_of("latest", (404, {}, {"type": ABSENT}))[0]
    reading.traffic.faults.clear()
    assert len(reading.faults_of("latest", (404, {}, {"type": "urn:keylane:problem:unknown-topic"}))) == 1


def test_a_read_that_failed_is_no_wrong_read(reading):
    reading.readers._any = lambda: (STEADY, KEY)
    assert reading.faults_of("latest", (503, {}, {"type": "x"})) == []


def record(offset, number):
    watermark = f"{PARTITION}:30"
    return {"key": KEY, "offset": offset, "watermark": watermark, "age_ms": 10, "value": {"number": number}}


@pytest.mark.parametrize(
    ("offset", "number", "wrong"), [(20, 6, None), (10, 5, "an older record"), (20, 5, "another value")]
)
def test_each_record_of_a_document_is_checked(reading, offset, number, wrong):
    document = {"records": [record(offset, number)] * 20, "watermarks": {str(PARTITION): 30}, "age_ms": 10}
    faults = reading.faults_of("many", (200, {}, document))
    assert len(faults) == (20 if wrong else 0)
    assert all(wrong in fault for fault in faults)


def test_a_page_has_its_keys_once_in_order_and_with_the_prefix(reading):
    reading.readers._chance.randrange = lambda _: 0
    document = {"records": [record(20, 6), record(20, 6)], "watermarks": {}, "age_ms": 10}
    assert "a page of s00" in reading.faults_of("page", (200, {}, document))[0]
    document["records"].pop()
    reading.traffic.faults.clear()
    assert reading.faults_of("page", (200, {}, document)) == []


def test_a_history_begins_with_the_newest_record_and_goes_back(reading):
    def answer(*offsets):
        records = [{"offset": offset} for offset in offsets]
        return 200, {}, {"records": records, "watermarks": {str(PARTITION): 30}}

    assert reading.faults_of("history", answer(20, 10)) == []
    assert reading.faults_of("history", answer(25, 20)) == []
    assert len(reading.faults_of("history", answer(10))) == 1
    assert len(reading.faults_of("history", answer(10, 20))) == 2


def test_a_total_is_never_more_than_was_written_nor_less_than_before(reading):
    def answer(number):
        return 200, {}, {"windows": [{"values": {"n": number}}], "age_ms": 5}

    reading.writers.begun[KEY] = 2
    assert reading.faults_of("total", answer(2)) == []
    assert "1, after 2" in reading.faults_of("total", answer(1))[0]
    assert "3, after 2" in reading.faults_of("total", answer(3))[1]
