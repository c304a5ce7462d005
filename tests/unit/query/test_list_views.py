"""The list of views, through a fake state."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.support.builders import NOW_MS, a_layout, layout_entry
from tests.support.fakes import FakeState
from tests.support.stored import Reader

from keylane.api.reads.views import render_view, render_views
from keylane.errors import UnknownView, ViewNotOpened
from keylane.model.records import Options
from keylane.query.views import ListedView, describe_view, list_views
from keylane.state import codec
from keylane.state.redis_keys import COPY_TAGS, record_key, stopped_key, views_key
from keylane.state.windows import Column, Definition, state_name


def test_views_are_those_of_any_copy_that_have_a_layout():
    definition = Definition("flights", (Column("n", "count"),), size_ms=10)
    layout = a_layout(state_name("departures"), 3, options=Options(view=definition.to_json()))
    state = FakeState(layout_entry(layout))
    state.sorted_sets[views_key()] = {b"removed": 0}
    state.sorted_sets[views_key(COPY_TAGS[1])] = {b"departures": 0}
    found = list_views(Reader(state=state).store, 1000)
    assert found == {"departures": ListedView(layout)}
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
    assert list_views(Reader().store, 1000) == {}


def test_a_view_that_was_never_opened_is_listed_with_its_reason_and_answers_with_it():
    state = FakeState({stopped_key("delays"): b"topic 'planes' is unknown"})
    state.sorted_sets[views_key()] = {b"delays": 0, b"removed": 0}
    store = Reader(state=state).store
    found = list_views(store, 1000)
    assert json.loads(render_views(found).body) == {
        "views": [{"view": "delays", "stopped": "topic 'planes' is unknown"}]
    }
    with pytest.raises(ViewNotOpened, match=r"view 'delays' was never opened: topic 'planes' is unknown$"):
        describe_view(store, "delays", 1000)
    with pytest.raises(UnknownView):
        describe_view(store, "removed", 1000)


def test_a_view_says_why_it_stopped_and_which_generation_is_built_beside_it():
    definition = Definition("flights", (Column("n", "count"),))
    layout = a_layout(state_name("departures"), 3, options=Options(view=definition.to_json()))
    building = replace(layout, generation=layout.generation + 1)
    record = json.dumps({"building": json.loads(codec.encode_layout(building))}).encode()
    state = FakeState({**layout_entry(layout), stopped_key("departures"): b"why"})
    state.entries[record_key(state_name("departures"))] = record
    found = describe_view(Reader(state=state).store, "departures", 1000)
    document = json.loads(render_view("departures", found, NOW_MS).body or "")
    assert document["stopped"] == "why"
    assert document["next"] == {"generation": building.generation, "percent": None}
