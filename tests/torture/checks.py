"""Compares what readers saw, and what is stored, with the fold of the log. Each fault is a sentence."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tests.torture.stack import HISTORY, MIXED, slot_of

from keylane import routing
from keylane.errors import LaneBuilding, UnknownTopic
from keylane.state import codec, redis_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tests.torture.nemesis import Trouble
    from tests.torture.oracle import KeyLog, Log, Logged
    from tests.torture.readers import Seen
    from tests.torture.stack import TortureStack

    from keylane.model.records import Layout, Record


def check_seen(
    seen: list[list[Seen]], log: Log, troubles: list[Trouble], stack: TortureStack
) -> Iterator[str]:
    """Check what readers saw while a schedule ran; yields a sentence for each fault."""
    for own in seen:
        last_of_lane: dict[tuple[str, int, int], Seen] = {}
        last_of_key: dict[tuple[str, bytes], Seen] = {}
        for now in own:
            if now.error is not None:
                yield from _check_error(now, troubles)
                continue
            assert now.answer
            key_log = log.of(now.topic, now.key)
            yield from _check_content(now, key_log)
            layout = now.answer.layout
            lane = now.topic, now.answer.partition, routing.stripe_for(now.key, layout.stripes)
            shard = stack.shard_of(slot_of(layout, now.key))
            if now.waited_for is not None and not _may_lack_strays(now, shard, troubles):
                yield from _check_waited(now, key_log)
            before = last_of_lane.get(lane)
            went_back = before is not None and _went_back(before, now)
            if before is not None and went_back and not _is_excused(before, now, shard, troubles):
                then = _show_watermark(now)
                yield f"{_where(now)}: the lane went back: {_show_watermark(before)}, then {then}"
            if went_back:
                # The earlier values of the lane's keys no longer count.
                last_of_key = {
                    name: earlier
                    for name, earlier in last_of_key.items()
                    if name[0] != now.topic or not _same_lane(earlier, now)
                }
            last_of_lane[lane] = now
            previous = last_of_key.get((now.topic, now.key))
            if previous is not None and not _is_excused(previous, now, shard, troubles):
                yield from _check_order(previous, now, key_log)
            if now.answer.record is not None:
                last_of_key[now.topic, now.key] = now


def _check_error(now: Seen, troubles: list[Trouble]) -> Iterator[str]:
    emptied = any(trouble.kind == "empty-redis" for trouble in troubles)
    if not (emptied and isinstance(now.error, LaneBuilding | UnknownTopic)):
        took_s = now.ended_s - now.began_s
        yield f"{_where(now)}: a read failed after {took_s:.2f} s: {now.error!r}"


def _check_content(now: Seen, key_log: KeyLog) -> Iterator[str]:
    """Without strays, a read returns exactly the fold of the log up to its own watermark."""
    assert now.answer
    record, next_offset = now.answer.record, now.answer.watermark.next_offset
    own = key_log.newest_at(next_offset)
    expected = f"{_where(now)}: below {next_offset} the log has {_show(own)}"
    if now.topic != MIXED:
        if not _is(record, own):
            yield f"{expected}, a read returned {_show(record)}"
    elif record is not None:
        logged = key_log.at(record.partition, record.offset)
        if logged is None or not _is(record, logged):
            yield f"{_where(now)}: the log has {_show(logged)} there, a read returned {_show(record)}"
        elif own is not None and key_log.rank(own) > key_log.rank(logged):
            yield f"{expected}, a read returned {_show(logged)}"
    elif own is not None and own.value is not None and not _has_tombstone_above(key_log, own):
        yield f"{expected}, a read returned nothing"


def _check_waited(now: Seen, key_log: KeyLog) -> Iterator[str]:
    """The answer has reached the position that was waited for."""
    assert now.answer
    assert now.waited_for
    wanted = key_log.at(now.waited_for.partition, now.waited_for.offset)
    if wanted is None:
        yield f"{_where(now)}: the log has no record at {now.waited_for}, which a write returned"
        return
    record = now.answer.record
    if record is None:
        if wanted.value is not None and not _has_tombstone_above(key_log, wanted):
            yield f"{_where(now)}: waited for {now.waited_for}, a read returned nothing"
        return
    logged = key_log.at(record.partition, record.offset)
    if logged is not None and key_log.rank(logged) < key_log.rank(wanted):
        yield f"{_where(now)}: waited for {now.waited_for}, a read returned {record.position}"


def _check_order(previous: Seen, now: Seen, key_log: KeyLog) -> Iterator[str]:
    """No key goes back, and no deleted key returns; `previous` is the last read that returned a record."""
    assert previous.answer
    assert now.answer
    before, after = previous.answer.record, now.answer.record
    assert before
    if after is None:
        return
    old = key_log.at(before.partition, before.offset)
    new = key_log.at(after.partition, after.offset)
    if old is not None and new is not None and key_log.rank(new) < key_log.rank(old):
        yield f"{_where(now)}: the key went back: {before.position}, then {after.position}"


def _went_back(before: Seen, now: Seen) -> bool:
    assert before.answer
    assert now.answer
    old, new = before.answer, now.answer
    if new.layout.generation != old.layout.generation:
        return new.layout.generation < old.layout.generation
    return new.watermark.next_offset < old.watermark.next_offset or new.watermark.epoch < old.watermark.epoch


def _is_excused(before: Seen, now: Seen, shard: int, troubles: list[Trouble]) -> bool:
    """Whether, in between, a lagging replica may have answered or acknowledged writes were lost."""
    return any(trouble.touches(shard, before.began_s, now.ended_s) for trouble in troubles)


def _may_lack_strays(now: Seen, shard: int, troubles: list[Trouble]) -> bool:
    """Whether a failover may have taken the awaited stray from the key's lane.

    The watermark that was waited for is in another shard, which does not see the loss.
    """
    assert now.answer
    assert now.waited_for
    is_stray = now.waited_for.partition != now.answer.partition
    return is_stray and any(trouble.touches(shard, 0, now.ended_s) for trouble in troubles)


def _same_lane(one: Seen, other: Seen) -> bool:
    assert one.answer
    assert other.answer
    stripes = other.answer.layout.stripes
    return one.answer.partition == other.answer.partition and (
        routing.stripe_for(one.key, stripes) == routing.stripe_for(other.key, stripes)
    )


def _has_tombstone_above(key_log: KeyLog, record: Logged) -> bool:
    rank = key_log.rank(record)
    return any(
        other.value is None and key_log.rank(other) > rank
        for other in itertools.chain.from_iterable(key_log.records.values())
    )


def _is(record: Record | None, logged: Logged | None) -> bool:
    """Whether both are the same record; an absent one equals a tombstone."""
    if record is None or logged is None or logged.value is None:
        return record is None and (logged is None or logged.value is None)
    return (
        (record.partition, record.offset, record.value, record.timestamp_ms)
        == (logged.partition, logged.offset, logged.value, logged.timestamp_ms)
    )  # fmt: skip


def check_state(
    keys: Mapping[str, Iterable[bytes]], log: Log, layouts: Mapping[str, Layout], stack: TortureStack
) -> Iterator[str]:
    """Compare what the primaries have of these keys with the fold of the whole log."""
    with stack.primaries() as clients:
        for topic, names in keys.items():
            layout = layouts[topic]
            for key in names:
                slot = slot_of(layout, key)
                client = clients[stack.shard_of(slot)]
                tag = routing.hash_tag(slot)
                data = client.get(redis_keys.value_key(tag, topic, layout.generation, key))
                key_log = log.of(topic, key)
                record = None if data is None else codec.decode_record(key, data, key_log.own_partition)
                expected = key_log.newest()
                if not _is(record, expected):
                    yield f"{topic}/{key.decode()}: the state has {_show(record)}, the log {_show(expected)}"
                if layout.options.headers and record is not None and expected is not None:
                    yield from _check_headers(topic, record, expected)
                if layout.options.has_history:
                    stored = client.zrange(
                        redis_keys.history_key(tag, topic, layout.generation, key), 0, -1, withscores=True
                    )
                    yield from _check_history(topic, key, stored, key_log.history(HISTORY))
            if layout.options.index:
                yield from _check_indexes(topic, list(names), log, layout, clients, stack)


def _check_headers(topic: str, record: Record, expected: Logged) -> Iterator[str]:
    if record.headers != expected.headers:
        yield f"{topic}/{record.key.decode()}: headers {record.headers}, the log has {expected.headers}"


def _check_history(
    topic: str, key: bytes, stored: list[tuple[bytes, float]], expected: list[Logged]
) -> Iterator[str]:
    held = [
        (
            int.from_bytes(member[:8]),
            int(score),
            None if member[9] & codec.TOMBSTONE else _value(key, member),
        )
        for member, score in stored
    ]
    wanted = [(record.offset, record.timestamp_ms, record.value) for record in expected]
    if held != wanted:
        short = [[item[:2] for item in items] for items in (held, wanted)]
        yield f"{topic}/{key.decode()}: its history has (offset, time) {short[0]}, the log {short[1]}"


def _value(key: bytes, member: bytes) -> bytes | None:
    record = codec.decode_history_member(key, member, 0)
    return record.value if record else None


def _check_indexes(
    topic: str, keys: list[bytes], log: Log, layout: Layout, clients: list, stack: TortureStack
) -> Iterator[str]:
    """The indexes of the lanes have exactly the live keys, and exactly those with a history."""
    live, historic = set(), set()
    for key in keys:
        key_log = log.of(topic, key)
        entry = key_log.own_partition, routing.stripe_for(key, layout.stripes), key
        if (newest := key_log.newest()) is not None and newest.value is not None:
            live.add(entry)
        if layout.options.has_history and key_log.history(HISTORY):
            historic.add(entry)
    prefixes = {key.partition(b"/")[0] + b"/" for key in keys}
    for kind, index_key, wanted in (
        ("live", redis_keys.index_key, live),
        ("one with a history", redis_keys.history_index_key, historic),
    ):
        held = set()
        for partition, stripe in itertools.product(range(layout.partition_count), range(layout.stripes)):
            slot = routing.slot_for(partition, stripe, layout.partition_count, layout.stripes)
            name = index_key(routing.hash_tag(slot), topic, layout.generation, partition, stripe)
            client = clients[stack.shard_of(slot)]
            for prefix in prefixes:
                found = client.zrangebylex(name, b"[" + prefix, b"[" + prefix + b"\xff")
                held.update((partition, stripe, key) for key in found)
        for entry in sorted(held ^ wanted):
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
        elif watermark.has_strays and topic != MIXED:
            yield f"lane {lane} is marked as having strays"


def _where(now: Seen) -> str:
    return f"reader {now.reader}, {now.topic}/{now.key.decode()}"


def _show_watermark(seen: Seen) -> str:
    assert seen.answer
    watermark = seen.answer.watermark
    return f"{watermark.next_offset} of epoch {watermark.epoch} at {seen.ended_s:.3f}"


def _show(record: Logged | Record | None) -> str:
    if record is None:
        return "nothing"
    value = "a tombstone" if record.value is None else f"{record.value[:24]!r}"
    return f"{value} at {record.partition}:{record.offset}"
