"""What each read promises of its lanes: their age, what it has of those that build, which layout counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import NOW_MS, a_layout, a_watermark, lane_of, watermark_entry
from tests.support.stored import TTL_S, StoredTopic

from keylane.errors import CorruptState, LaneBuilding, NullKey, StateTooOld, StateUnavailable, UnknownTopic
from keylane.model.records import Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.model.records import Answer
    from keylane.query.store import Watermarks

    Read = Callable[..., Answer | Watermarks]

KEY = b"k"
OPTIONS = Options(index=True, history_count=9)
READS: dict[str, Read] = {
    "latest": lambda topic, **terms: topic.latest(topic.layout.topic, KEY, **terms),
    "many": lambda topic, **terms: topic.many(topic.layout.topic, [KEY, b"other"], **terms)[1],
    "join": lambda topic, **terms: topic.join(*topic.joined, key=KEY, **terms)[1],
    "range": lambda topic, **terms: topic.page(**terms).watermarks,
    "count": lambda topic, **terms: topic.count(**terms).watermarks,
    "history": lambda topic, **terms: topic.history(KEY, **terms).watermarks,
    "as of": lambda topic, **terms: topic.as_of(KEY, NOW_MS, **terms),
}


@pytest.fixture(params=READS)
def read(request: pytest.FixtureRequest) -> Read:
    return READS[request.param]


@pytest.fixture
def topic() -> StoredTopic:
    """A topic with two keys in lanes of their own; `joined`: another one and it, of one layout."""
    other = StoredTopic(a_layout(), KEY)
    topic = StoredTopic(a_layout(options=OPTIONS), KEY, b"other", state=other.state)
    topic.joined = other.layout.topic, topic.layout.topic
    return topic


def mark(topic: StoredTopic, **fields: Any) -> None:
    """Have this watermark in the lane of KEY."""
    topic.put(watermark_entry(topic.layout, KEY, a_watermark(**fields)))


def test_an_answer_is_as_old_as_the_oldest_lane_and_no_older_than_it_may_be(topic: StoredTopic, read: Read):
    mark(topic, complete_as_of_ms=NOW_MS - 900)
    assert read(topic, max_age_ms=900).age_ms(NOW_MS) == 900
    with pytest.raises(StateTooOld) as caught:
        read(topic, max_age_ms=899)
    assert caught.value.age_ms == 900


def test_a_lane_that_is_being_built_is_read_if_partial_allows_it_and_is_of_no_age(
    topic: StoredTopic, read: Read
):
    mark(topic, complete_as_of_ms=0)
    with pytest.raises(LaneBuilding, match=r"offset 100$"):
        read(topic)
    assert read(topic, partial=True).is_building
    with pytest.raises(StateTooOld) as caught:
        read(topic, partial=True, max_age_ms=10**12)
    assert caught.value.age_ms is None


def test_a_lane_without_a_watermark_has_nothing_to_answer(topic: StoredTopic, read: Read):
    partition, _, _ = lane_of(topic.layout, KEY)
    for key in watermark_entry(topic.layout, KEY):
        del topic.state.entries[key]
    for partial in (False, True):
        with pytest.raises(LaneBuilding, match="has not begun") as caught:
            read(topic, partial=partial)
        assert caught.value.partition == partition


def test_lanes_that_are_superseded_lead_to_the_newer_layout_once_there_is_one(topic: StoredTopic, read: Read):
    old = topic.layout
    topic.supersede(old)
    assert read(topic).layout == old
    topic.publish(a_layout(old.topic, generation=2, options=OPTIONS))
    topic.add(KEY)
    topic.supersede(old)
    found = read(topic)
    assert (found.layout.generation, found.is_building) == (2, False)


def test_a_topic_whose_state_vanished_is_being_built_and_then_unknown(topic: StoredTopic, read: Read):
    read(topic)
    topic.state.entries.clear()
    with pytest.raises(LaneBuilding, match="has not begun"):
        read(topic)
    topic.time.move(TTL_S)
    with pytest.raises(UnknownTopic):
        read(topic)


def test_a_state_that_is_away_is_an_error_and_a_watermark_that_is_none_names_its_key(
    topic: StoredTopic, read: Read
):
    (name,) = watermark_entry(topic.layout, KEY)
    topic.state.entries[name] = b"x"
    with pytest.raises(CorruptState) as caught:
        read(topic)
    assert caught.value.where.encode() == name
    topic.state.away = True
    with pytest.raises(StateUnavailable):
        read(topic)


@pytest.mark.parametrize("name", ["latest", "many", "join", "history", "as of"])
def test_an_empty_key_is_refused(topic: StoredTopic, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(globals(), "KEY", b"")
    with pytest.raises(NullKey):
        READS[name](topic)
