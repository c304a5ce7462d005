"""Readers of compressed values: dictionaries from their copies, bounds, and answers that are the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.builders import NOW_MS, a_layout, value_key
from tests.support.compressed import dictionary_of, frame_of, order, reading
from tests.support.stored import StoredTopic

from keylane.errors import CorruptState, StateUnavailable, TooLarge
from keylane.model.records import Options
from keylane.query import dictionaries
from keylane.query.history_entries import PAGE_BYTES
from keylane.state import codec, redis_keys
from keylane.state.compression import Dictionary
from keylane.state.redis_keys import COPY_TAGS, RECORD_TAG

DICTIONARY = dictionary_of([order(number) for number in range(500)])
OTHER = dictionary_of([reading(number) for number in range(500)])
TAGS = (RECORD_TAG, *COPY_TAGS)


class CompressedTopic(StoredTopic):
    """A topic with compressed values, and a dictionary in its three copies."""

    def __init__(self, *keys: bytes, **options) -> None:
        super().__init__(a_layout(options=Options(compression="zstd", index=1, **options)))
        self.give(DICTIONARY, *TAGS)
        for number, key in enumerate(keys):
            self.add(key)
            self.compress(key, order(number))

    @property
    def field(self) -> bytes:
        return redis_keys.dictionary_field(self.layout.generation, Dictionary(DICTIONARY).id)

    def give(self, data: bytes, *tags: bytes) -> None:
        for tag in tags:
            self.state.hashes[redis_keys.dictionaries_key(self.layout.topic, tag)] = {self.field: data}

    def lose(self, *tags: bytes) -> None:
        for tag in tags:
            self.state.hashes.pop(redis_keys.dictionaries_key(self.layout.topic, tag))

    def compress(self, key: bytes, value: bytes, dictionary: bytes = DICTIONARY) -> None:
        frame = frame_of(value, dictionary)
        envelope = codec.encode_record(frame, 1, NOW_MS, compressed=True)
        self.state.entries[value_key(self.layout, key)] = envelope

    def remember(self, key: bytes, *members: bytes) -> None:
        """Set the history of a key, all of one time."""
        name = value_key(self.layout, key).replace(b":v:", b":h:")
        self.state.sorted_sets[name] = dict.fromkeys(members, float(NOW_MS))

    @property
    def asked(self) -> list[bytes]:
        """The keys of dictionaries that were asked for."""
        return [words[1] for run in self.state.runs for words in run if words[0] == b"HGET"]


def test_a_dictionary_is_read_at_the_first_value_that_names_it_and_then_kept():
    topic = CompressedTopic(b"a", b"b")
    name = topic.layout.topic
    assert topic.latest(name, b"a").record.value == order(0)
    assert topic.asked == [redis_keys.dictionaries_key(name)]
    topic.lose(*TAGS)
    assert topic.latest(name, b"b").record.value == order(1)
    assert topic.many(name, [b"b", b"a"])[0] == [(b"b", order(1)), (b"a", order(0))]
    assert [answer.record.value for _, answer in topic.page().rows] == [order(0), order(1)]
    assert len(topic.asked) == 1


def test_a_copy_is_asked_where_the_first_one_has_lost_the_dictionary():
    topic = CompressedTopic(b"a")
    topic.lose(RECORD_TAG, COPY_TAGS[0])
    assert topic.latest(topic.layout.topic, b"a").record.value == order(0)
    assert topic.asked == [redis_keys.dictionaries_key(topic.layout.topic, tag) for tag in TAGS]


@pytest.mark.parametrize("data", [b"no dictionary", OTHER])
def test_a_copy_is_asked_where_the_first_one_is_damaged(data):
    topic = CompressedTopic(b"a")
    topic.give(data, RECORD_TAG, COPY_TAGS[0])
    assert topic.latest(topic.layout.topic, b"a").record.value == order(0)


def test_a_replica_that_lags_behind_is_no_proof_that_a_dictionary_is_missing():
    topic = CompressedTopic(b"a")
    keys = [redis_keys.dictionaries_key(topic.layout.topic, tag) for tag in TAGS]
    topic.state.lagging |= dict.fromkeys(keys)
    assert topic.latest(topic.layout.topic, b"a").record.value == order(0)


def test_a_dictionary_that_is_nowhere_is_unavailable_and_other_values_are_read():
    topic = CompressedTopic(b"a", b"b")
    topic.lose(*TAGS)
    topic.add(b"b", value=b"plain")
    with pytest.raises(StateUnavailable, match=r"the dictionary \d+ of the values of topic .* is missing"):
        topic.latest(topic.layout.topic, b"a")
    assert topic.latest(topic.layout.topic, b"b").record.value == b"plain"


@pytest.mark.parametrize(
    ("data", "why"), [(b"no dictionary", "not a dictionary"), (OTHER, r"the dictionary \d+ is one of id \d+")]
)
def test_a_wrong_dictionary_is_never_used(data, why):
    topic = CompressedTopic(b"a")
    topic.give(data, *TAGS)
    with pytest.raises(CorruptState, match=why):
        topic.latest(topic.layout.topic, b"a")


def test_a_value_that_names_more_bytes_than_the_topic_takes_is_not_decompressed(monkeypatch):
    topic = CompressedTopic(b"a", max_value_bytes=1000)
    topic.compress(b"a", b"x" * 1001, b"")
    monkeypatch.setattr(Dictionary, "expand", lambda *_: pytest.fail("it was decompressed"))
    with pytest.raises(CorruptState, match="names 1001 bytes, the limit is 1000"):
        topic.latest(topic.layout.topic, b"a")


def test_values_of_one_step_are_bounded_together(monkeypatch):
    monkeypatch.setattr(dictionaries, "MOST_EXPANDED_BYTES", 10_000)
    topic = CompressedTopic(b"a", b"b")
    for key in (b"a", b"b"):
        topic.compress(key, b"x" * 6000, b"")
    name = topic.layout.topic
    assert len(topic.latest(name, b"a").record.value) == 6000
    with pytest.raises(TooLarge, match="the answer has 12000 bytes, the limit is 10000"):
        topic.many(name, [b"a", b"b"])
    page = topic.page()  # reads fewer at once
    assert [(key, len(answer.record.value)) for key, answer in page.rows] == [(b"a", 6000)]
    assert page.next_after == b"a"


def test_a_page_ends_by_what_its_values_are_and_not_by_what_redis_has():
    keys = [b"%02d" % number for number in range(10)]
    topic = CompressedTopic(*keys, history_count=20)
    for key in keys:
        topic.compress(key, b"x" * (PAGE_BYTES // 2 + 1), b"")
    rows = topic.page().rows
    assert [key for key, _ in rows] == keys[:1]
    members = [
        offset.to_bytes(8) + b"\x00\x40" + NOW_MS.to_bytes(8) + frame_of(b"x" * (PAGE_BYTES // 2 + 1))
        for offset in range(5)
    ]
    topic.remember(keys[0], *members)
    first = topic.history(keys[0])
    assert [entry.position.offset for entry in first.entries] == [4]
    second = topic.history(keys[0], after=first.next_after)
    assert [entry.position.offset for entry in second.entries] == [3]


def test_a_record_that_is_twice_in_a_history_since_it_was_compressed_otherwise_is_shown_once():
    topic = CompressedTopic(b"a", history_count=20)
    plain = (7).to_bytes(8) + b"\x01\0" + NOW_MS.to_bytes(8) + order(1)
    with_dictionary = plain[:8] + b"\x00\x40" + plain[10:18] + frame_of(order(1), DICTIONARY)
    deleted = plain[:8] + b"\x01\x02" + plain[10:18]
    topic.remember(b"a", plain, with_dictionary, deleted, (6).to_bytes(8) + plain[8:])
    entries = topic.history(b"a").entries
    found = [(entry.position.offset, entry.record and entry.record.value) for entry in entries]
    assert found == [(7, None), (7, order(1)), (6, order(1))]
    assert topic.as_of(b"a", NOW_MS).record.value == order(0)


def test_as_many_dictionaries_are_kept_as_are_read_often(monkeypatch):
    monkeypatch.setattr(dictionaries, "MOST_KEPT", 2)
    layout = a_layout(options=Options(compression="zstd"))
    kept = dictionaries.Dictionaries()
    layouts = [replace(layout, generation=generation) for generation in range(1, 5)]
    for each in layouts:
        kept.keep(each, Dictionary(DICTIONARY))
    found = [kept.known(each, Dictionary(DICTIONARY).id) is not None for each in layouts]
    assert found == [False, False, True, True]
