"""The look-up of a key: what is asked of Redis, and what replies say."""

from __future__ import annotations

import pytest
from tests.support.builders import NOW_MS, a_lane, a_layout, a_watermark

from keylane.errors import CorruptState
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.query.lookup import answer_of, is_final, plan_lookup
from keylane.state import codec
from keylane.state.codec import expand_none
from keylane.state.lanes import lane_of_key

LAYOUT = a_layout(stripes=2)
KEY = b"N14228"


@pytest.mark.parametrize("key", [KEY, b"a", b"\xff\x00", b"k" * KEY_LIMIT_BYTES])
def test_a_plan_asks_the_lane_of_a_key_for_its_value_and_the_watermark(key):
    lookup = plan_lookup(LAYOUT, key)
    lane = lane_of_key(LAYOUT, key)
    assert (lookup.slot, lookup.lane, lookup.key) == (lane.slot, lane, key)
    assert lookup.names == (lane.value_prefix + key, lane.watermark_key)


def test_a_reply_is_an_answer_with_the_record_or_without_one():
    entries = a_lane(LAYOUT, KEY, b"1")
    lookup = plan_lookup(LAYOUT, KEY)
    value, mark = (entries[name] for name in lookup.names)
    found = answer_of(lookup, [value, mark], expand_none)
    assert found is not None
    assert found.record is not None
    assert (found.record.value, found.age_ms(NOW_MS)) == (b"1", 200)
    assert is_final(found)
    absent = answer_of(lookup, [None, mark], expand_none)
    assert absent is not None
    assert absent.record is None
    assert is_final(absent)


MARK = codec.encode_watermark(a_watermark())
VALUE = codec.encode_record(b"1", 3, NOW_MS)


def test_a_lane_without_a_watermark_has_no_answer():
    assert answer_of(plan_lookup(LAYOUT, KEY), [VALUE, None], expand_none) is None
    assert not is_final(None)


@pytest.mark.parametrize(
    "watermark",
    [
        pytest.param(a_watermark(superseded=True), id="superseded"),
        pytest.param(a_watermark(complete_as_of_ms=0), id="building"),
    ],
)
def test_an_answer_of_a_lane_that_is_superseded_or_builds_is_not_final(watermark):
    found = answer_of(plan_lookup(LAYOUT, KEY), [VALUE, codec.encode_watermark(watermark)], expand_none)
    assert found is not None
    assert found.watermark == watermark
    assert not is_final(found)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param([VALUE, MARK[:-1]], id="a watermark that is cut off"),
        pytest.param([VALUE[:5], MARK], id="a record that is cut off"),
        pytest.param([b"\x09" + VALUE[1:], MARK], id="an unknown version"),
    ],
)
def test_a_reply_that_cannot_be_read_is_corrupt(reply):
    with pytest.raises(CorruptState):
        answer_of(plan_lookup(LAYOUT, KEY), reply, expand_none)
