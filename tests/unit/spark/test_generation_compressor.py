"""Which dictionary a process compresses with, and when it looks for another one, over a store's double."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from tests.support.compressed import dictionary_of, order, reading, records_of, value_of
from tests.support.fakes import FakeTime

from keylane.errors import StateUnavailable
from keylane.model.records import Layout, Options
from keylane.state.compression import MOST_DICTIONARIES, hash_id, read_head
from keylane_spark.lanes.dictionaries import PAUSE_MS, GenerationCompressor
from keylane_spark.rows import compression
from keylane_spark.rows.compression import FEWEST_SAMPLES

LAYOUT = Layout("orders", 3, options=Options(compression="zstd"))
ORDERS = dictionary_of([order(number) for number in range(500)])
READINGS = dictionary_of([reading(number) for number in range(500)])


@dataclass
class NotedStore:
    """The dictionaries of a generation, and what was asked for."""

    stored: dict[int, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    away: frozenset[str] = frozenset()
    has_turn: bool = True

    def read(self, *_: object) -> dict[int, bytes]:
        self._note("read")
        return dict(self.stored)

    def add(self, _topic: str, _generation: int, dictionary: bytes) -> None:
        self._note("add")
        self.stored[hash_id(dictionary)] = dictionary

    def takes_turn(self, *_: object) -> bool:
        self._note("turn")
        return self.has_turn

    def end_turn(self, *_: object) -> None:
        self._note("end")
        self.has_turn = False

    def _note(self, what: str) -> None:
        self.asked.append(what)
        if what in self.away:
            raise StateUnavailable("Redis is away")


class Process:
    """A process that compresses the values of a generation."""

    def __init__(self, *dictionaries: bytes, **store: object) -> None:
        self.time = FakeTime()
        self.store = NotedStore({hash_id(each): each for each in dictionaries}, **store)
        self.said: list[str] = []
        self._compressor = GenerationCompressor(self.store, LAYOUT, self.time.clock, self.said.append)

    def compress(self, *values: bytes) -> set[int]:
        """Compress values; returns the ids of the dictionaries that were used."""
        records = self._compressor.compress(records_of(values))
        used = set()
        marks = [False] * len(values) if records.compressed is None else records.compressed.tolist()
        for value, stored, is_frame in zip(values, records.values.to_pylist(), marks, strict=True):
            if is_frame:
                used.add(read_head(stored).dictionary_id)
                dictionary = self.store.stored[read_head(stored).dictionary_id] if max(used) else b""
                assert value_of(stored, dictionary) == value
            else:
                assert stored == value
        return used

    def asked(self) -> list[str]:
        found, self.store.asked = self.store.asked, []
        return found


def orders(count: int, first: int = 0) -> list[bytes]:
    return [order(number) for number in range(first, first + count)]


def readings(count: int, first: int = 0) -> list[bytes]:
    return [reading(number) for number in range(first, first + count)]


def test_enough_values_make_a_dictionary_at_once_and_it_is_stored_before_it_is_used():
    process = Process()
    assert process.compress(*orders(FEWEST_SAMPLES)) == set(process.store.stored)
    assert process.asked() == ["read", "turn", "add", "end"]
    assert process.compress(*orders(1000, first=1000)) == set(process.store.stored)
    assert process.asked() == []
    assert len(process.said) == 1


def test_few_values_wait_for_more_and_redis_is_asked_every_five_seconds_at_most():
    process = Process()
    for number in range(FEWEST_SAMPLES - 1):
        process.compress(order(number))
    assert process.asked() == ["read"]
    process.time.move(5)
    process.store.stored = {hash_id(ORDERS): ORDERS}
    assert process.compress(order(1)) == {hash_id(ORDERS)}
    assert process.asked() == ["read"]


def test_of_the_dictionaries_that_are_stored_the_best_one_is_taken():
    process = Process(READINGS, ORDERS)
    assert process.compress(*orders(3)) == {hash_id(ORDERS)}
    assert Process(READINGS, ORDERS).compress(*readings(3)) == {hash_id(READINGS)}


def test_who_has_no_turn_waits_for_the_first_dictionary_once():
    process = Process(has_turn=False)
    process.time.on_pause = lambda: (
        process.store.stored.update({hash_id(ORDERS): ORDERS}) if len(process.time.pauses) == 3 else None
    )
    assert process.compress(*orders(200)) == {hash_id(ORDERS)}
    assert len(process.time.pauses) == 3
    other = Process(has_turn=False)
    assert other.compress(*orders(200)) <= {0}
    assert sum(other.time.pauses) == pytest.approx(2, abs=0.1)
    waited = len(other.time.pauses)
    other.time.move(5)
    other.compress(*orders(200))
    assert len(other.time.pauses) == waited
    other.store.has_turn = True
    other.time.move(5)
    assert other.compress(*orders(200)) == set(other.store.stored)


def test_a_store_that_is_away_is_asked_every_thirty_seconds_and_values_need_no_dictionary():
    process = Process(away={"read"})
    for _ in range(20):
        assert process.compress(*orders(200)) <= {0}
    assert process.asked() == ["read"]
    assert process.said == [
        "topic 'orders', generation 1: dictionaries can't be read or stored: Redis is away"
    ]
    process.time.move(30)
    process.store.away = frozenset()
    assert process.compress(*orders(200)) == set(process.store.stored)


def test_a_dictionary_that_can_not_be_stored_is_not_used():
    process = Process(away={"add"})
    assert process.compress(*orders(200)) <= {0}
    assert process.asked() == ["read", "turn", "add"]


def test_values_of_which_no_dictionary_is_worth_it_are_left_alone_for_ten_minutes():
    source = random.Random(1)
    process = Process()
    for _ in range(10):
        assert process.compress(*(source.randbytes(200) for _ in range(200))) == set()
    assert process.asked() == ["read", "turn", "end"]
    process.time.move(PAUSE_MS / 1000)
    process.store.has_turn = True
    assert process.compress(*orders(200)) == set(process.store.stored)


def test_another_kind_of_value_gets_another_dictionary_once_it_is_time(monkeypatch):
    monkeypatch.setattr(compression, "WINDOW_BYTES", 10_000)
    process = Process()
    first = process.compress(*orders(300))
    for number in range(2):
        assert process.compress(*readings(100, first=100 * number)) == first
    process.asked()
    process.compress(*readings(100, first=300))
    assert process.asked() == ["read", "turn"]  # somebody has made one a moment ago
    process.store.has_turn = True
    process.time.move(5)
    second = process.compress(*readings(100, first=400))
    assert second == set(process.store.stored) - first
    assert process.compress(*readings(5)) == second


def test_a_generation_has_eight_dictionaries_at_most(monkeypatch):
    monkeypatch.setattr(compression, "WINDOW_BYTES", 10_000)
    others = [dictionary_of([b"<%d %d>" % (kind, each) * 9 for each in range(300)]) for kind in range(7)]
    process = Process(ORDERS, *others)
    assert len(process.store.stored) == MOST_DICTIONARIES
    assert process.compress(*orders(300)) == {hash_id(ORDERS)}
    for number in range(10):
        process.compress(*readings(100, first=100 * number))
    assert {"turn", "add"} & set(process.asked()) == set()
    assert len(process.store.stored) == MOST_DICTIONARIES
