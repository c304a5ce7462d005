"""The list of views, through a fake state."""

from __future__ import annotations

import json

from tests.support.builders import NOW_MS, a_layout, layout_entry
from tests.support.fakes import FakeState, FakeTime

from keylane.api.reads.views import render_views
from keylane.model.records import Options
from keylane.query.layouts import Layouts
from keylane.query.store import Store
from keylane.query.views import list_views
from keylane.state.redis_keys import COPY_TAGS, views_key
from keylane.state.windows import Column, Definition, state_name


def test_views_are_those_of_any_copy_that_have_a_layout():
    definition = Definition("flights", (Column("n", "count"),), size_ms=10)
    layout = a_layout(state_name("departures"), 3, options=Options(view=definition.to_json()))
    state = FakeState(layout_entry(layout))
    state.sorted_sets[views_key()] = {b"removed": 0}
    state.sorted_sets[views_key(COPY_TAGS[1])] = {b"departures": 0}
    clock = FakeTime(NOW_MS).clock
    found = list_views(Store(state, Layouts(state, clock, 30), clock), 1000)
    assert found == {"departures": layout}
    assert json.loads(render_views(found).body) == {
        "views": [
            {
                "view": "departures",
                "topic": "flights",
                "key": None,
                "window": {"kind": "tumbling", "size_ms": 10, "every_ms": None},
                "columns": ["n"],
                "partitions": 3,
                "generation": layout.generation,
            }
        ]
    }


def test_without_views_the_list_is_empty():
    clock = FakeTime(NOW_MS).clock
    state = FakeState()
    assert list_views(Store(state, Layouts(state, clock, 30), clock), 1000) == {}
