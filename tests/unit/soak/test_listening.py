from __future__ import annotations

from tests.soak.changes import ChangeBook
from tests.soak.listening import receive
from tests.support.events import EventLines, ReceivedEvent

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
