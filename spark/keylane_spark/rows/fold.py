"""Which records a chunk carries: arrays in, masks out, no Python loop over rows.

Of each key a chunk carries

- the last record;
- with a history of c records: the newest c by (timestamp, offset), and the last by offset;
- with a history bounded by age only: every record;
- with `insert_once`: the last tombstone and the first set after it, or the first set; with a time to live
  every set after it, for an earlier one may have expired.

Keys are given as codes, one number per distinct key. Rows are in offset order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from keylane.model.records import Options

Codes = NDArray[np.integer]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Repeats:
    """Where keys repeat within n rows.

    `by_key`: the rows sorted by key, those of a key in their order. `previous`, `following`: for each row
    the nearest row of its key before it (-1: none) and after it (n: none).
    """

    def __init__(self, codes: Codes, by_key: Ints | None = None) -> None:
        self.codes = codes
        self.by_key: Ints = _in_order(codes) if by_key is None else by_key
        self.previous = self.previous_but(1)
        self.following: Ints = np.full(len(codes), len(codes), np.int64)
        repeated = np.flatnonzero(self.previous >= 0)
        self.following[self.previous[repeated]] = repeated

    def any(self) -> bool:
        """Whether a key is there twice."""
        return bool((self.previous >= 0).any())

    def within(self, begins: Ints) -> Repeats:
        """The same within parts of the rows, which begin at these rows: a key in two parts is two keys."""
        if len(begins) == 1:
            return self
        parts = np.zeros(len(self.codes), np.int64)
        parts[begins[1:]] = 1
        parts = np.cumsum(parts)
        again = np.flatnonzero(self.previous >= 0)
        if (parts[self.previous[again]] == parts[again]).all():
            return self
        codes, parts = self.codes[self.by_key], parts[self.by_key]
        is_next = (codes[1:] != codes[:-1]) | (parts[1:] != parts[:-1])
        refined = np.empty(len(codes), np.int64)
        refined[self.by_key] = np.concatenate([[0], np.cumsum(is_next)])
        return Repeats(refined, self.by_key)

    def previous_but(self, times: int) -> Ints:
        """For each row the row of its key that many occurrences before it; -1: none."""
        found = np.full(len(self.codes), -1, np.int64)
        if times < len(found):
            later, earlier = self.by_key[times:], self.by_key[:-times]
            same = self.codes[later] == self.codes[earlier]
            found[later[same]] = earlier[same]
        return found


def _in_order(codes: Codes) -> Ints:
    """The rows sorted by code, stable."""
    if len(codes) and codes.max() < 1 << 16:
        codes = codes.astype(np.uint16)  # which numpy sorts by their digits, four times as fast
    return np.argsort(codes, kind="stable")


def most_per_key(options: Options, row_count: int) -> int:
    """The most records of one key that a chunk may carry."""
    if options.has_history:
        return row_count if options.history_count is None else options.history_count + 1
    if options.insert_once:
        return 2 if first_set_stays(options) else row_count
    return 1


def kept(repeats: Repeats, timestamps_ms: Ints, tombstones: Mask, options: Options) -> Mask:
    """The rows that a chunk of these rows carries; needless sets were removed before."""
    last: Mask = repeats.following == len(timestamps_ms)
    if options.has_history:
        if options.history_count is None:
            return np.ones(len(last), np.bool_)
        last |= _newest(repeats.codes, timestamps_ms, options.history_count)
        return last
    if options.insert_once:
        return _not_deleted(repeats, tombstones)
    return last


def first_set_stays(options: Options) -> bool:
    """Whether a key keeps its first value until a tombstone: `insert_once` without a time to live."""
    return options.insert_once and options.ttl_ms is None


def needless_sets(repeats: Repeats, tombstones: Mask) -> Mask:
    """Sets right after a set of the same key: with `insert_once` they change nothing."""
    needless: Mask = ~tombstones & (repeats.previous >= 0) & ~tombstones[repeats.previous]
    return needless


def risen(repeats: Repeats, order_ms: Ints) -> Ints:
    """For each row the highest order timestamp among the rows of its key up to it."""
    # A key's code outweighs any rank, so one running maximum serves all keys.
    times, ranks = np.unique(order_ms, return_inverse=True)
    weighted = repeats.codes[repeats.by_key].astype(np.int64) * len(times) + ranks[repeats.by_key]
    highest = np.empty_like(order_ms)
    highest[repeats.by_key] = times[np.maximum.accumulate(weighted) % len(times)]
    return highest


def _newest(codes: Codes, timestamps_ms: Ints, count: int) -> Mask:
    """The newest `count` rows of each key by (timestamp, row)."""
    by_time = np.lexsort((timestamps_ms, codes))  # stable: rows of one time stay in order
    mask = np.ones(len(codes), np.bool_)
    if count < len(codes):
        mask[by_time[:-count]] = codes[by_time[:-count]] != codes[by_time[count:]]
    return mask


def _not_deleted(repeats: Repeats, tombstones: Mask) -> Mask:
    """Rows that no later tombstone of their key deletes."""
    codes = repeats.codes[repeats.by_key]
    deletes = np.flatnonzero(tombstones[repeats.by_key])
    mask = np.ones(len(codes), np.bool_)
    if len(deletes):
        following = np.searchsorted(deletes, np.arange(len(codes)), "right")
        is_deleted = codes[deletes[np.minimum(following, len(deletes) - 1)]] == codes
        mask[repeats.by_key] = ~(is_deleted & (following < len(deletes)))
    return mask
