"""Records -> commands, for lanes that take them as they come.

Indexes of fields change by what is stored before, which is read under the same WATCH (see
`lanes.chunk_transactions`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keylane.state import codec
from keylane.state.field_index import cut_entries
from keylane_spark.rows.encoding import content_of, decimal, encode_history, encode_records
from keylane_spark.rows.records import Records

_LOOK_BYTES = 128
"""As many bytes of an envelope have its fields, in most topics."""
_SCORE = b"$1\r\n0\r\n"


@dataclass(frozen=True, slots=True)
class InOrder:
    """How a lane changes that takes records as they come, without a look at what is stored.

    `index_keys`: of the sets of its live keys, as `redis_keys.parts_of` returns them; () without an index.
    `marker_ms`: how long a tombstone leaves a marker; 0: not at all. `field_keys`: for each index of fields,
    by its number, the keys of its sets. `history_count`: how many records a history keeps; 0: there are none.
    `history_prefix`: before a record's key, the key of its history. `past_keys`: as `index_keys`, of the keys
    that have a history.
    """

    index_keys: tuple[bytes, ...]
    marker_ms: int
    field_keys: tuple[tuple[bytes, ...], ...] = ()
    history_count: int = 0
    history_prefix: bytes = b""
    past_keys: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class OrderedWrites:
    """The changes as commands: MSET of `count` pairs, as `encode_records` has them, and `others`.

    `fields`: what changes in indexes of fields, which depends on what is stored; None without such indexes.
    """

    count: int
    arguments: memoryview
    others: Sequence[bytes | memoryview]
    """Each has one or more whole commands: `other_count` in all."""
    other_count: int
    fields: FieldChanges | None = None


class FieldChanges:
    """What records, at most one of a key, change in the indexes of fields of their lane.

    `look`: commands that read the heads of what is stored under the keys, `count` in all.
    """

    def __init__(self, rows: Records, key_prefix: bytes, field_keys: Sequence[Sequence[bytes]]) -> None:
        self._keys = rows.keys.to_pylist()
        self._entries = [b""] * len(rows) if rows.fields is None else rows.fields.to_pylist()
        self._field_keys = field_keys
        # What is stored has hardly longer entries than the records that replace it.
        self._look_bytes = max(_LOOK_BYTES, codec.LONGEST_BEFORE_FIELDS + max(map(len, self._entries)))
        last = b"%d" % (self._look_bytes - 1)
        after = b"$1\r\n0\r\n$%d\r\n%b\r\n" % (len(last), last)
        self.look = bytes(_words(rows.keys, b"*4\r\n$8\r\nGETRANGE\r\n", key_prefix, after))
        self.count = len(rows)

    def commands(self, heads: Sequence[bytes]) -> list[bytes] | None:
        """Return the commands, none for what stays as it is; None where a head has not all entries."""
        added: dict[int, list[bytes]] = {}
        removed: dict[int, list[bytes]] = {}
        for key, entries, head in zip(self._keys, self._entries, heads, strict=True):
            before = codec.fields_in_head(head)
            if before is None:
                if len(head) == self._look_bytes:
                    return None
                before = b""
            if before != entries:
                old, new, behind = cut_entries(before), cut_entries(entries), b"\0" + key
                _collect(added, behind, new, old)
                _collect(removed, behind, old, new)
        # Members before removals: Redis deletes a set that is empty.
        return [*self._of_all(b"ZADD", added, _SCORE), *self._of_all(b"ZREM", removed, b"")]

    def _of_all(self, name: bytes, members: Mapping[int, list[bytes]], before: bytes) -> Iterator[bytes]:
        for number, own in members.items():
            yield from _index_commands(name, self._field_keys[number], pa.array(own, pa.binary()), before)


def _collect(
    members: dict[int, list[bytes]],
    behind: bytes,
    entries: Sequence[bytes],
    others: Sequence[bytes],
) -> None:
    """Add the members of entries that are not among the others, by the numbers of their indexes."""
    for entry in entries:
        if entry not in others:
            members.setdefault(entry[0], []).append(entry[2:] + behind)


def encode_in_order(rows: Records, key_prefix: bytes, lane: InOrder, arguments: memoryview) -> OrderedWrites:
    """Encode rows, at most one of a key if there is no history.

    `arguments`: what `encode_records` makes of them.
    """
    history: list[bytes | memoryview] = []
    count = 0
    if lane.history_count:
        history, count = _history_commands(rows, lane)
        last = _last_of_keys(rows.keys)
        if not last.all():
            rows = rows.where(last)
            arguments = encode_records(rows, key_prefix, None)
    sets, deleted = rows, None
    if rows.values.null_count:
        is_set = rows.values.is_valid().to_numpy(zero_copy_only=False)
        sets, deleted = rows.where(is_set), rows.where(~is_set)
        arguments = encode_records(sets, key_prefix, None) if len(sets) else memoryview(b"")
    # Members before removals: Redis deletes a set that is empty.
    others: list[bytes | memoryview] = []
    others += _index_commands(b"ZADD", lane.index_keys, sets.keys, _SCORE)
    count += len(others)
    others += history
    if deleted is not None:
        if lane.marker_ms:
            after = b"$2\r\nPX\r\n$%d\r\n%d\r\n" % (len(str(lane.marker_ms)), lane.marker_ms)
            others.append(encode_records(deleted, key_prefix, None, b"*5\r\n$3\r\nSET\r\n", after))
        else:
            others.append(_words(deleted.keys, b"*2\r\n$3\r\nDEL\r\n", key_prefix))
        removals = list(_index_commands(b"ZREM", lane.index_keys, deleted.keys, b""))
        others += removals
        count += len(deleted) + len(removals)
    fields = FieldChanges(rows, key_prefix, lane.field_keys) if lane.field_keys else None
    return OrderedWrites(len(sets), arguments, others, count, fields)


def _history_commands(rows: Records, lane: InOrder) -> tuple[list[bytes | memoryview], int]:
    """The commands that add rows to the histories of their keys, and how many they are.

    What is too much goes by its rank, so nobody needs to know how many records a history has.
    """
    keys = rows.keys.unique()
    first_to_stay = b"%d" % -(lane.history_count + 1)
    after = b"$1\r\n0\r\n$%d\r\n%b\r\n" % (len(first_to_stay), first_to_stay)
    past = list(_index_commands(b"ZADD", lane.past_keys, keys, _SCORE))
    added = encode_history(rows, lane.history_prefix)
    trimmed = _words(keys, b"*4\r\n$15\r\nZREMRANGEBYRANK\r\n", lane.history_prefix, after)
    return [*past, added, trimmed], len(past) + len(rows) + len(keys)


def _last_of_keys(keys: pa.BinaryArray) -> NDArray[np.bool_]:
    """Which rows are the last of their key."""
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    last = np.zeros(len(codes), np.int64)
    last[codes] = np.arange(len(codes))
    is_last: NDArray[np.bool_] = last[codes] == np.arange(len(codes))
    return is_last


def _index_commands(
    name: bytes, index_keys: Sequence[bytes], members: pa.BinaryArray, before: bytes
) -> Iterator[bytes]:
    """A command for each part of an index, with `before` before each of its members."""
    if not index_keys or not len(members):
        return
    # In their order members cost the server a sixth less.
    members = members.take(pc.array_sort_indices(members))
    parts = [members]
    if len(index_keys) > 1:
        numbers = _part_numbers(members, len(index_keys))
        parts = [members.filter(pa.array(numbers == part)) for part in range(len(index_keys))]
    for key, own in zip(index_keys, parts, strict=True):
        if len(own):
            words = 2 + (2 if before else 1) * len(own)
            head = b"*%d\r\n$4\r\n%b\r\n$%d\r\n%b\r\n" % (words, name, len(key), key)
            yield head + _words(own, before)


def _part_numbers(members: pa.BinaryArray, count: int) -> NDArray[np.int64]:
    """The part of an index that each member is in, as `in_parts` in merge.lua has it."""
    digests = (hashlib.sha1(each, usedforsecurity=False).digest() for each in members.to_pylist())
    return np.fromiter((int.from_bytes(each[:4]) for each in digests), np.int64, len(members)) % count


def _words(keys: pa.BinaryArray, before: bytes, prefix: bytes = b"", after: bytes = b"") -> memoryview:
    """`before`, each key behind the prefix as a bulk string, `after`."""
    lengths = decimal(pc.binary_length(keys), len(prefix), before + b"$", b"\r\n" + prefix)
    return content_of(pc.binary_join_element_wise(lengths, keys, b"\r\n" + after, b""))
