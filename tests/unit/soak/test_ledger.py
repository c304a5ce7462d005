from __future__ import annotations

import pytest
from tests.soak.ledger import KEPT_OF_A_KEY, ChangeBook, Ledger, Seen, Write

TTL_MS = 10_000
TOPIC, KEY = "t", "k"


class Written:
    """A ledger with one key in partition 3: number 0 at offset 10, then what a test adds."""

    def __init__(self, topic=TOPIC):
        self.topic = topic
        self.ledger = Ledger({"expiring": TTL_MS})
        self.write(10, 0, at_ms=1000)

    def write(self, offset, number, at_ms):
        write = Write(self.topic, KEY, number, at_ms - 5)
        self.ledger.begin(write)
        self.ledger.acknowledge(write, 3, offset, at_ms)

    def check(self, next_offset, offset, number=None, **others):
        times = {"sent_ms": 1001, "received_ms": 1002, "age_ms": 500} | others
        return self.ledger.check(self.topic, KEY, Seen(3, next_offset, offset, number, **times))


@pytest.fixture
def written():
    return Written()


def test_a_read_that_has_the_newest_record_below_its_watermark_is_right(written):
    written.write(20, 1, at_ms=2000)
    assert written.check(20, 10, 0) is None
    assert written.check(21, 20, 1) is None
    assert written.check(5, None) is None


def test_a_record_that_is_not_acknowledged_yet_may_be_seen(written):
    assert written.check(31, 30, 7) is None


def test_an_older_record_another_value_and_one_beyond_the_watermark_are_wrong(written):
    written.write(20, 1, at_ms=2000)
    assert "an older record" in written.check(21, 10, 0)
    assert "another value" in written.check(21, 20, 5)
    assert "beyond its watermark" in written.check(20, 20, 1)
    assert written.check(20, 20, 1, is_own=False) is None


def test_an_absent_key_is_wrong_unless_it_was_or_is_being_deleted(written):
    assert "absent, though" in written.check(11, None)
    written.ledger.begin(Write(TOPIC, KEY, None, 1500))
    assert written.check(11, None) is None
    written = Written()
    written.write(20, None, at_ms=2000)
    assert written.check(21, None) is None
    assert "another value" in written.check(21, 20, 1)
    assert "absent, though" in written.check(20, None)
    assert written.check(20, None, is_own=False) is None


def test_an_age_that_leaves_out_what_was_acknowledged_before_is_not_true(written):
    assert written.check(10, None, sent_ms=2000, age_ms=1000) is None
    assert "the age is not true: offset 10" in written.check(10, None, sent_ms=2000, age_ms=999)


def test_a_record_is_there_until_it_expires_and_gone_after():
    written = Written("expiring")
    assert "absent, though" in written.check(11, None, received_ms=995 + TTL_MS - 1)
    assert written.check(11, None, received_ms=995 + TTL_MS) is None
    assert written.check(11, 10, 0, sent_ms=1000 + TTL_MS) is None
    assert "has expired" in written.check(11, 10, 0, sent_ms=2001 + TTL_MS)


def test_the_ledger_keeps_the_newest_records_of_a_key_whatever_order_answers_come_in(written):
    for offset in range(2 * KEPT_OF_A_KEY + 20, 20, -1):
        written.write(offset, offset, at_ms=2000)
    book = written.ledger.keys[TOPIC][KEY]
    assert [ack.offset for ack in book.acks] == list(range(KEPT_OF_A_KEY + 21, 2 * KEPT_OF_A_KEY + 21))
    assert (book.open_sets, book.open_deletes) == (0, 0)
    assert written.ledger.ends() == {(TOPIC, 3): 2 * KEPT_OF_A_KEY + 20}
    assert "an older record" in written.check(1000, 2 * KEPT_OF_A_KEY + 19, 0, age_ms=0)


def test_a_listener_has_to_receive_each_change_or_a_newer_one():
    book = ChangeBook("listener")
    for key, offset, at_ms in (("a", 1, 100), ("b", 2, 150), ("b", 5, 400), ("c", 3, 500)):
        book.acknowledge(key, offset, at_ms)
    assert book.receive("b", 4) is None
    assert book.receive("c", 9) is None
    assert book.overdue(101) == ["listener: a at 1 was not received"]
    # Its earlier record was received: the later one is not late yet.
    assert book.overdue(200) == []
    assert book.overdue(401) == ["listener: b at 5 was not received"]
    assert book.pending == {}


def test_a_change_that_was_received_before_its_answer_is_not_awaited():
    book = ChangeBook("listener")
    assert book.receive("a", 7) is None
    book.acknowledge("a", 7, 100)
    assert book.overdue(1000) == []


def test_a_listener_that_is_sent_an_older_record_has_gone_back():
    book = ChangeBook("listener")
    assert book.receive("a", 7) is None
    assert book.receive("a", 7) is None
    assert book.receive("a", 6) == "listener: a went back from 7 to 6"


def test_a_listener_of_one_key_awaits_no_other():
    book = ChangeBook("listener", only="a")
    book.acknowledge("b", 1, 100)
    assert book.overdue(1000) == []
