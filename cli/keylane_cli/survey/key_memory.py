"""What a key takes of a primary's memory: the figures of docs/operate/sizing.md, and sums of them."""

import math

# Measured with a million keys of 14 bytes (names of 31 bytes, envelopes and values of 188) on a node of Redis
# 7.0 in cluster mode: 312 bytes per key, 422 with an index.
BYTES_PER_KEY, BYTES_PER_INDEXED_KEY = 94, 96
"""Memory per key, besides its name, envelope and value; and what an index adds to that, besides the key."""
NAME_BYTES, ENVELOPE_BYTES = 20, 18
"""Bytes of a key's name in Redis besides topic and key, and of the envelope before a value."""
INDEX_ENTRY_BYTES = 10
"""Of a key in a serialized index, besides the key."""
END_BYTES = 1
"""Between value and key in an index of a field."""
BYTES_PER_ENTRY = 120
"""Memory of an entry in an index of fields, besides the key and twice the value, which the envelope has, too.

Measured with a million keys of 8 bytes, values of 184, and two fields whose forms have 7 and 8 bytes: 286
bytes for both, of which one took 127 and the other 159, because allocations have few sizes.
"""

# Assumed.
INDEX_PART_MB = 64
"""Of a part of an index, serialized: a quarter of what ElastiCache moves."""
LARGEST_PART_MB = 256
"""ElastiCache moves no slot with a larger key, so the shard could not be divided."""
MEMORY_USED = 0.75
REBUILD = 2.0
"""A change of layout builds the topic beside itself."""


def bytes_of_key(topic_bytes: float, key_bytes: float, value_bytes: float, *, indexed: bool) -> float:
    """Return the bytes that a key takes, with its value."""
    plain = BYTES_PER_KEY + NAME_BYTES + topic_bytes + key_bytes + ENVELOPE_BYTES + value_bytes
    return plain + (BYTES_PER_INDEXED_KEY + key_bytes if indexed else 0)


def bytes_of_fields(key_bytes: float, entries: float, entry_bytes: float) -> float:
    """Return the bytes that a key takes in indexes of fields.

    `entries`: in how many it is; `entry_bytes`: of all its values in them.
    """
    return entries * (BYTES_PER_ENTRY + key_bytes) + 2 * entry_bytes


def index_megabytes(keys: float, member_bytes: float) -> float:
    """Return how large a serialized index of a lane with so many keys is. `member_bytes`: a key's in it."""
    return keys * (member_bytes + INDEX_ENTRY_BYTES) / 1e6


def count_index_parts(megabytes: float) -> int:
    """Return the `index_parts` for a lane whose index is so large."""
    return max(1, math.ceil(megabytes / INDEX_PART_MB))
