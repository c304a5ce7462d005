"""Which of a chunk's records it carries: plain arrays in, masks out, no loop over rows.

A chunk carries of each key

- the last record;
- with a history of c records: the newest c by (timestamp, offset), and the last by offset; with a history
  that only an age bounds: every record;
- where the first value stays: the last tombstone and the first set after it, or the first set; with a time
  to live all sets after it, for who comes first may be gone already.

Keys come as codes, one number per distinct key. Rows stand in offset order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from keylane.model.records import Options

    Codes = NDArray[np.int32]
    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


class Repeats:
    """Where keys occur again, over n rows.

    `by_key`: the rows sorted by key, each key's in their order. `previous`, `following`: for each row its
    key's row before it (-1: none) and after it (n: none).
    """

    def __init__(self, codes: Codes) -> None:
        self.codes = codes
        self.by_key: Ints = np.argsort(codes, kind="stable")
        self.previous = self.previous_but(1)
        self.following: Ints = np.full(len(codes), len(codes), np.int64)
        repeated = np.flatnonzero(self.previous >= 0)
        self.following[self.previous[repeated]] = repeated

    def previous_but(self, times: int) -> Ints:
        """For each row its key's row so many occurrences before it; -1: none."""
        found = np.full(len(self.codes), -1, np.int64)
        if times < len(found):
            later, earlier = self.by_key[times:], self.by_key[:-times]
            same = self.codes[later] == self.codes[earlier]
            found[later[same]] = earlier[same]
        return found


def most_per_key(options: Options, row_count: int) -> int:
    """How many records of one key a chunk may carry."""
    if options.has_history:
        return row_count if options.history_count is None else options.history_count + 1
    if options.insert_once:
        return 2 if first_set_stays(options) else row_count
    return 1


def kept(repeats: Repeats, timestamps_ms: Ints, tombstones: Mask, options: Options) -> Mask:
    """The rows that a chunk of these rows carries; needless sets are no longer among them."""
    last: Mask = repeats.following == len(timestamps_ms)
    if options.has_history:
        if options.history_count is None:
            return np.ones(len(last), np.bool_)
        last |= _newest(repeats.codes, timestamps_ms, options.history_count)
        return last
    if options.insert_once:
        return _standing(repeats, tombstones)
    return last


def first_set_stays(options: Options) -> bool:
    """Whether a set after a set of its key changes nothing, whenever it is applied."""
    return options.insert_once and options.ttl_ms is None


def needless_sets(repeats: Repeats, tombstones: Mask) -> Mask:
    """Sets right after a set of their key: where the first value stays, they change nothing."""
    needless: Mask = ~tombstones & (repeats.previous >= 0) & ~tombstones[repeats.previous]
    return needless


def risen(repeats: Repeats, order_ms: Ints) -> Ints:
    """For each row the highest order timestamp of its key's rows up to it."""
    # A key's code weighs more than any rank: so one running maximum serves all keys.
    times, ranks = np.unique(order_ms, return_inverse=True)
    weighted = repeats.codes[repeats.by_key].astype(np.int64) * len(times) + ranks[repeats.by_key]
    highest = np.empty_like(order_ms)
    highest[repeats.by_key] = times[np.maximum.accumulate(weighted) % len(times)]
    return highest


def _newest(codes: Codes, timestamps_ms: Ints, count: int) -> Mask:
    """Of each key the newest `count` rows by (timestamp, row)."""
    by_time = np.lexsort((timestamps_ms, codes))  # stable: at a tie rows stay in their order
    mask = np.ones(len(codes), np.bool_)
    if count < len(codes):
        mask[by_time[:-count]] = codes[by_time[:-count]] != codes[by_time[count:]]
    return mask


def _standing(repeats: Repeats, tombstones: Mask) -> Mask:
    """Rows that no later tombstone of their key undoes."""
    codes = repeats.codes[repeats.by_key]
    places = np.flatnonzero(tombstones[repeats.by_key])
    mask = np.ones(len(codes), np.bool_)
    if len(places):
        following = np.searchsorted(places, np.arange(len(codes)), "right")
        undone = codes[places[np.minimum(following, len(places) - 1)]] == codes
        mask[repeats.by_key] = ~(undone & (following < len(places)))
    return mask
