"""What a start does with a topic: which generation is served, which is built, which are removed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from keylane.errors import BadConfig
from keylane.model.records import Layout, Options
from keylane.state.codec import CodecError, encode_layout
from keylane_spark.config.topics import TopicConfig
from keylane_spark.generations.plan import GenerationPlan, difference, is_alike, plan, wanted_layout
from keylane_spark.lanes.topic_record import Owner, TopicRecord

OWNER = Owner("host", 7, 1_357_034_400_000, 3)
EPOCH = 1_357_034_400_001
SERVED = Layout("orders", 9, 1, "murmur2", 4)


def a_record(**fields: Any) -> TopicRecord:
    return replace(TopicRecord("id", (0,) * 9, OWNER), **fields)


def planned(
    config: str | None = None,
    partitions: int = 9,
    kept: Layout | None = SERVED,
    record: TopicRecord | None = None,
    unusable: str = "",
    stale: str = "",
) -> GenerationPlan:
    """The plan where this field of the config is changed as CHANGES has it."""
    table = TopicConfig(**({config: CHANGES[config]} if config else {}))
    wanted = replace(wanted_layout("orders", partitions, table), incarnation=EPOCH)
    return plan(
        wanted,
        kept,
        record or a_record(),
        unusable=unusable,
        stale=stale,
        free=lambda layout: replace(layout, generation=5),
    )


CHANGES: dict[str, Any] = {
    "stripes": 3,
    "partitioner": "crc32",
    "partition_by": "prefix:|",
    "ttl": "1h",
    "history_count": 5,
    "history_age": "1d",
    "index": True,
    "insert_once": True,
    "headers": True,
    "guarded": True,
    "max_value_bytes": 10,
    "envelope": "debezium",
    "where": "offset > 1",
    "select": "value as v",
    "transform": "transforms:upper",
    "fields": {"status": "text"},
}


def test_a_new_topic_is_served_in_a_generation_that_nothing_uses():
    assert planned(kept=None) == GenerationPlan(replace(SERVED, generation=5, incarnation=EPOCH))


def test_a_state_in_older_slots_is_built_again_beside():
    older = replace(SERVED, centered=False)
    found = planned(kept=older)
    assert (found.serving, found.building) == (older, replace(SERVED, generation=5))
    assert "slot the first of its share -> the middle of its share" in found.why
    continued = planned(kept=older, record=a_record(building=found.building))
    assert (continued.serving, continued.building) == (older, found.building)


def test_a_state_that_begins_again_has_another_incarnation_and_one_that_is_rebuilt_has_not():
    kept = replace(SERVED, incarnation=3)
    assert planned(kept=None).serving.incarnation == EPOCH
    assert planned(kept=kept, unusable="deleted and created again").serving.incarnation == EPOCH
    rebuilt = planned("stripes", kept=kept)
    assert rebuilt.building
    assert (rebuilt.serving.incarnation, rebuilt.building.incarnation) == (3, 3)
    assert is_alike(kept, SERVED)


@pytest.mark.parametrize("field", CHANGES)
def test_other_values_at_the_same_positions_are_of_another_incarnation(field: str):
    building = planned(field, kept=replace(SERVED, incarnation=3)).building
    assert building
    others = {"ttl", "insert_once", "max_value_bytes", "envelope", "where", "select", "transform", "headers"}
    assert building.incarnation == (EPOCH if field in others else 3)


OTHER_FORMS: dict[str, Any] = {
    "value_format": "json",
    "key_fields": (("id", "integer"),),
    "key_schema": "{}",
    "key_format": "registry",
}


@pytest.mark.parametrize("option", OTHER_FORMS)
def test_what_is_shown_otherwise_in_place_is_of_another_incarnation(option: str):
    kept = replace(SERVED, incarnation=3)
    changed = replace(kept.options, **{option: OTHER_FORMS[option]})
    wanted = replace(kept, generation=0, options=changed, incarnation=EPOCH)

    def made(built: Layout | None = None, **more: Any) -> GenerationPlan:
        record = a_record(building=built)
        return plan(replace(wanted, **more), kept, record, free=lambda layout: replace(layout, generation=9))

    in_place = replace(kept, options=changed, incarnation=EPOCH)
    assert made() == GenerationPlan(in_place)
    beside = made(stripes=3)
    assert (beside.serving, beside.building) == (in_place, replace(in_place, stripes=3, generation=9))
    continued = made(replace(kept, stripes=3, generation=7), stripes=3)
    assert (continued.serving, continued.building) == (in_place, replace(in_place, stripes=3, generation=7))


def test_what_serves_is_shown_as_before_while_other_values_are_built_beside_it():
    kept = replace(SERVED, incarnation=3)
    options = replace(kept.options, transform="{}", value_format="json", marker_ms=7)
    wanted = replace(kept, generation=0, options=options, incarnation=EPOCH)
    serving = replace(kept, options=replace(kept.options, marker_ms=7))
    made = plan(wanted, kept, a_record(), free=lambda layout: replace(layout, generation=9))
    assert (made.serving, made.building) == (serving, replace(wanted, generation=9))
    later = replace(wanted, incarnation=EPOCH + 1)
    again = plan(later, kept, a_record(building=made.building), free=lambda layout: layout)
    assert (again.serving, again.building) == (serving, made.building)


def test_a_topic_that_is_as_it_was_goes_on():
    assert planned() == GenerationPlan(SERVED)


@pytest.mark.parametrize("field", CHANGES)
def test_whatever_changes_what_is_stored_is_built_beside_what_is_served(field: str):
    made = planned(field)
    assert made.serving == SERVED
    assert made.building
    assert made.building.generation == 5
    assert made.remove == frozenset()
    is_transform = field in {"where", "select", "transform"}
    assert ("its transform has changed" if is_transform else field.removesuffix("_age")) in made.why


def test_another_version_of_a_transform_is_built_beside_and_what_its_failures_do_changes_in_place():
    def wanted(**table: Any) -> Layout:
        return wanted_layout("orders", 9, TopicConfig(transform="transforms:upper", **table))

    assert is_alike(wanted(), wanted(on_error="skip"))
    assert not is_alike(wanted(transform_version="1"), wanted(transform_version="2"))


@pytest.mark.parametrize(
    ("field", "value", "options", "incarnation"),
    [
        ("tombstone_marker", "1h", Options(marker_ms=3_600_000), SERVED.incarnation),
        ("value_format", "registry", Options(value_format="registry"), EPOCH),
        ("key_fields", {"id": "integer"}, Options(key_fields=(("id", "integer"),)), EPOCH),
    ],
)
def test_what_changes_no_stored_record_changes_in_place(monkeypatch, field, value, options, incarnation):
    """How long markers last; what readers take values and keys for, which makes other answers of them."""
    monkeypatch.setitem(CHANGES, field, value)
    assert planned(field) == GenerationPlan(replace(SERVED, options=options, incarnation=incarnation))


def test_partitions_that_a_topic_got_are_built_beside():
    made = planned(partitions=18)
    assert made.serving == SERVED
    assert made.building == replace(SERVED, partition_count=18, generation=5)
    assert "partition_count 9 -> 18" in made.why


def test_what_was_being_built_goes_on_and_what_is_no_longer_wanted_is_removed():
    built = replace(SERVED, stripes=3, generation=6)
    record = a_record(building=built)
    assert planned("stripes", record=record).building == built
    other = planned("partitioner", record=record)
    assert other.building == replace(SERVED, partitioner="crc32", generation=5)
    assert other.remove == {6}
    back = planned(record=record)
    assert (back.building, back.remove) == (None, {6})


def test_a_state_that_may_hold_deleted_keys_is_built_again_in_its_own_layout_while_it_serves():
    made = planned(stale="it was away")
    # Listeners of the topic were never sent what it missed, and no record of the log says it any more.
    again = replace(SERVED, generation=5, incarnation=EPOCH)
    assert made == GenerationPlan(SERVED, again, why="it was away: builds generation 5 beside 4")
    record = a_record(building=again)
    assert planned(record=record) == GenerationPlan(SERVED, again, why="continues to build generation 5")
    other = planned("stripes", record=record, stale="it was away")
    assert other.building == replace(again, stripes=3)
    assert other.remove == {5}
    assert other.why.startswith("it was away, stripes 1 -> 3: ")


def test_a_layout_that_would_have_too_many_lanes_is_built_again_as_it_is():
    made = planned("stripes", partitions=16_000, stale="it was away")
    assert made.building == replace(SERVED, generation=5, incarnation=EPOCH)
    assert "keeps its present layout, it was away: builds generation 5" in made.why


def test_a_state_that_is_not_the_topic_s_begins_again_and_all_of_it_is_removed():
    record = a_record(building=replace(SERVED, stripes=3, generation=6))
    made = planned(record=record, unusable="it was deleted and created again")
    assert made == GenerationPlan(
        replace(SERVED, generation=5, incarnation=EPOCH),
        None,
        frozenset({4, 6}),
        "it was deleted and created again",
    )


def test_more_lanes_than_slots_are_refused_or_leave_the_layout_as_it_is():
    made = planned("stripes", partitions=16_000)
    assert made.building is None
    assert "more than 16384 lanes" in made.why
    with pytest.raises(BadConfig, match="more than 16384 lanes"):
        planned("stripes", partitions=16_000, kept=None)


def test_generations_numbers_make_no_difference():
    assert is_alike(SERVED, replace(SERVED, generation=9))
    assert not is_alike(SERVED, replace(SERVED, stripes=2))


def test_a_record_comes_back_as_it_was_written():
    building = replace(SERVED, options=Options(index=True))
    record = a_record(building=building, remove=(1, 2), read_since_ms={4: 17, 5: 19})
    assert TopicRecord.from_json(record.to_json()) == record
    assert json.loads(record.to_json())["building"] == json.loads(encode_layout(building))
    assert record.removing([2, 9]).remove == (1, 2, 9)
    assert record.removed(1).remove == (2,)
    switched = record.switched(4)
    assert (switched.building, switched.remove) == (None, (1, 2, 4))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"topic_id": "x", "building": null, "owner": {}}'])
def test_what_is_not_a_record_is_an_error(data: bytes):
    with pytest.raises(CodecError, match="not a topic record"):
        TopicRecord.from_json(data)


@pytest.mark.parametrize(
    ("before", "after", "is_built"),
    [("auto", "registry", True), ("registry", "json", True), ("auto", "json", False)],
)
def test_fields_are_indexed_again_where_values_are_decoded_otherwise_and_not_where_they_are_shown_so(
    before, after, is_built
):
    options = Options(index=1, fields=(("status", "text"),), value_format=before)
    kept = replace(SERVED, options=options)
    wanted = replace(kept, generation=0, options=replace(options, value_format=after))
    found = plan(wanted, kept, None, free=lambda layout: replace(layout, generation=9))
    if is_built:
        assert (found.serving, found.building) == (kept, replace(wanted, generation=9))
        assert found.why == f"value_format {before} -> {after}: builds generation 9 beside {kept.generation}"
    else:
        assert found == GenerationPlan(replace(kept, options=wanted.options))


def test_fields_that_change_are_named_one_by_one():
    def layout(*fields: tuple[str, str]) -> Layout:
        return Layout("t", 3, options=Options(fields=fields))

    before = layout(("city", "text"), ("lat", "number"), ("old", "text"))
    after = layout(("city", "texts"), ("lat", "number"), ("longitude", "number"))
    assert difference(before, after) == (
        "fields city (text) -> (texts), fields + longitude (number), fields - old"
    )
