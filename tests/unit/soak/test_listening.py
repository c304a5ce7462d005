from __future__ import annotations

from tests.soak.listening import ChangeBook, receive
from tests.support.events import EventLines, ReceivedEvent


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


STREAM = b"""\
retry: 1000

id: 2:7@1
event: record
data: {"key": "a",
data:  "offset": 7}

:

id: 0:1,2:8@1

event: absent
data: {"key": "a", "watermark": "2:9"}

"""


def test_events_are_read_line_by_line_and_those_without_a_name_only_say_where_the_stream_is():
    lines = EventLines()
    events = [event for line in STREAM.split(b"\n") if (event := lines.take(line))]
    assert events == [
        ReceivedEvent("record", "2:7@1", '{"key": "a",\n "offset": 7}'),
        ReceivedEvent("", "0:1,2:8@1", ""),
        ReceivedEvent("absent", "", '{"key": "a", "watermark": "2:9"}'),
    ]


def test_an_absence_stands_for_all_records_below_its_watermark():
    book = ChangeBook("listener")
    book.acknowledge("a", 8, 100)
    assert receive(book, ReceivedEvent("absent", "", '{"key": "a", "watermark": "2:8"}')) is None
    assert book.pending
    assert receive(book, ReceivedEvent("absent", "", '{"key": "a", "watermark": "2:9"}')) is None
    assert not book.pending
    assert "went back" in receive(book, ReceivedEvent("record", "", '{"key": "a", "offset": 7}'))
