"""The descriptions of a topic and of views, through a fake state."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.support.builders import NOW_MS, a_layout, a_watermark, layout_entry
from tests.support.fakes import FakeState
from tests.support.stored import Reader, StoredTopic

from keylane.api.reads.topics import render_summary, render_topic
from keylane.api.reads.views import render_view, render_views
from keylane.errors import UnknownTopic, UnknownView, ViewNotOpened
from keylane.model.records import Options
from keylane.query import summaries
from keylane.query.summaries import MemorySamples, read_summaries
from keylane.query.topics import TopicView, describe_topic, partitions_by_node
from keylane.query.views import ListedView, describe_view, list_views
from keylane.state import codec, redis_keys
from keylane.state.lanes import lanes_of_topic
from keylane.state.redis_keys import COPY_TAGS, record_key, stopped_key, views_key
from keylane.state.windows import Column, Definition, state_name


def described(state: FakeState, topic: str) -> TopicView:
    return describe_topic(Reader(state=state).store, topic, 1000)


def test_a_topic_lists_each_lane_with_its_node_and_progress():
    layout = a_layout(partition_count=3, stripes=2, generation=4)
    lanes = lanes_of_topic(layout)
    state = FakeState(layout_entry(layout))
    for number, lane in enumerate(lanes[1:]):
        mark = a_watermark(90 + number, log_end=100, incomplete=number == 2, has_strays=number == 3)
        mark = mark._replace(missed_deletions=number == 2)
        state.entries[lane.watermark_key] = codec.encode_watermark(mark)
    state.hashes[redis_keys.strays_key(layout.topic)] = {
        b"4.strays": b"7",
        b"4.crc32": b"6",
        b"3.strays": b"9",
    }
    view = described(state, layout.topic)
    assert view.layout == layout
    assert [each.lane for each in view.lanes] == lanes
    assert [lane.shard for lane in view.lanes] == [f"redis-{number}:7000" for number in (0, 0, 1, 1, 2, 2)]
    assert view.strays == {"strays": 7, "crc32": 6}
    document = json.loads(render_topic(view, NOW_MS).body or "")
    first, second, *_ = document["lanes"]
    assert (first["building"], first["next_offset"], "age_ms" in first) == (True, 0, False)
    assert second == {
        "partition": 0,
        "stripe": 1,
        "slot": lanes[1].slot,
        "shard": "redis-0:7000",
        "next_offset": 90,
        "log_end": 100,
        "lag": 10,
        "building": False,
        "incomplete": False,
        "has_strays": False,
        "age_ms": 200,
    }
    assert (document["building"], document["incomplete"], document["lag"]) == (True, True, 26)
    assert document["missed_deletions"] is True
    assert ["missed_deletions" in lane for lane in document["lanes"]] == [number == 3 for number in range(6)]
    assert "age_ms" not in document
    assert document["strays"] == {"strays": 7, "crc32": 6}


def summarized(reader: Reader, *topics: str, samples: MemorySamples | None = None) -> dict[str, Any]:
    found = read_summaries(reader.store, samples or MemorySamples(), topics, 1000)
    return {name: each and render_summary(each, NOW_MS) for name, each in found.items()}


def test_summaries_of_many_topics_are_their_totals_keys_and_memory():
    indexed = a_layout(partition_count=3, stripes=2, generation=4, options=Options(index=1, history_count=2))
    plain, odd = a_layout(partition_count=2), a_layout(partition_count=2)
    topics = StoredTopic(indexed, *(b"%d" % number for number in range(60)))
    topics.mark(indexed, 1, next_offset=90, log_end=100)
    topics.state.hashes[redis_keys.strays_key(indexed.topic)] = {b"4.strays": b"7", b"3.strays": b"9"}
    topics.put(layout_entry(plain), dict.fromkeys(layout_entry(odd), b"?"))
    names = indexed.topic, plain.topic, "unkept", odd.topic
    found = summarized(topics, *names)
    assert list(found) == list(names)
    summary = found[indexed.topic]
    assert 60 * 100 < summary.pop("memory_bytes") < 60 * 300
    assert summary == {
        "generation": 4,
        "building": False,
        "incomplete": False,
        "lag": 10,
        "age_ms": 200,
        "strays": {"strays": 7},
        "log_end": 100,
        "keys": 60,
    }
    assert found[plain.topic] == {
        "generation": 1,
        "building": True,
        "incomplete": False,
        "lag": 0,
        "strays": {"strays": 0},
        "log_end": 0,
        "keys": None,
        "memory_bytes": None,
    }
    assert (found["unkept"], found[odd.topic]) == (None, None)


def test_memory_is_sampled_once_a_minute_and_of_few_topics_in_a_request(monkeypatch):
    monkeypatch.setattr(summaries, "SAMPLED_TOPICS", 1)
    layouts = [a_layout(options=Options(index=1)) for _ in range(2)]
    reader, samples = StoredTopic(layouts[0], *(b"%d" % number for number in range(50))), MemorySamples()
    reader.publish(layouts[1])
    reader.add(b"1")

    def sampled() -> list[bool]:
        found = summarized(reader, *(layout.topic for layout in layouts), samples=samples)
        return [each["memory_bytes"] is not None for each in found.values()]

    def asked() -> int:
        return sum(words[0] == b"MEMORY" for run in reader.state.runs for words in run)

    assert sampled() == [True, False]
    first = asked()
    assert 0 < first <= summaries.SAMPLED_LANES * (summaries.SAMPLED_KEYS + 1)
    assert sampled()[0]
    second = asked()
    sampled()
    assert asked() == second
    reader.time.move(summaries.SAMPLE_S)
    sampled()
    assert asked() == second + first


def test_an_answer_ends_before_the_topic_that_has_too_many_lanes(monkeypatch):
    monkeypatch.setattr(summaries, "MOST_LANES", 10)
    layouts = [a_layout(partition_count=count) for count in (11, 1, 9)]
    reader = Reader(*map(layout_entry, layouts))
    large, small, last = (layout.topic for layout in layouts)
    assert [*summarized(reader, large, small)] == [large]
    assert [*summarized(reader, small, "unkept", last, "unseen")] == [small, "unkept", last, "unseen"]
    assert [*summarized(reader, small, last, large, "unseen")] == [small, last]


def test_partitions_are_listed_by_node():
    layout = a_layout(partition_count=9)
    state = FakeState(layout_entry(layout))
    found = partitions_by_node(Reader(state=state).store, layout.topic, 1000)
    assert found == {"redis-0:7000": [0, 1, 2], "redis-1:7000": [3, 4, 5], "redis-2:7000": [6, 7, 8]}


def test_a_partition_on_several_nodes_is_named_by_each():
    layout = a_layout(partition_count=1, stripes=3)
    state = FakeState(layout_entry(layout))
    found = partitions_by_node(Reader(state=state).store, layout.topic, 1000)
    assert found == {f"redis-{number}:7000": [0] for number in range(3)}


def test_an_unknown_topic_is_refused():
    with pytest.raises(UnknownTopic):
        described(FakeState(), "nowhere")


@pytest.mark.parametrize(("begun", "percent"), [(3, 40), (2, None)])
def test_a_topic_says_which_generation_is_built_beside_it_and_how_far_it_is(begun, percent):
    layout = a_layout(partition_count=3, generation=4)
    building = replace(layout, generation=5)
    state = FakeState(layout_entry(layout))
    fields = {"building": json.loads(codec.encode_layout(building))}
    state.entries[redis_keys.record_key(layout.topic)] = json.dumps(fields).encode()
    for lane in lanes_of_topic(building)[:begun]:
        state.entries[lane.watermark_key] = codec.encode_watermark(a_watermark(40, log_end=100))
    document = json.loads(render_topic(described(state, layout.topic), NOW_MS).body or "")
    assert document["next"] == {"generation": 5, "percent": percent}


@pytest.mark.parametrize("record", [b"{}", b'{"building": null}', b"not JSON", b'{"building": {"topic": 1}}'])
def test_a_record_without_a_valid_building_says_nothing_of_a_next_generation(record):
    layout = a_layout()
    state = FakeState(layout_entry(layout))
    state.entries[redis_keys.record_key(layout.topic)] = record
    assert "next" not in json.loads(render_topic(described(state, layout.topic), NOW_MS).body or "")


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
