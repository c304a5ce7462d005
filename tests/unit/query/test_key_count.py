"""The count of a topic's keys through a fake state: summed over all lanes, in one round."""

from __future__ import annotations

import pytest
from tests.support.builders import NOW_MS, a_layout
from tests.support.stored import StoredTopic

from keylane.errors import NoIndex
from keylane.model.records import Options
from keylane.state.lanes import lanes_of_topic

INDEXED = Options(index=True)
KEYS = [b"k%03d" % number for number in range(200)]


@pytest.mark.parametrize("shape", [(1, 1), (9, 1), (3, 4), (60, 5)])
@pytest.mark.parametrize("parts", [1, 4])
def test_the_keys_of_all_lanes_are_counted_in_one_round(shape: tuple[int, int], parts: int):
    topic = StoredTopic(a_layout(partition_count=shape[0], stripes=shape[1], options=Options(index=parts)))
    assert topic.count().count == 0
    topic.add(*KEYS)
    topic.state.runs.clear()
    assert topic.count().count == len(KEYS)
    (commands,) = topic.state.runs
    assert len(commands) == (1 + parts) * shape[0] * shape[1]


def test_a_lanes_watermark_is_read_before_its_keys_are_counted():
    topic = StoredTopic(a_layout(options=INDEXED))
    topic.count()
    (commands,) = topic.state.runs
    assert [name for name, *_ in commands] == [b"GET", b"ZCARD"] * 9
    assert [key for name, key in commands if name == b"GET"] == [
        lane.watermark_key for lane in lanes_of_topic(topic.layout)
    ]


@pytest.mark.parametrize("parts", [1, 4])
def test_keys_count_until_the_millisecond_in_which_they_expire(parts: int):
    topic = StoredTopic(a_layout(options=Options(index=parts, ttl_ms=1_000)))
    topic.add(*KEYS[:30], expires_ms=NOW_MS - 1)
    topic.add(*KEYS[30:50], expires_ms=NOW_MS)
    topic.add(*KEYS[50:], expires_ms=NOW_MS + 500)
    assert topic.count().count == 170
    topic.time.move(0.001)
    assert topic.count().count == 150


def test_topic_without_an_index_says_which_option_makes_one_and_is_counted_once_it_has_it():
    topic = StoredTopic(a_layout(options=Options(history_count=3)))
    with pytest.raises(NoIndex, match="index = true"):
        topic.count()
    topic.publish(a_layout(topic.layout.topic, generation=2, options=INDEXED))
    topic.add(*KEYS)
    assert topic.count().count == len(KEYS)
