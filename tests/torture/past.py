"""Compares what readers saw of histories with the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.torture.oracle import is_same, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.torture.oracle import KeyLog, Logged
    from tests.torture.reading import Seen


def check_history(now: Seen, key_log: KeyLog, contained: list[Logged]) -> Iterator[str]:
    """A history has records of the log, newest first, and lacks only such as are too old for it.

    `contained`: the records that the lane had for certain.
    """
    assert now.entries is not None
    held: list[Logged] = []
    for entry in now.entries:
        logged = key_log.at(entry.position.partition, entry.position.offset)
        if logged is None or not is_same(entry.record, logged) or entry.timestamp_ms != logged.timestamp_ms:
            yield f"its history has {show(entry.record)} at {entry.position}, the log {show(logged)}"
            return
        held.append(logged)
    ranks = [key_log.history_rank(logged) for logged in held]
    if ranks != sorted(ranks, reverse=True) or len(set(ranks)) != len(ranks):
        yield f"its history is not in order: {[(each.timestamp_ms, each.offset) for each in held]}"
    count = key_log.shape.options.history_count
    is_full = count is not None and len(held) >= count
    for logged in set(contained) - set(held):
        if not is_full or key_log.history_rank(logged) > ranks[-1]:
            yield f"its history of {len(held)} lacks {show(logged)}, time {logged.timestamp_ms}"
            return


def check_as_of(now: Seen, key_log: KeyLog, contained: list[Logged]) -> Iterator[str]:
    """A record as of a time is the newest by then, and none is missing because of a tombstone only.

    The latest record is the newest one from its timestamp on, though others may have later timestamps. Where
    markers do not last, it may be an older one than a tombstone of another partition, and was read late.
    """
    assert now.answer
    assert now.as_of_ms is not None
    record, as_of_ms = now.answer.record, now.as_of_ms
    newest = max(
        (logged for logged in contained if logged.timestamp_ms <= as_of_ms),
        key=key_log.as_of_rank,
        default=None,
    )
    latest = max(contained, key=key_log.rank, default=None)

    def is_as_new(logged: Logged) -> bool:
        if newest is None or key_log.as_of_rank(logged) >= key_log.as_of_rank(newest):
            return True
        return latest is None or key_log.rank(logged) >= key_log.rank(latest)

    if record is not None:
        logged = key_log.at(record.partition, record.offset)
        if logged is None or not is_same(record, logged) or logged.timestamp_ms > as_of_ms:
            yield f"as of {as_of_ms} a read returned {show(record)}, the log has {show(logged)} there"
        elif not is_as_new(logged) and not _may_be_back(key_log, logged, newest):
            yield f"as of {as_of_ms} the log has {show(newest)}, a read returned {show(logged)}"
        return
    if newest is None or newest.value is None:
        return
    tombstones = (
        logged
        for records in key_log.records.values()
        for logged in records
        if logged.value is None and logged.timestamp_ms <= as_of_ms
    )
    if not any(is_as_new(logged) for logged in tombstones):
        yield f"as of {as_of_ms} the log has {show(newest)}, a read returned nothing"


def _may_be_back(key_log: KeyLog, logged: Logged, newest: Logged | None) -> bool:
    """Whether a record may be the latest one, though the key's newest record as of a time is another one.

    A tombstone of another partition deletes that, and is forgotten before this one comes. Of those of other
    partitions than the key's own the answer's watermark does not say which were read.
    """
    if not key_log.shape.is_forgetful or newest is None:
        return False
    if newest.value is None and newest.partition != logged.partition:
        return True
    return any(
        each.value is None and key_log.as_of_rank(each) > key_log.as_of_rank(newest)
        for partition, records in key_log.records.items()
        if partition not in {logged.partition, key_log.own_partition}
        for each in records
    )
