"""Compares indexes of fields with the log and with the stored records, once everything is at rest.

Each question finds exactly the keys whose newest records meet it, and counts as many. An index has exactly
the members of which the envelopes say that they are there.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.servers.own import CLOCK
from tests.torture.checks import EXPIRY_MS
from tests.torture.found import Question, all_questions, show
from tests.torture.sources import TERMS, StoreSource
from tests.torture.stored import CLEANED_MS

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.query.find import count_found
from keylane.query.finder import FindScan
from keylane.state import codec
from keylane.state.field_index import indexes_of, split_entries
from keylane.state.lanes import index_keys, lane_of_key, lanes_of_topic
from keylane.state.ordered import END

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import redis
    from tests.torture.oracle import Log
    from tests.torture.stack import TortureStack

    from keylane.model.records import Layout
    from keylane.state.lanes import Lane

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
        yield f"{topic}/{show(question)}: {more} are found and should not be, {less} are not, of {found}"
    if log.of(topic, keys[0]).shape.options.ttl_ms is None:
        scan = FindScan(question.asked, question.order, _PAGE, span=question.span)
        counted = count_found(source.store, topic, scan, TERMS, lambda _, record: record)
        if counted.next_after is None and counted.count != len(found):
            yield f"{topic}/{show(question)}: {counted.count} are counted, and {len(found)} are found"


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
