"""Topics whose values are compressed, on a real cluster: lanes, dictionaries, and what readers get."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from tests.support import lanes as t
from tests.support.begun import Run
from tests.support.compressed import order, reading, records_of

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.errors import StateUnavailable
from keylane.model.records import Layout, Options
from keylane.query.conditions import EQUAL, Asked
from keylane.query.find import find as find_page
from keylane.query.finder import FindScan
from keylane.query.history import read_history
from keylane.query.history_entries import HistoryScan
from keylane.query.latest import read_latest
from keylane.query.layouts import Layouts
from keylane.query.multi_get import read_many
from keylane.query.ranges import read_range
from keylane.query.span import RangeScan, Span
from keylane.query.store import ReadTerms, Store
from keylane.state import codec, redis_keys
from keylane_spark.lanes.dictionaries import Compressors, DictionaryStore
from keylane_spark.lanes.function_library import DEFAULTS
from keylane_spark.lanes.lane import LaneTarget, OffsetRange, lanes_of
from keylane_spark.lanes.record_copies import SLOTS, RecordCopies
from keylane_spark.rows.records import Rows
from keylane_spark.stream.batch_writer import BatchWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from keylane.model.records import Record

NUMBERS = itertools.count()
PARTITIONS = 3
TERMS = ReadTerms(timeout_ms=5_000)
FIELDS = (("city", "text"), ("items", "number"))


@dataclass
class Scene:
    """A topic of a run, its processes that write, and what was written last under each key."""

    nodes: str
    run: Run
    layout: Layout
    said: list[str] = field(default_factory=list)
    written: dict[bytes, bytes | None] = field(default_factory=dict)
    next_offsets: Counter[int] = field(default_factory=Counter)

    def process(self) -> Compressors:
        """What a process compresses with that has just begun."""
        return Compressors(t.settings(self.nodes), DEFAULTS, t.CLOCK, self.said.append)

    def write(
        self,
        compress: Compressors,
        values: Mapping[bytes, bytes | None],
        partitions: Mapping[bytes, int] | None = None,
        *,
        in_task: bool = False,
    ) -> None:
        """Write values to the partitions of their keys, or elsewhere, as a batch; the lanes are complete.

        `in_task`: as a task does, which does not say that they are, and may write by transactions.
        """
        rows: dict[int, list[tuple[bytes, bytes | None]]] = {each: [] for each in range(PARTITIONS)}
        for key, value in values.items():
            own = routing.partition_for(key, PARTITIONS)
            rows[(partitions or {}).get(key, own)].append((key, value))
        topic = self.layout.topic
        now_ms = t.CLOCK.now_ms()
        ranges = {
            (topic, each): OffsetRange(
                begin := self.next_offsets[each], begin + len(own), now_ms, begin + len(own)
            )
            for each, own in rows.items()
        }
        writer = BatchWriter(self.run.writer, {topic: self.layout}, ranges, compress=compress)
        for partition, own in rows.items():
            if own:
                offsets = np.arange(len(own)) + self.next_offsets[partition]
                columns = (pa.array(each, pa.binary()) for each in zip(*own, strict=True))
                writer.write((topic, partition), Rows(offsets, offsets + t.BASE_MS, *columns))
                self.next_offsets[partition] += len(own)
        if in_task:
            writer.finish_reached()
        else:
            writer.finish(list(ranges))
        self.written |= values

    def stored(self, *keys: bytes) -> list[bytes]:
        """The envelopes of keys in Redis."""
        with t.client(self.nodes) as client:
            return client.mget_nonatomic([self.lane(key).key_prefix + key for key in keys])

    def lane(self, key: bytes) -> LaneTarget:
        return LaneTarget.of(self.layout, routing.partition_for(key, PARTITIONS), 0)

    def is_compressed(self, key: bytes) -> bool:
        (envelope,) = self.stored(key)
        return bool(envelope[1] & codec.COMPRESSED)

    @contextlib.contextmanager
    def reader(self) -> Iterator[Store]:
        """A process that has read nothing yet."""
        with contextlib.closing(RedisState(Cluster(t.settings(self.nodes)))) as state:
            yield Store(state, Layouts(state, t.CLOCK, 60), t.CLOCK)

    def read(self, *keys: bytes) -> dict[bytes, bytes | None]:
        with self.reader() as store:
            return values_of(store, self.layout.topic, *keys)

    def dictionaries(self) -> dict[int, bytes]:
        with contextlib.closing(Cluster(t.settings(self.nodes))) as cluster:
            return self.store(cluster).read(self.layout.topic, self.layout.generation)

    def store(self, cluster: Cluster) -> DictionaryStore:
        return DictionaryStore(RecordCopies(cluster, t.CLOCK, DEFAULTS, self.said.append))

    def forget_copies(self, *tags: bytes) -> None:
        with t.client(self.nodes) as client:
            for tag in tags:
                client.delete(redis_keys.dictionaries_key(self.layout.topic, tag))


def values_of(store: Store, topic: str, *keys: bytes) -> dict[bytes, bytes | None]:
    lanes, _ = read_many(store, topic, keys, TERMS)
    found = {key: answer.record for lane in lanes for key, answer in lane.rows()}
    return {key: record and record.value for key, record in found.items()}


def orders(count: int, first: int = 0) -> dict[bytes, bytes | None]:
    return {b"order-%d" % number: order(number) for number in range(first, first + count)}


@pytest.fixture
def begin(redis_cluster):
    """A function that begins a topic with options."""
    runs = []

    def make(topic: str = "", **options) -> Scene:
        topic = topic or f"compressed-{next(NUMBERS)}"
        runs.append(run := Run(redis_cluster, topic))
        layout = Layout(topic, PARTITIONS, options=Options(**{"compression": "zstd", **options}))
        return Scene(redis_cluster, run, run.begin(layout).plan.serving)

    yield make
    for run in runs:
        run.close()


def test_values_of_every_kind_are_read_as_they_were_written(begin):
    scene = begin()
    hostile = {
        b"empty": b"",
        b"short": b"{}",
        b"random": bytes(np.random.default_rng(1).bytes(3000)),
        b"4 MiB": order(1) * (4 * 1024 * 1024 // len(order(1))),
        b"zeros": b"\0" * 4 * 1024 * 1024,
        b"gone": None,
    }
    others = {b"reading-%d" % number: reading(number) for number in range(300)}
    with contextlib.closing(scene.process()) as process:
        scene.write(process, orders(800) | {b"gone": order(5)})
        scene.write(process, hostile | others | orders(700, first=400))
    assert scene.read(*scene.written) == scene.written
    assert scene.is_compressed(b"order-0")
    assert scene.is_compressed(b"order-1000")
    assert not any(map(scene.is_compressed, (b"empty", b"short", b"random")))
    live = [key for key, value in scene.written.items() if value is not None]
    sizes = {key: len(data) - 18 for key, data in zip(live, scene.stored(*live), strict=True)}
    assert sizes[b"zeros"] < 1000
    assert all(size <= len(scene.written[key] or b"") for key, size in sizes.items())
    assert sum(sizes[key] for key in orders(800)) < sum(len(order(number)) for number in range(800)) / 2
    assert len(scene.dictionaries()) == 1


def test_history_index_fields_and_headers_have_what_they_have_without_compression(begin):
    found = {}
    for compression in ("none", "zstd"):
        scene = begin(
            compression=compression, history_count=2, index=2, fields=FIELDS, guarded=compression == "zstd"
        )
        with contextlib.closing(scene.process()) as process:
            scene.write(process, orders(400))
            scene.write(process, {key: order(900 + number) for number, key in enumerate(orders(200))})
            scene.write(process, dict.fromkeys(orders(20)))
        topic = scene.layout.topic
        with scene.reader() as store:
            rows = read_range(store, topic, RangeScan(Span(), 1000), TERMS).rows
            page = find_page(
                store, topic, FindScan((Asked("city", EQUAL, "Rome"),), None, 500), TERMS, as_it_is
            )
            histories = [
                [
                    (entry.position, entry.record and entry.record.value)
                    for entry in read_history(store, topic, key, HistoryScan(10), TERMS).entries
                ]
                for key in list(orders(60))
            ]
            read = read_latest(store, topic, b"order-50", TERMS).record
        found[compression] = [(key, each.record) for key, each in rows], page.rows, histories, read
        assert scene.is_compressed(b"order-50") == (compression == "zstd")
    plain, compressed = found["none"], found["zstd"]
    assert [key for key, _ in compressed[0]] == [key for key, _ in plain[0]]
    assert [record.value for _, record in compressed[0]] == [record.value for _, record in plain[0]]
    assert [key for key, _ in compressed[1]] == [key for key, _ in plain[1]]
    assert compressed[2] == plain[2]
    assert any(value is None for history in plain[2] for _, value in history)
    assert compressed[3] == plain[3]


def as_it_is(_: Layout, record: Record) -> Record:
    return record


def test_a_stray_is_compressed_and_compared_as_any_record(begin):
    scene = begin(history_count=3)
    key = b"order-7"
    elsewhere = (routing.partition_for(key, PARTITIONS) + 1) % PARTITIONS
    with contextlib.closing(scene.process()) as process:
        scene.write(process, orders(300))
        scene.write(process, {key: order(77)}, {key: elsewhere})
        assert scene.is_compressed(key)
        assert scene.read(key) == {key: order(77)}
        scene.write(process, {key: None}, {key: elsewhere})
        assert scene.read(key) == {key: None}
        scene.write(process, {key: order(78)})
    assert scene.read(key) == {key: order(78)}


@pytest.mark.parametrize("options", [{}, {"guarded": True}], ids=str)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_record_that_is_written_again_and_compressed_otherwise_is_in_its_history_once(
    begin, options, elsewhere
):
    scene = begin(history_count=2, **options)
    few = orders(90)
    partitions = {key: (routing.partition_for(key, PARTITIONS) + 1) % PARTITIONS for key in few}
    given = partitions if elsewhere else None
    with contextlib.closing(scene.process()) as process:
        scene.write(process, few, given)  # too few for a dictionary
    scene.next_offsets.clear()
    with contextlib.closing(scene.process()) as process:
        process(scene.layout, records_of(list(orders(300).values())))  # it makes one
        scene.write(process, few | orders(60, first=90), given, in_task=True)
    assert len(scene.dictionaries()) == 1
    assert scene.read(*scene.written) == scene.written
    names = [scene.lane(key).key_prefix[:-2] + b"h:" + key for key in few]
    with t.client(scene.nodes) as client:
        assert {client.zcard(name) for name in names} == {1}


def test_a_process_that_is_killed_between_training_and_its_first_value_leaves_nothing_unreadable(begin):
    scene = begin()
    killed = scene.process()

    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    with contextlib.closing(killed), pytest.MonkeyPatch.context() as patch:
        patch.setattr(DictionaryStore, "end_turn", kill)
        with pytest.raises(Killed):
            scene.write(killed, orders(600))
    (stored,) = scene.dictionaries()
    scene.next_offsets.clear()
    with contextlib.closing(scene.process()) as second:
        scene.write(second, orders(600))
    assert scene.read(*scene.written) == scene.written
    assert list(scene.dictionaries()) == [stored]
    assert scene.is_compressed(b"order-1")


def test_a_turn_to_make_a_dictionary_is_one_process_s_alone(begin):
    scene = begin()
    with contextlib.closing(Cluster(t.settings(scene.nodes))) as cluster:
        layout = scene.layout.topic, scene.layout.generation
        stores = [scene.store(cluster) for _ in range(2)]
        assert [each.takes_turn(*layout) for each in stores] == [True, False]
        stores[0].end_turn(*layout)
        assert not stores[1].takes_turn(*layout), "there is one by then"


def test_two_generations_have_their_own_dictionaries_and_one_that_is_removed_leaves_none(begin):
    first = begin()
    with contextlib.closing(first.process()) as process:
        first.write(process, orders(600))
    changed = replace(first.layout, options=replace(first.layout.options, index=1))
    built = first.run.begin(changed).plan.building
    assert built is not None
    first.run.writer.open([(lane, 0) for lane in lanes_of(built)])
    second = Scene(first.nodes, first.run, built)
    with contextlib.closing(second.process()) as process:
        second.write(process, {b"reading-%d" % each: reading(each) for each in range(600)})
    assert first.dictionaries().keys() & second.dictionaries().keys() == set()
    with first.reader() as store:
        topic = first.layout.topic
        assert values_of(store, topic, b"order-3") == {b"order-3": order(3)}
        first.run.ownership.switch(topic, first.layout.generation, built)
        first.run.writer.supersede(lanes_of(first.layout))
        assert values_of(store, topic, b"reading-3") == {b"reading-3": reading(3)}
    first.run.ownership.forget_generation(topic, first.layout.generation)
    assert first.dictionaries() == {}
    assert len(second.dictionaries()) == 1


def test_dictionaries_that_all_copies_have_lost_are_written_again_by_the_run_that_has_seen_them(begin):
    scene = begin()
    with contextlib.closing(scene.process()) as process:
        scene.write(process, orders(600))
    assert scene.run.ownership.repair() == []
    scene.forget_copies(*SLOTS)
    assert len(scene.run.ownership.repair()) == len(SLOTS)
    assert scene.read(b"order-3") == {b"order-3": order(3)}
    scene.run.ownership.forget_generation(scene.layout.topic, scene.layout.generation)
    assert scene.run.ownership.repair() == []
    assert scene.dictionaries() == {}


@pytest.mark.parametrize("lost", list(SLOTS), ids=lambda tag: tag.decode())
def test_a_dictionary_whose_slot_is_lost_is_read_from_a_copy_and_written_again(begin, lost):
    scene = begin()
    with contextlib.closing(scene.process()) as process:
        scene.write(process, orders(600))
    scene.forget_copies(lost)
    assert scene.read(b"order-3") == {b"order-3": order(3)}
    lines = scene.run.ownership.repair()
    assert f"topic '{scene.layout.topic}': its dictionaries in {{{lost.decode()}}} are written again" in lines
    assert scene.run.ownership.repair() == []
    scene.forget_copies(*(tag for tag in SLOTS if tag != lost))
    assert scene.read(b"order-3") == {b"order-3": order(3)}


@pytest.mark.parametrize("damaged", [b"no dictionary", None], ids=["other bytes", "a changed byte"])
def test_a_damaged_dictionary_is_written_again_from_a_copy_and_no_value_is_compressed_with_it(begin, damaged):
    scene = begin()
    with contextlib.closing(scene.process()) as process:
        scene.write(process, orders(600))
    ((dictionary_id, good),) = scene.dictionaries().items()
    assert scene.run.ownership.repair() == []
    damaged = damaged or good[:-1] + bytes([good[-1] ^ 1])
    name = redis_keys.dictionary_field(scene.layout.generation, dictionary_id)
    with t.client(scene.nodes) as client:
        for tag in SLOTS:
            client.hset(redis_keys.dictionaries_key(scene.layout.topic, tag), name, damaged)
    with contextlib.closing(scene.process()) as other:
        scene.write(other, orders(600, first=600))
    assert scene.read(b"order-700") == {b"order-700": order(700)}
    assert len(scene.run.ownership.repair()) == len(SLOTS)
    assert scene.read(b"order-3") == {b"order-3": order(3)}


def test_a_value_whose_dictionary_is_gone_is_unavailable_and_never_another_one(begin):
    scene = begin()
    with contextlib.closing(scene.process()) as process:
        scene.write(process, orders(600) | {b"plain": b"{}"})
    with scene.reader() as warm:
        assert values_of(warm, scene.layout.topic, b"order-3") == {b"order-3": order(3)}
        scene.forget_copies(*SLOTS)
        assert values_of(warm, scene.layout.topic, b"order-4") == {b"order-4": order(4)}
    with pytest.raises(StateUnavailable, match=r"the dictionary \d+ of the values of topic .* is missing"):
        scene.read(b"order-3")
    assert scene.read(b"plain") == {b"plain": b"{}"}


def test_the_records_of_a_forgotten_topic_take_its_dictionaries_with_them(begin):
    scene = begin()
    with contextlib.closing(scene.process()) as process:
        scene.write(process, orders(600))
    ownership, topic = scene.run.ownership, scene.layout.topic
    assert ownership.begin_forgetting(topic, {scene.layout.generation})
    ownership.end_forgetting(topic)
    with t.client(scene.nodes) as client:
        assert not any(client.exists(redis_keys.dictionaries_key(topic, tag)) for tag in SLOTS)
