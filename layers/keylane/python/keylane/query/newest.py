"""Reads of a key that may be under several keys of records: those of the schemas that its topic's keys have.

They are in lanes of their own. The newest record counts, by its timestamp, and a deletion is a record too; of
two with one timestamp it is that of the newer schema.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from keylane.errors import BadRequest, CorruptState
from keylane.model.keys import check_key, printable
from keylane.model.records import Answer, HistoryEntry, Position, Record, Watermark
from keylane.ports import Call, Deadline
from keylane.query.history import HistoryPage, read_as_of, read_history
from keylane.query.history_entries import PAGE_BYTES, HistoryScan
from keylane.query.join import read_joined
from keylane.query.latest import FIRST_POLL_PAUSE_S, LAST_POLL_PAUSE_S, NO_WAIT, Wait, read_key
from keylane.query.store import (
    Reading,
    ReadTerms,
    Store,
    Watermarks,
    begin_reading,
    check_age,
    read_current,
)
from keylane.state import codec
from keylane.state.lanes import Lane, decode_value, keys_by_lane

Keys = Sequence[bytes]
"""The keys of records that a client's key may mean, those of newer schemas first."""


class Found(NamedTuple):
    """What is under a client's key, and the key of the record."""

    key: bytes
    answer: Answer


def read_newest(reading: Reading, keys: Keys, terms: ReadTerms, wait: Wait = NO_WAIT) -> Answer:
    """As `read_key`, of the newest record under the keys.

    Its watermark is that of the record's lane, with the age of the oldest lane. Raises BadRequest, too, for a
    wait for an offset: of which partition it is, is not known.
    """
    if len(keys) == 1:
        return read_key(reading, keys[0], terms, wait)
    if wait.min_position is not None and not isinstance(wait.min_position, Position):
        what = f"the key may be in {len(keys)} partitions, by the schemas of the topic's keys"
        raise BadRequest(f"{what}: wait for a Keylane-Min-Position", "min_offset")
    clock = reading.store.clock
    until_s = clock.monotonic_s() + wait.change_ms / 1000
    positions_s = clock.monotonic_s() + wait.position_ms / 1000
    pause_s = FIRST_POLL_PAUSE_S
    is_waiting = wait.min_position is not None or terms.max_age_ms is not None
    while True:
        for key in keys if is_waiting else ():
            now_s = clock.monotonic_s()
            left = Wait(
                wait.min_position,
                max(0.0, positions_s - now_s) * 1000,
                change_ms=max(0.0, until_s - now_s) * 1000,
            )
            read_key(reading, key, terms, left)
            reading = reading.again(terms.timeout_ms)
        answer = _read_one(reading, keys, terms, primary_only=wait.min_position is not None)
        left_s = until_s - clock.monotonic_s()
        if wait.is_known is None or not wait.is_known(answer) or left_s <= 0:
            return answer
        clock.await_s(min(pause_s, left_s))
        pause_s = min(pause_s * 2, LAST_POLL_PAUSE_S)
        reading = reading.again(terms.timeout_ms)


def read_many_newest(
    store: Store, topic: str, wanted: Sequence[Keys], terms: ReadTerms
) -> tuple[list[Found], Watermarks]:
    """Return what is under each of a client's keys, in their order: one command a lane, all shards at once.

    Raises as `read_many`.
    """
    deadline = Deadline.after_ms(terms.timeout_ms, store.clock)
    found, reading = _read(begin_reading(store, topic, deadline), wanted, primary_only=False)
    reading.check(terms)
    return found, reading.watermarks


def read_newest_as_of(
    store: Store, topic: str, keys: Keys, moment: int | Position, terms: ReadTerms
) -> Answer:
    """As `read_as_of`, of the newest record under the keys."""
    answers = [read_as_of(store, topic, key, moment, terms) for key in keys]
    if len(answers) == 1:
        return answers[0]
    times = [
        _deleted_ms(store, topic, key, moment, terms) if answer.record is None else answer.record.timestamp_ms
        for key, answer in zip(keys, answers, strict=True)
    ]
    return answers[times.index(max(times))]


def read_all_history(
    store: Store, topic: str, keys: Keys, scan: HistoryScan, terms: ReadTerms
) -> HistoryPage:
    """As `read_history`, of the records under all of the keys."""
    if len(keys) == 1:
        return read_history(store, topic, keys[0], scan, terms)
    one_more = replace(scan, limit=scan.limit + 1)  # the last one may be dropped
    pages = [read_history(store, topic, key, one_more, terms) for key in keys]
    first, *others = pages
    for page in others:
        for lane, watermark in page.watermarks.by_lane.items():
            known = first.watermarks.by_lane.get(lane)
            first.watermarks.by_lane[lane] = watermark if known is None else known.least(watermark)
    ended = [_ended(store, topic, key, one_more, terms, page) for key, page in zip(keys, pages, strict=True)]
    # A page that ends early says nothing of what is older than its end.
    end = max((page.next_after for page in ended if page.next_after is not None), default=b"")
    entries = sorted((entry for page in ended for entry in page.entries), key=_order_of, reverse=True)
    within = [entry for entry in entries if _order_of(entry) >= end]
    kept = _first_that_fit(within, scan.limit)
    next_after = _order_of(kept[-1]) if kept and (end or len(kept) < len(entries)) else None
    return HistoryPage(kept, next_after, first.watermarks)


def _ended(
    store: Store, topic: str, key: bytes, scan: HistoryScan, terms: ReadTerms, page: HistoryPage
) -> HistoryPage:
    """Return a key's page with all or none of the records of each timestamp and offset.

    `next_after` is that timestamp and offset, which is a place in the histories of all keys.
    """
    entries, after = list(page.entries), page.next_after
    while after is not None:
        last = _order_of(entries[-1])
        whole = [entry for entry in entries if _order_of(entry) != last]
        if whole:
            return replace(page, entries=whole, next_after=_order_of(whole[-1]))
        more = read_history(store, topic, key, replace(scan, after=after), terms)
        entries += more.entries
        after = more.next_after
    return replace(page, entries=entries, next_after=None)


def _first_that_fit(entries: list[HistoryEntry], limit: int) -> list[HistoryEntry]:
    """Return as many entries as a page has, with all of one timestamp and offset."""
    count = size_bytes = 0
    for _, tied in groupby(entries, key=_order_of):
        group = list(tied)
        size_bytes += sum(len(entry.record.value) for entry in group if entry.record)
        if count and (count >= limit or size_bytes > PAGE_BYTES):
            break
        count += len(group)
    return entries[:count]


def join_newest(
    store: Store, topics: Sequence[str], keys: Sequence[Keys], terms: ReadTerms, *, atomic: bool
) -> list[Found]:
    """As `read_joined`; `keys`: of each topic.

    A topic whose keys have other bytes has the key in another lane. Without `atomic` such topics are read one
    after the other.
    """
    first = keys[0]
    if len(first) == 1 and all(each == first for each in keys):
        answers = read_joined(store, topics, first[0], terms, atomic=atomic)
        return [Found(first[0], answer) for answer in answers]
    if atomic:
        raise BadRequest(
            "the topics write this key in different ways, so it is in different lanes, which can't be read at"
            " one moment: atomic=false reads them one after the other",
            "atomic",
        )
    answers = []
    for topic, each in zip(topics, keys, strict=True):
        deadline = Deadline.after_ms(terms.timeout_ms, store.clock)
        answers.append(read_newest(begin_reading(store, topic, deadline), each, terms))
    return [
        Found(each[0] if answer.record is None else answer.record.key, answer)
        for each, answer in zip(keys, answers, strict=True)
    ]


def _read_one(reading: Reading, keys: Keys, terms: ReadTerms, *, primary_only: bool) -> Answer:
    ((_, answer),), reading = _read(reading, [keys], primary_only=primary_only)
    reading.watermarks.check_complete(partial=terms.partial)
    check_age(reading.watermarks, reading.now_ms, terms.max_age_ms)
    return answer._replace(watermark=_with_age_of_all(answer.watermark, reading.watermarks))


def _with_age_of_all(watermark: Watermark, of_all: Watermarks) -> Watermark:
    """Return a lane's watermark for an answer from several lanes: what is newer may be in any of them."""
    least_ms = min(each.complete_as_of_ms for each in of_all.by_lane.values())
    return watermark._replace(complete_as_of_ms=least_ms, incomplete=of_all.is_incomplete)


def _read(reading: Reading, wanted: Sequence[Keys], *, primary_only: bool) -> tuple[list[Found], Reading]:
    for keys in wanted:
        for key in keys:
            check_key(key)
    found, reading = read_current(reading, _read_data, wanted, primary_only=primary_only)
    reading.watermarks.check_complete(partial=True)
    return [_newest_of(reading, keys, found) for keys in wanted], reading


def _read_data(
    reading: Reading, wanted: Sequence[Keys], *, primary_only: bool
) -> dict[bytes, tuple[Lane, bytes | None]]:
    """Return what the lanes store under each key."""
    every = list(dict.fromkeys(key for keys in wanted for key in keys))
    scope, lanes = reading.scope, keys_by_lane(reading.layout, every)
    unasked: dict[bytes, tuple[Lane, bytes | None]] = {}
    if scope is not None:  # keys that no rule of the caller names are not asked for
        unasked = {
            key: (lane, None) for lane, keys in lanes.items() for key in keys if not scope.has_key(key)
        }
        lanes = {lane: [key for key in keys if key not in unasked] for lane, keys in lanes.items()}
    names = {
        lane: [*(lane.value_prefix + key for key in keys), lane.watermark_key] for lane, keys in lanes.items()
    }
    if primary_only:
        read = reading.store.state.read
        replies = [read(lane.slot, own, reading.deadline, primary_only=True) for lane, own in names.items()]
    else:
        replies = reading.run([Call(lane.slot, (b"MGET", *own)) for lane, own in names.items()])
    found = unasked
    for (lane, keys), reply in zip(lanes.items(), replies, strict=True):
        *values, watermark = reply
        reading.watermarks.note(lane, watermark)
        found.update((key, (lane, value)) for key, value in zip(keys, values, strict=True))
    return found


def _newest_of(reading: Reading, keys: Keys, found: dict[bytes, tuple[Lane, bytes | None]]) -> Found:
    """Return the newest record under the keys; a deletion's answer has none."""
    times = [_time_of(key, *found[key]) for key in keys]
    key = keys[times.index(max(times))]
    lane, data = found[key]
    record: Record | None = decode_value(lane, key, data, reading.expander())
    if reading.scope is not None and record is not None and reading.permitted(record) is None:
        # As if none of them had ever been written.
        key, record = keys[0], None
        lane, _ = found[key]
    return Found(key, reading.answer(lane, record))


def _time_of(key: bytes, lane: Lane, data: bytes | None) -> int:
    if data is None:
        return -1
    try:
        return codec.decode_head(data[: codec.HEAD_BYTES], lane.partition).timestamp_ms
    except codec.CodecError as error:
        raise CorruptState(printable(lane.value_prefix + key), str(error)) from error


def _deleted_ms(store: Store, topic: str, key: bytes, moment: int | Position, terms: ReadTerms) -> int:
    """Return when the key was deleted before a time; -1 where nothing says so."""
    if isinstance(moment, Position):
        return -1
    entries = read_history(store, topic, key, HistoryScan(1, to_ms=moment + 1), terms).entries
    return entries[0].timestamp_ms if entries else -1


def _order_of(entry: HistoryEntry) -> bytes:
    """Return the beginning of `codec.history_order`, which says where the next page begins."""
    return entry.timestamp_ms.to_bytes(8, "big") + entry.position.offset.to_bytes(8, "big")
