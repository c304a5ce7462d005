"""Reads over HTTP say the same as reads of a store, and problems are the errors that they stand for."""

from __future__ import annotations

from io import BytesIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.support.builders import NOW_MS, a_layout, a_watermark, body_of, headers_of, load_query, value_entry
from tests.support.builders import layout_entry as layout_of
from tests.support.builders import watermark_entry as watermark_of
from tests.torture.over_http import ServerSource
from tests.torture.run import blind
from tests.torture.schedule import Shape
from tests.torture.sources import SERVER, NoAnswer

from keylane.errors import KeylaneError, LaneBuilding, PositionNotReached, UnknownTopic, UnknownView
from keylane.model.records import Options, Position, Record
from keylane.state import redis_keys
from keylane.state.lanes import lane_of_key, lanes_of_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.torture.sources import Found

PARTITIONS = 4
TOPIC, OTHER = "rich", "other"
LAYOUT, OTHER_LAYOUT = (
    a_layout(topic, PARTITIONS, stripes=2, options=Options(index=True)) for topic in (TOPIC, OTHER)
)
SHAPES = {name: Shape(name, PARTITIONS, stripes=2, options=LAYOUT.options) for name in (TOPIC, OTHER, "none")}
VALUES = {
    b"1-000": b"7-text",
    b"1-001": b'{"n":  1.50, "value_format": "x"}',
    b"1-002": b"\xff\x00",
    b"1-003": b"",
    b"1-004": None,
}


def entries() -> dict[bytes, bytes]:
    found = layout_of(LAYOUT) | layout_of(OTHER_LAYOUT)
    for layout in (LAYOUT, OTHER_LAYOUT):
        for lane in lanes_of_topic(layout):
            found[lane.watermark_key] = next(iter(watermark_of(layout, b"1-000").values()))
        for number, (key, value) in enumerate(VALUES.items()):
            if value is not None:
                found |= value_entry(layout, key, value, offset=number)
    return found


class AConnection:
    """Asks the query function, over a state that never changes."""

    def __init__(self, ask: Any) -> None:
        self._ask = ask
        self.paths: list[str] = []

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> None:
        self.paths.append(path)
        parts = urlsplit(path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self._answer = self._ask(method, parts.path, query=query, headers=dict(headers), body=body)

    def getresponse(self) -> Any:
        headers = list(headers_of(self._answer).items())
        read = BytesIO(body_of(self._answer)).read
        return SimpleNamespace(status=self._answer["statusCode"], read=read, getheaders=lambda: headers)

    def close(self) -> None:
        pass


class ASource(ServerSource):
    def __init__(self, stored: dict[bytes, bytes]) -> None:
        super().__init__(0, SHAPES, "1")
        self.connection = AConnection(load_query(stored, now_ms=NOW_MS))
        self._connection._connection = self.connection  # type: ignore[assignment]


def expected(key: bytes) -> Record | None:
    value = VALUES.get(key)
    number = list(VALUES).index(key)
    partition = lane_of_key(LAYOUT, key).partition
    return None if value is None else Record(key, value, partition, number, NOW_MS - 1_000)


def check(found: Found, key: bytes) -> None:
    assert found.answer.record == expected(key)
    assert found.answer.partition == lane_of_key(LAYOUT, key).partition
    assert found.answer.watermark.next_offset == a_watermark().next_offset


@pytest.mark.parametrize("key", VALUES)
def test_a_key_is_the_record_whatever_way_it_is_read(key):
    source = ASource(entries())
    for _ in range(40):
        check(source.latest(TOPIC, key, None), key)
    assert len(set(source.connection.paths)) > 2
    check(source.latest(TOPIC, key, Position(lane_of_key(LAYOUT, key).partition, 7)), key)


def test_many_keys_and_joins_have_each_key_s_record_and_lane():
    source = ASource(entries())
    found = source.many(TOPIC, list(VALUES))
    for key, value in VALUES.items():
        check(found[key], key)
        assert found[key].is_of_lane == (value is not None)
        for each, topic in zip(source.joined([TOPIC, OTHER], key), (TOPIC, OTHER), strict=True):
            check(each, key)
            assert each.answer.layout.topic == topic


def test_an_answer_is_complete_as_of_its_age_before_it_was_asked_for():
    """The application's clock stands still at NOW_MS, 200 ms after its lanes were complete."""
    source = ASource(entries())
    before_ms = source.latest(TOPIC, b"1-000", None).answer.watermark.complete_as_of_ms
    found = source.many(TOPIC, list(VALUES))
    after_ms = source.latest(TOPIC, b"1-000", None).answer.watermark.complete_as_of_ms
    for each in found.values():
        assert before_ms <= each.answer.watermark.complete_as_of_ms <= after_ms


def test_problems_are_the_errors_that_they_stand_for():
    source = ASource(entries())
    with pytest.raises(UnknownTopic):
        source.latest("none", b"1-000", None)
    with pytest.raises(UnknownView):
        source.windows("none", b"1-000")
    with pytest.raises(KeylaneError, match="409 no-history"):
        source.history(TOPIC, b"1-000")
    building = layout_of(LAYOUT) | watermark_of(LAYOUT, b"1-000", a_watermark(complete_as_of_ms=0))
    with pytest.raises(LaneBuilding):
        ASource(building).latest(TOPIC, b"1-000", None)


def test_a_read_whose_wait_is_over_waits_again_until_its_time_is_over(monkeypatch):
    position = Position(lane_of_key(LAYOUT, b"1-000").partition, a_watermark().next_offset)
    source = ASource(entries())
    ask, reached = (
        source.connection._ask,
        entries()
        | {
            lane.watermark_key: next(iter(watermark_of(LAYOUT, b"1-000", a_watermark(101)).values()))
            for lane in lanes_of_topic(LAYOUT)
        },
    )
    asks = [ask, ask, load_query(reached, now_ms=NOW_MS)]

    def next_of(*words: Any, **event: Any) -> Any:
        return asks.pop(0)(*words, **event)

    source.connection._ask = next_of
    found = source.latest(TOPIC, b"1-000", position)
    assert not asks
    assert found.answer.watermark.next_offset == 101
    source.connection._ask = ask
    monkeypatch.setattr("tests.torture.sources.WAIT_MS", 0)
    with pytest.raises(PositionNotReached):
        source.latest(TOPIC, b"1-000", position)


def test_a_connection_that_breaks_is_no_answer_and_the_next_read_has_another():
    source = ServerSource(1, SHAPES, "1")  # nothing listens there
    for _ in range(2):
        with pytest.raises(NoAnswer):
            source.latest(TOPIC, b"1-000", None)


def test_a_schedule_whose_reads_from_the_server_all_failed_is_blind():
    assert blind({SERVER: 3, f"{SERVER}, failed": 2}) == []
    assert blind({SERVER: 3, f"{SERVER}, failed": 3})
    assert blind({SERVER: 0, f"{SERVER}, failed": 0})


def test_a_page_has_its_keys_and_says_nothing_of_those_behind_it():
    stored = entries()
    source = ASource(stored)
    live = [key for key, value in VALUES.items() if value is not None]
    index = {}
    for key in live:
        lane = lane_of_key(LAYOUT, key)
        name = redis_keys.index_key(lane.tag, TOPIC, LAYOUT.generation, lane.partition, lane.stripe)
        index.setdefault(name, {})[key] = 0.0
    source.connection._ask = load_query(stored, sorted_sets=index)
    page = source.page(TOPIC, b"1-", None, list(VALUES), 1_000)
    assert page.end is None
    assert {key: each.answer.record for key, each in page.found.items()} == {k: expected(k) for k in VALUES}
    page = source.page(TOPIC, b"1-", b"1-000", [key for key in VALUES if key > b"1-000"], 2)
    assert page.end == b"1-002"
    assert page.found[b"1-001"].answer.record == expected(b"1-001")
