"""The short way of a look-up: what is asked of Redis, and which replies are answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.builders import NOW_MS, a_lane, a_layout, a_watermark, layout_entry, value_key
from tests.support.fakes import FakeState, FakeTime

from keylane.adapters.redis.resp import encode_command
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.ports import Deadline
from keylane.query.layouts import Layouts
from keylane.query.lookup import LookupPlan, Lookups, answer_of
from keylane.state import codec
from keylane.state.lanes import lane_of_key

LAYOUT = a_layout(stripes=2)
KEY = b"N14228"


def plan_of(key: bytes = KEY) -> LookupPlan | None:
    clock = FakeTime().clock
    layouts = Layouts(FakeState(layout_entry(LAYOUT)), clock, 10)
    layouts.get(LAYOUT.topic, Deadline.after_ms(100, clock))
    return Lookups(layouts).plan(LAYOUT.topic, key)


def the_plan() -> LookupPlan:
    plan = plan_of()
    assert plan is not None
    return plan


@pytest.mark.parametrize("key", [KEY, b"a", b"\xff\x00", b"k" * KEY_LIMIT_BYTES])
def test_a_plan_asks_the_lane_of_a_key_for_its_value_and_the_watermark_in_one_command(key):
    plan = plan_of(key)
    assert plan is not None
    lane = lane_of_key(LAYOUT, key)
    assert (plan.slot, plan.lane) == (lane.slot, lane)
    assert plan.packed == encode_command(b"MGET", lane.value_prefix + key, lane.watermark_key)


@pytest.mark.parametrize("key", [b"", b"k" * (KEY_LIMIT_BYTES + 1)])
def test_what_is_no_key_has_no_plan(key):
    assert plan_of(key) is None


def test_a_topic_has_a_plan_for_as_long_as_its_layout_is_known():
    time = FakeTime()
    layouts = Layouts(FakeState(layout_entry(LAYOUT)), time.clock, 10)
    lookups = Lookups(layouts)
    assert lookups.plan(LAYOUT.topic, KEY) is None
    layouts.get(LAYOUT.topic, Deadline.after_ms(100, time.clock))
    assert lookups.plan(LAYOUT.topic, KEY) is not None
    time.move(10.1)
    assert lookups.plan(LAYOUT.topic, KEY) is None


def test_a_plan_goes_by_the_newest_layout():
    clock, state = FakeTime().clock, FakeState(layout_entry(LAYOUT))
    layouts = Layouts(state, clock, 10)
    lookups = Lookups(layouts)
    for layout in (LAYOUT, replace(LAYOUT, generation=LAYOUT.generation + 1, stripes=1)):
        state.entries.update(layout_entry(layout))
        layouts.refresh(LAYOUT.topic, Deadline.after_ms(100, clock))
        plan = lookups.plan(LAYOUT.topic, KEY)
        assert plan is not None
        assert plan.lane == lane_of_key(layout, KEY)


def test_a_reply_is_an_answer_with_the_record_or_without_one():
    entries = a_lane(LAYOUT, KEY, b"1")
    plan = the_plan()
    mark = entries[plan.lane.watermark_key]
    found = answer_of(plan, [entries[value_key(LAYOUT, KEY)], mark])
    assert found is not None
    assert found.record is not None
    assert (found.record.value, found.age_ms(NOW_MS)) == (b"1", 200)
    absent = answer_of(plan, [None, mark])
    assert absent is not None
    assert absent.record is None


MARK = codec.encode_watermark(a_watermark())
VALUE = codec.encode_record(b"1", 3, NOW_MS)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(RuntimeError("MOVED"), id="a redirect"),
        pytest.param(b"?", id="no array"),
        pytest.param([VALUE, None], id="a lane without a watermark"),
        pytest.param([VALUE, codec.encode_watermark(a_watermark(superseded=True))], id="superseded"),
        pytest.param([VALUE, codec.encode_watermark(a_watermark(complete_as_of_ms=0))], id="building"),
        pytest.param([VALUE, MARK[:-1]], id="a watermark that is cut off"),
        pytest.param([VALUE[:5], MARK], id="a record that is cut off"),
        pytest.param([b"\x09" + VALUE[1:], MARK], id="an unknown version"),
    ],
)
def test_a_reply_that_needs_more_than_a_look_is_no_answer(reply):
    assert answer_of(the_plan(), reply) is None
