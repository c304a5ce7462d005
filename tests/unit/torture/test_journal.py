"""The journal of a topic whose log forgets: what an answer owes by its claim, and what may not come back."""

from __future__ import annotations

import pytest
from tests.torture.journal import Journal

from keylane.model.records import Answer, Layout, Record, Watermark

KEY = b"1/000"


def a_journal(*values: bytes | None) -> Journal:
    """Each value was acknowledged at 10, 20, 30 ms and so on."""
    journal = Journal()
    for number, value in enumerate(values, 1):
        journal.acknowledge(journal.note(KEY, value), number * 10)
    return journal


def an_answer(value: bytes | None, complete_ms: int, *, incomplete: bool = False) -> Answer:
    record = None if value is None else Record(KEY, value, 0, 0, 0)
    watermark = Watermark(1, 1, complete_as_of_ms=complete_ms, incomplete=incomplete)
    return Answer(Layout("compacted", 2), 0, record, watermark)


@pytest.mark.parametrize(
    ("value", "complete_ms", "fault"),
    [
        (b"a", 15, None),
        (b"b", 15, None),  # newer than it claims
        (b"a", 25, "a read returned b'a', and b'b' was acknowledged before the time"),
        (None, 15, None),  # a tombstone that comes later explains it
        (None, 5, None),
        (b"b", 35, "a read returned b'b', and a tombstone, the key's record 2 was acknowledged"),
        (None, 45, "a read returned nothing, and b'c' was acknowledged before the time"),
        (b"x", 5, "which nobody wrote"),
    ],
)
def test_an_answer_has_what_was_acknowledged_before_the_time_that_it_claims(value, complete_ms, fault):
    journal = a_journal(b"a", b"b", None, b"c")
    found = journal.fault_of(KEY, an_answer(value, complete_ms))
    assert found is None if fault is None else fault in (found or "")


def test_an_answer_that_says_it_is_incomplete_may_lack_everything_and_make_up_nothing():
    journal = a_journal(b"a", None)
    assert journal.fault_of(KEY, an_answer(b"a", 99, incomplete=True)) is None
    assert journal.fault_of(KEY, an_answer(b"x", 99, incomplete=True))


def test_what_has_not_been_acknowledged_yet_is_owed_by_nobody():
    journal = a_journal(b"a")
    journal.note(KEY, b"b")
    assert journal.fault_of(KEY, an_answer(b"a", 99)) is None
    assert journal.fault_of(KEY, an_answer(b"b", 99)) is None


def test_a_deleted_key_may_not_be_back_though_its_answer_is_incomplete():
    journal = a_journal(b"a", None)
    journal.note_seen(KEY, an_answer(None, 25))
    back = journal.went_back(KEY, an_answer(b"a", 25, incomplete=True))
    assert back == "a deleted key is back: a tombstone, the key's record 1, then b'a'"
    journal.may_come_back.add(KEY)
    assert journal.went_back(KEY, an_answer(b"a", 25)) is None


def test_a_key_may_not_go_back_to_an_earlier_value_but_be_deleted():
    journal = a_journal(b"a", b"b", None)
    journal.note_seen(KEY, an_answer(b"b", 25))
    assert journal.went_back(KEY, an_answer(b"a", 25)) == "the key went back: b'b', then b'a'"
    assert journal.went_back(KEY, an_answer(None, 35)) is None


def test_a_topic_that_is_created_again_owes_nothing_and_its_timestamps_go_on():
    journal = a_journal(b"a")
    first = journal.next_timestamp_ms(100)
    journal.begin_again()
    assert journal.fault_of(KEY, an_answer(None, 99)) is None
    assert journal.next_timestamp_ms(50) == first + 1


def test_a_deletion_that_the_state_alone_has_may_be_lost_with_the_state():
    journal = a_journal(b"a", None)
    journal.deleted_in_state_alone.add(KEY)
    assert journal.fault_of(KEY, an_answer(b"a", 45))
    journal.lose_state()
    assert journal.fault_of(KEY, an_answer(b"a", 45)) is None
    journal.begin_again()
    assert not journal.deleted_in_state_alone
    assert not journal.may_come_back
