"""What listeners with a scope are sent of a topic's changes, over fakes of Redis and Kafka."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import in_part, layout_entry
from tests.support.changing_topic import TERMS, ChangingTopic

from keylane.access.scopes import KeyRule, PermittedRows, Scope, ScopeRule
from keylane.api.reads import scoped_changes
from keylane.api.reads.change_conditions import ConditionedChanges
from keylane.api.reads.change_sources import KeyChanges, TopicChanges
from keylane.api.reads.changes import ChangesRequest, any_key, parse_topic_id
from keylane.api.reads.scoped_changes import ScopedChanges
from keylane.errors import OutsideScope, ScopeTooWide
from keylane.model.changes import ABSENT, GAP, LEFT, RECORD, ChangeEvent
from keylane.model.records import Options
from keylane.ports import Deadline, WaitBudget
from keylane.query.changes import ChangeReader, TopicPosition
from keylane.query.conditions import EQUAL, Asked
from keylane.query.decoding import ValueDecoder
from keylane.query.row_scopes import RowScopes
from keylane.query.scoped_decoding import ScopedDecoder
from keylane.query.store import begin_reading
from keylane.state import redis_keys
from keylane.state.field_index import cut_entries, indexes_of
from keylane.state.lanes import lane_of_key

if TYPE_CHECKING:
    from collections.abc import Sequence

OPTIONS = Options(index=1, fields=(("status", "text"), ("tenant", "text")))
ACME = PermittedRows("own", where=(("tenant", ("acme",)),))


def a_value(tenant: str, **more: object) -> bytes:
    return json.dumps({"tenant": tenant, **more}).encode()


class IndexedTopic(ChangingTopic):
    """A changing topic with its indexes."""

    def put(self, key: bytes, value: bytes | None, source: int | None = None) -> None:
        super().put(key, value, source)
        lane = lane_of_key(self.layout, key)
        of_lane = lane.tag, self.layout.topic, self.layout.generation, lane.partition, lane.stripe
        for members in self.state.sorted_sets.values():
            for member in [each for each in members if each.split(b"\0")[-1] == key]:
                del members[member]
        if value is None:
            return
        self._index(redis_keys.index_key(*of_lane), key, key)
        for entry in cut_entries(indexes_of(self.options).entries(json.loads(value))[0]):
            self._index(redis_keys.field_index_key(*of_lane, entry[0]), entry[2:] + b"\0" + key, key)

    def _index(self, name: bytes, member: bytes, key: bytes) -> None:
        self.state.sorted_sets.setdefault(in_part(name, key, 1), {})[member] = 0.0

    def within(self, scope: Scope) -> ChangeReader:
        """What reads the changes for a caller with a scope."""
        plain = ValueDecoder(lambda: pytest.fail("no schemas"), WaitBudget(0, self.clock))
        scopes = RowScopes(scope, plain.decode, lambda *_: ())
        return ChangeReader(
            replace(self.store, scopes=scopes),
            lambda: self.kafka,
            lambda **_: ScopedDecoder(plain, plain, scopes),
        )


class ScopedListener:
    """A client with a scope; `has`: the records that it was left with, `names`: the keys of all events."""

    def __init__(
        self,
        topic: IndexedTopic,
        *rows: PermittedRows,
        since: TopicPosition | None = None,
        asked: tuple[Asked, ...] = (),
    ) -> None:
        scope = Scope("eve", tuple(ScopeRule(each, read=("*",)) for each in rows))
        reader = topic.within(scope)
        request = ChangesRequest(topic.layout.topic, b"", TERMS, None, since, asked=asked)
        conditioned = ConditionedChanges(asked, topic.reader.decoder).choose if asked else None
        assert reader.store.scopes is not None
        self.source = TopicChanges(topic.reader, request)
        self.changes = ScopedChanges(reader, request, reader.store.scopes, conditioned)
        self.has: dict[bytes, Any] = {}
        self.names: set[bytes] = set()
        self.data: list[str] = []
        self.is_closed = False
        self.id = ""
        self.changes.open(self._open, self.source, any_key)

    def _open(self, source: TopicChanges, since: TopicPosition | None, *_: Any) -> Any:
        source.start()
        self.begun = since
        return self

    def close(self) -> None:
        self.is_closed = True

    def catch_up(self) -> list[tuple[str, bytes]]:
        events, _ = self.source.catch_up(self.begun, any_key)
        return self.take(events)

    def hear(self) -> list[tuple[str, bytes]]:
        """The events of one poll: their names and keys."""
        return self.take(self.source.wait(0.2))

    def take(self, events: Sequence[ChangeEvent]) -> list[tuple[str, bytes]]:
        heard = []
        for event in filter(None, map(self.changes.choose, events)):
            self.data.append(event.data)
            self.id = event.id or self.id
            if event.key:
                self.names.add(event.key)
            if event.name == RECORD:
                self.has[event.key] = json.loads(event.data)["value"]
            elif event.name in {ABSENT, LEFT}:
                self.has.pop(event.key, None)
            if event.name:
                heard.append((event.name, event.key))
        return heard


@pytest.fixture
def topic() -> IndexedTopic:
    topic = IndexedTopic(options=OPTIONS)
    topic.apply_all()
    return topic


def test_a_row_that_leaves_is_left_without_its_value(topic: IndexedTopic):
    key = topic.key_in(0)
    topic.put(key, a_value("acme"))
    listener = ScopedListener(topic, ACME)
    topic.put(key, a_value("zoo", pin="1234"))
    assert listener.hear() == [(LEFT, key)]
    assert "1234" not in "".join(listener.data)
    assert json.loads(listener.data[0])["key"] == key.decode()


def test_of_a_row_that_was_never_permitted_nothing_is_sent(topic: IndexedTopic):
    """The new row alone would say `left`, and name it."""
    listener, key = ScopedListener(topic, ACME), topic.key_in(1)
    for value in (a_value("zoo"), a_value("zoo", n=2), None, a_value("bar")):
        topic.put(key, value)
        assert listener.hear() == []
    topic.put(key, a_value("acme"))
    assert listener.hear() == [(RECORD, key)]
    topic.put(key, None)
    assert listener.hear() == [(ABSENT, key)]
    topic.put(key, a_value("zoo"))
    assert listener.hear() == []


def test_values_are_sent_with_the_fields_that_the_rule_shows(topic: IndexedTopic):
    listener, key = ScopedListener(topic, replace(ACME, fields=("status",))), topic.key_in(0)
    topic.put(key, a_value("acme", status="open", pin="1234"))
    assert listener.hear() == [(RECORD, key)]
    assert listener.has[key] == {"status": "open"}


def test_keys_alone_decide_where_no_rule_compares_fields(topic: IndexedTopic):
    inside, outside = topic.key_in(0), topic.key_in(1)
    listener = ScopedListener(topic, PermittedRows("own", KeyRule(inside.decode())))
    for key in (inside, outside):
        topic.put(key, a_value("zoo"))
        topic.put(key, None)
    assert listener.hear() == [(ABSENT, inside)]
    assert listener.names == {inside}


def test_a_listener_of_fields_that_comes_again_is_told_to_read_its_keys(topic: IndexedTopic):
    key = topic.key_in(0)
    topic.put(key, a_value("acme"))
    since = TopicPosition(7, dict(topic.ends()))
    topic.put(key, a_value("zoo"))
    listener = ScopedListener(topic, ACME, since=since)
    assert listener.catch_up() == [(GAP, b"")]
    assert json.loads(listener.data[0]) == {"partition": 0, "from": 1, "to": 2}
    assert key.decode() not in "".join(listener.data)


def test_a_listener_of_keys_goes_on_where_it_was_and_one_with_other_rules_is_told_to_read_its_keys(
    topic: IndexedTopic,
):
    key, other = topic.key_in(0), topic.key_in(1)
    own = PermittedRows("own", KeyRule(key.decode()))
    before = ScopedListener(topic, own)
    before.catch_up()
    since = parse_topic_id(before.id)
    topic.put(key, a_value("acme"))
    topic.put(other, a_value("acme"))
    assert ScopedListener(topic, replace(own, rule="renamed"), since=since).catch_up() == [(RECORD, key)]
    for rules in (
        [replace(own, fields=("tenant",))],
        [replace(own, key=None)],
        [own, replace(own, key=KeyRule(other.decode()))],
    ):
        assert ScopedListener(topic, *rules, since=since).catch_up() == [(GAP, b"")]


def test_a_listener_with_rules_who_knows_a_newer_layout_has_it_read_at_once(topic: IndexedTopic):
    own = PermittedRows("own", KeyRule("a/", is_prefix=True))
    scope = Scope("eve", (ScopeRule(own, read=("*",)),))
    reader = topic.within(scope)
    assert reader.store.scopes is not None
    begin_reading(reader.store, topic.layout.topic, Deadline.after_ms(1_000, topic.clock))
    topic.state.entries |= layout_entry(replace(topic.layout, incarnation=8))
    since = TopicPosition(reader.store.scopes.of(replace(topic.layout, incarnation=8)).incarnation, {0: 0})
    begun: list[Any] = []
    request = ChangesRequest(topic.layout.topic, b"", TERMS, None, since)
    changes = ScopedChanges(reader, request, reader.store.scopes)
    changes.open(lambda _, position, *__: begun.append(position), None, any_key)  # type: ignore[arg-type]
    assert begun == [TopicPosition(8, {0: 0})]


def test_ids_stay_those_of_the_rules_when_the_topic_is_created_again(topic: IndexedTopic):
    own = PermittedRows("own", KeyRule("a/", is_prefix=True))
    listener = ScopedListener(topic, own)
    listener.catch_up()
    before = parse_topic_id(listener.id)
    topic.state.entries |= layout_entry(replace(topic.layout, incarnation=8))
    again = ScopedListener(topic, own)
    again.catch_up()
    assert len({before.incarnation, parse_topic_id(again.id).incarnation, 7, 8}) == 4


@pytest.mark.parametrize("fields", [None, ("tenant",), ("status", "tenant")])
def test_a_key_is_sent_again_to_one_to_whom_other_rules_apply(topic: IndexedTopic, fields: Any):
    key = topic.key_in(0)
    topic.put(key, a_value("acme", status="open"))
    request = ChangesRequest(topic.layout.topic, key, TERMS, None, None)

    def source_of(rows: PermittedRows) -> KeyChanges:
        source = KeyChanges(topic.within(Scope("eve", (ScopeRule(rows, read=("*",)),))), request)
        source.start()
        return source

    (event,), _ = source_of(replace(ACME, fields=("status",))).catch_up(None, any_key)
    own, other = replace(ACME, fields=("status",)), replace(ACME, fields=fields)
    assert source_of(own).catch_up(event.id, any_key)[0] == ()
    assert [each.name for each in source_of(other).catch_up(event.id, any_key)[0]] == [RECORD]


def test_conditions_are_met_among_the_permitted_rows(topic: IndexedTopic):
    listener = ScopedListener(topic, ACME, asked=(Asked("status", EQUAL, "open"),))
    key, other = topic.key_in(0), topic.key_in(1)
    topic.put(other, a_value("zoo", status="open"))
    topic.put(key, a_value("acme", status="open"))
    assert listener.hear() == [(RECORD, key)]
    topic.put(key, a_value("acme", status="paid"))
    assert listener.hear() == [(LEFT, key)]


def test_a_condition_on_a_field_that_is_not_shown_is_refused(topic: IndexedTopic):
    with pytest.raises(OutsideScope, match="do not show the field status"):
        ScopedListener(topic, replace(ACME, fields=("tenant",)), asked=(Asked("status", EQUAL, "open"),))


def test_a_topic_without_the_fields_is_refused_at_the_start():
    bare = IndexedTopic(options=Options(index=1))
    bare.apply_all()
    with pytest.raises(OutsideScope, match="compares the field 'tenant'"):
        ScopedListener(bare, ACME)


def test_too_many_keys_are_not_followed(topic: IndexedTopic, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scoped_changes, "MOST_FOLLOWED", 2)
    for number in range(3):
        topic.put(b"k%d" % number, a_value("acme"))
    with pytest.raises(ScopeTooWide):
        ScopedListener(topic, ACME)


def test_a_key_outside_is_a_key_without_a_record(topic: IndexedTopic):
    key = topic.key_in(0)
    topic.put(key, a_value("zoo"))
    scope = Scope("eve", (ScopeRule(ACME, read=("*",)),))
    request = ChangesRequest(topic.layout.topic, key, TERMS, None, None)
    source = KeyChanges(topic.within(scope), request)
    source.start()
    (event,), _ = source.catch_up(None, any_key)
    assert (event.name, event.id) == (ABSENT, "absent")
    topic.put(key, a_value("zoo", n=2))
    assert source.wait(0.2) == (), "that it has changed is not told"
    topic.put(key, a_value("acme"))
    assert [each.name for each in source.wait(0.2)] == [RECORD]
    assert source.identity != KeyChanges(topic.reader, request).identity


@pytest.mark.parametrize("seed", range(20))
def test_what_a_listener_rebuilds_is_what_it_may_see_and_no_more_is_named(topic: IndexedTopic, seed: int):
    random = Random(seed)
    keys, now, ever = [b"a/%d" % each for each in range(6)] + [b"b/1"], {}, set()
    rules = [
        ACME,
        PermittedRows("two", KeyRule("a/", is_prefix=True), (("status", ("open",)),)),
        PermittedRows("key", KeyRule("b/1")),
    ]
    rows = random.sample(rules, random.randint(1, 3))

    def is_permitted(key: bytes, value: bytes) -> bool:
        found = json.loads(value)
        return any(
            (each is ACME and found["tenant"] == "acme")
            or (each is rules[1] and key.startswith(b"a/") and found["status"] == "open")
            or (each is rules[2] and key == b"b/1")
            for each in rows
        )

    def change() -> None:
        key = random.choice(keys)
        value = (
            None
            if random.random() < 0.2
            else a_value(random.choice(["acme", "zoo"]), status=random.choice(["open", "paid"]))
        )
        topic.put(key, value)
        now.pop(key, None)
        if value is not None and is_permitted(key, value):
            now[key] = json.loads(value)
            ever.add(key)

    for _ in range(5):
        change()
    listener = ScopedListener(topic, *rows)
    listener.has = dict(now)
    for _ in range(40):
        for _ in range(random.randint(1, 3)):
            change()
        listener.hear()
        assert listener.has == now
    assert listener.names <= ever | ({b"b/1"} if rules[2] in rows else set())
