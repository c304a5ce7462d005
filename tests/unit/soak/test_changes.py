from __future__ import annotations

from tests.soak.changes import ChangeBook


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
