"""Compares what the primaries have with the log: keys, histories, watermarks, and indexes of fields.

Each question finds exactly the keys whose newest records meet it, and counts as many. An index has exactly
the members of which the envelopes say that they are there.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

from tests.servers.own import CLOCK
from tests.support.builders import part_of
from tests.torture.checks import EXPIRY_MS
from tests.torture.found import Question, all_questions
from tests.torture.found import show as show_question
from tests.torture.oracle import is_same, show
from tests.torture.sources import TERMS, StoreSource
from tests.torture.stack import slot_of

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.ports import Deadline
from keylane.query.find import count_found
from keylane.query.finder import FindScan
from keylane.query.store import Reading
from keylane.state import codec, redis_keys
from keylane.state.field_index import indexes_of, split_entries
from keylane.state.lanes import index_keys, lane_at, lane_of_key, lanes_of_topic
from keylane.state.ordered import END

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import redis
    from tests.torture.oracle import Log
    from tests.torture.stack import TortureStack

    from keylane.model.records import Layout
    from keylane.state.lanes import Lane


READ_MS = 5_000
"""Of a dictionary."""
CLEANED_MS = 5_000
"""How long an expired key may stay in an index: a heartbeat removes some hundred."""

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tests.torture.oracle import KeyLog, Log, Logged
    from tests.torture.stack import TortureStack

    from keylane.model.records import Layout, Record


def check_state(
    keys: Mapping[str, Iterable[bytes]], log: Log, layouts: Mapping[str, Layout], stack: TortureStack
) -> Iterator[str]:
    """Compare what the primaries have of these keys with the fold of the whole log."""
    with stack.primaries() as clients, stack.store() as store:
        for topic, names in keys.items():
            layout = layouts[topic]
            for key in names:
                expand = Reading(store, layout, Deadline.after_ms(READ_MS, CLOCK)).expander()
                slot = slot_of(layout, key)
                client = clients[stack.shard_of(slot)]
                tag = routing.hash_tag(slot)
                data = client.get(redis_keys.value_key(tag, topic, layout.generation, key))
                key_log = log.of(topic, key)
                record = (
                    None if data is None else codec.decode_record(key, data, key_log.own_partition, expand)
                )
                expected = key_log.newest()
                if not _is_expected(record, expected, key_log, CLOCK.now_ms()):
                    yield f"{topic}/{key.decode()}: the state has {show(record)}, the log {show(expected)}"
                if layout.options.headers and is_same(record, expected) and record and expected:
                    yield from _check_headers(topic, record, expected)
                if layout.options.has_history:
                    stored = client.zrange(
                        redis_keys.history_key(tag, topic, layout.generation, key), 0, -1, withscores=True
                    )
                    yield from _check_history(topic, key, stored, key_log, expand)
            if layout.options.index:
                yield from _check_indexes(topic, list(names), log, layout, clients, stack)


def _is_expected(record: Record | None, newest: Logged | None, key_log: KeyLog, now_ms: int) -> bool:
    """Whether a lane may hold this record where another one, or none, is the newest of the log."""
    if newest is None:
        return record is None
    if record is None:
        return key_log.is_gone(newest, now_ms + EXPIRY_MS)
    if key_log.shape.is_forgetful and newest.value is None:
        return is_same(record, key_log.at(record.partition, record.offset))
    return is_same(record, newest) and not key_log.is_gone(newest, now_ms - EXPIRY_MS)


def _check_headers(topic: str, record: Record, expected: Logged) -> Iterator[str]:
    if record.headers != expected.headers:
        yield f"{topic}/{record.key.decode()}: headers {record.headers}, the log has {expected.headers}"


def _check_history(
    topic: str,
    key: bytes,
    stored: list[tuple[bytes, float]],
    key_log: KeyLog,
    expand: codec.Expand,
) -> Iterator[str]:
    """Redis orders the records of one time and offset as it likes: readers do."""
    held = []
    for member, score in stored:
        entry = codec.decode_history_entry(key, member, key_log.own_partition, expand)
        value = None if entry.record is None else entry.record.value
        held.append((int(score), entry.position.offset, entry.position.partition, value))
    wanted = [(each.timestamp_ms, each.offset, each.partition, each.value) for each in key_log.history()]
    if sorted(held, key=_place) != sorted(wanted, key=_place):
        has, logged = ([item[:3] for item in items] for items in (held, wanted))
        yield f"{topic}/{key.decode()}: its history has (time, offset, partition) {has}, the log {logged}"


def _place(item: tuple[int, int, int, bytes | None]) -> tuple[int, int, int]:
    return item[:3]


def _check_indexes(
    topic: str, keys: list[bytes], log: Log, layout: Layout, clients: list, stack: TortureStack
) -> Iterator[str]:
    """The indexes of the lanes have exactly the live keys, and exactly those with a history."""
    live, historic, unsure = set(), set(), set()
    parts = max(1, layout.options.index)
    now_ms = CLOCK.now_ms()
    for key in keys:
        key_log = log.of(topic, key)
        stripe = lane_of_key(layout, key).stripe
        entry = key_log.own_partition, stripe, key, part_of(key, parts)
        newest = key_log.newest()
        if newest is not None and not key_log.is_gone(newest, now_ms):
            live.add(entry)
        if newest is not None and key_log.is_gone(newest, now_ms - CLEANED_MS) != key_log.is_gone(
            newest, now_ms + CLEANED_MS
        ):
            unsure.add(entry)
        if layout.options.has_history and key_log.history():
            historic.add(entry)
    prefixes = {key.partition(b"-")[0] + b"-" for key in keys}
    for kind, index_key, wanted in (
        ("live", redis_keys.index_key, live),
        ("one with a history", redis_keys.history_index_key, historic),
    ):
        held = set()
        for partition, stripe in itertools.product(range(layout.partition_count), range(layout.stripes)):
            slot = lane_at(layout, partition, stripe).slot
            name = index_key(routing.hash_tag(slot), topic, layout.generation, partition, stripe)
            client = clients[stack.shard_of(slot)]
            for part, own in enumerate(redis_keys.parts_of(name, parts)):
                for prefix in prefixes:
                    found = client.zrangebylex(own, b"[" + prefix, b"[" + prefix + b"\xff")
                    held.update((partition, stripe, key, part) for key in found)
        for entry in sorted((held ^ wanted) - unsure):
            has, lacks = ("the index", "the log") if entry in held else ("the log", "the index")
            yield f"{topic}/{entry[2].decode()}: {has} has it as {kind}, {lacks} does not"


def check_watermarks(
    ends: Mapping[tuple[str, int], int],
    written_ms: int,
    layouts: Mapping[str, Layout],
    stack: TortureStack,
) -> Iterator[str]:
    """Every watermark is at the end of its partition, complete as of the last write, and without flags."""
    for (topic, partition, stripe), watermark in stack.watermarks(dict(layouts)).items():
        lane, end = f"{topic}/{partition}.{stripe}", ends[topic, partition]
        if watermark is None:
            yield f"lane {lane} has no watermark, its log ends at {end}"
        elif watermark.next_offset != end:
            yield f"lane {lane} has reached {watermark.next_offset}, its log ends at {end}"
        elif watermark.complete_as_of_ms < written_ms:
            late_ms = written_ms - watermark.complete_as_of_ms
            yield f"lane {lane} is complete only as of {late_ms} ms before the end of the last write"
        elif watermark.superseded or watermark.incomplete:
            yield f"lane {lane} is marked superseded or incomplete: {watermark}"
        elif watermark.has_strays and not stack.shapes[topic].mixed:
            yield f"lane {lane} is marked as having strays"


_PAGE = 20
_MOST_PAGES = 1_000
Members = set[tuple[int, bytes]]
"""Numbers of indexes and members."""


def check_indexed(
    keys: Mapping[str, Sequence[bytes]], log: Log, layouts: Mapping[str, Layout], stack: TortureStack
) -> Iterator[str]:
    """Check the topics with fields, of their records those with these keys."""
    indexed = {topic: names for topic, names in keys.items() if names and layouts[topic].options.fields}
    if not indexed:
        return
    state = RedisState(Cluster(stack.redis))
    try:
        for topic, names in indexed.items():
            runs = {key.partition(b"-")[0].decode() for key in names}
            for run in sorted(run for run in runs if run.partition(".")[0].isdigit()):
                own = [key for key in names if key.startswith(run.encode() + b"-")]
                for question in all_questions(run):
                    yield from _check_question(StoreSource(state), topic, question, own, log)
    finally:
        state.close()
    with stack.primaries() as clients:
        for topic, names in indexed.items():
            yield from _check_members(names, log, layouts[topic], clients, stack)


def _check_question(
    source: StoreSource, topic: str, question: Question, keys: Sequence[bytes], log: Log
) -> Iterator[str]:
    began_ms = CLOCK.now_ms()
    found: list[bytes] = []
    after = None
    for _ in range(_MOST_PAGES):
        page = source.find(topic, question, (), _PAGE, after)
        found += [key for key, _ in page.rows]
        after = page.next_after
        if after is None:
            break
    ended_ms, must, may = CLOCK.now_ms(), set(), set()
    for key in filter(question.span.has, keys):
        key_log = log.of(topic, key)
        newest = key_log.newest()
        if newest is not None and question.is_met(newest):
            must |= set() if key_log.is_gone(newest, ended_ms + EXPIRY_MS) else {key}
            may |= set() if key_log.is_gone(newest, began_ms - EXPIRY_MS) else {key}
    own = {key for key in found if key in set(keys)}
    if not must <= own <= may or len(set(found)) < len(found):
        more, less = sorted(own - may), sorted(must - own)
        yield f"{topic}/{show_question(question)}: {more} should not be found, {less} are not, of {found}"
    if log.of(topic, keys[0]).shape.options.ttl_ms is None:
        scan = FindScan(question.asked, question.order, _PAGE, span=question.span)
        counted = count_found(source.store, topic, scan, TERMS, lambda _, record: record)
        if counted.next_after is None and counted.count != len(found):
            yield f"{topic}/{show_question(question)}: {counted.count} are counted, {len(found)} found"


def _check_members(
    keys: Sequence[bytes], log: Log, layout: Layout, clients: list[redis.Redis], stack: TortureStack
) -> Iterator[str]:
    by_lane: dict[Lane, list[bytes]] = defaultdict(list)
    for key in keys:
        by_lane[lane_of_key(layout, key)].append(key)
    for lane in lanes_of_topic(layout):
        own, client = by_lane[lane], clients[stack.shard_of(lane.slot)]
        # In one transaction: records expire.
        with client.pipeline(transaction=True) as pipeline:
            for key in own:
                pipeline.get(lane.value_prefix + key)
            indexes = [
                (index.number, index_keys(layout, lane, index))
                for index in indexes_of(layout.options).indexes
            ]
            for _, parts in indexes:
                for part in parts:
                    pipeline.zrange(part, 0, -1)
            replies = pipeline.execute()
        read = iter(replies[len(own) :])
        wanted, names = set(own), dict(zip(own, replies, strict=False))
        held = {(number, member) for number, parts in indexes for _ in parts for member in next(read)}
        held = {each for each in held if _key_of(each, layout) in wanted}
        said = {
            (number, value + END + key)
            for key, data in names.items()
            for number, value in split_entries(codec.fields_of(data) if data else b"")
        }
        for number, member in sorted(held ^ said):
            if not _has_just_expired(log, layout.topic, _key_of((number, member), layout)):
                has, lacks = ("index", "record") if (number, member) in held else ("record", "index")
                yield f"{layout.topic}, index {number}: the {has} has {member!r}, the {lacks} does not"


def _key_of(member: tuple[int, bytes], layout: Layout) -> bytes:
    count = len(indexes_of(layout.options).indexes[member[0]].fields)
    return member[1].split(END, count)[-1]


def _has_just_expired(log: Log, topic: str, key: bytes) -> bool:
    key_log, now_ms = log.of(topic, key), CLOCK.now_ms()
    newest = key_log.newest()
    return newest is not None and (
        key_log.is_gone(newest, now_ms + EXPIRY_MS) != key_log.is_gone(newest, now_ms - CLEANED_MS)
    )
