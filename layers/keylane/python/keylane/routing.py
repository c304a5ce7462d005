"""Computes where a key is stored: key -> partition -> stripe -> hash slot -> hash tag. Pure functions.

    partition = partitioner(partition key) mod N
    stripe    = mmh3.hash(partition key, seed=0, signed=False) mod S
    slot      = floor((2 * (partition * S + stripe) + 1) * 16384 / (2 * N * S))
    hash_tag  = the first string, shortest first, then in order over 0-9a-z, whose CRC16 mod 16384 is the slot

The partition key is the key, or the part before its first separator: see `partition_key`.
mmh3 is MurmurHash3 and is not Kafka's hash: partitions come from murmur2 (MurmurHash2), stripes from mmh3.
An empty key hashes as Kafka hashes it. A null key belongs to no partition: callers refuse it.
The same functions over columns are in `keylane_spark.rows.routing`.
"""

import struct
from binascii import crc_hqx
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from itertools import product
from zlib import crc32

import mmh3

from keylane.model.records import WHOLE_KEY

SLOTS = 16384
"""Hash slots of a Redis Cluster."""

SEPARATOR_BYTES = 8
"""The longest separator."""

_BY_PREFIX = "prefix:"
_TAG_ALPHABET = b"0123456789abcdefghijklmnopqrstuvwxyz"
_TAG_LENGTH_MAX = 4  # four characters reach every slot: a test checks it
_MASK = 0xFFFFFFFF
_MURMUR2_SEED = 0x9747B28C
_MURMUR2_M = 0x5BD1E995
_FNV1A_BASIS = 0x811C9DC5
_FNV1A_PRIME = 0x01000193
_SIGN = 0x80000000
TOGETHER_LEAST = 8
"""So many keys of one length are hashed at once, if they are no longer than TOGETHER_LONGEST_BYTES."""
TOGETHER_LONGEST_BYTES = 256


def murmur2(data: bytes) -> int:
    """Return Kafka's own hash, a signed 32-bit number.

    Source: `org.apache.kafka.common.utils.Utils.murmur2` (kafka-clients), seed 0x9747b28c.
    """
    unsigned = _murmur2_unsigned(data)
    return unsigned - 0x100000000 if unsigned & _SIGN else unsigned


def _murmur2_unsigned(data: bytes) -> int:
    length = len(data)
    h = _MURMUR2_SEED ^ length
    blocks = length >> 2
    for word in struct.unpack_from(f"<{blocks}I", data):
        k = word * _MURMUR2_M & _MASK
        h = (h * _MURMUR2_M ^ (k ^ k >> 24) * _MURMUR2_M) & _MASK
    if length & 3:
        h = (h ^ int.from_bytes(data[blocks << 2 :], "little")) * _MURMUR2_M & _MASK
    h = (h ^ h >> 13) * _MURMUR2_M & _MASK
    return h ^ h >> 15


def _kafka_hash(key: bytes) -> int:
    return _murmur2_unsigned(key) & 0x7FFFFFFF  # Kafka's Utils.toPositive


def kafka_hashes(keys: Sequence[bytes]) -> list[int]:
    """Return `PARTITIONERS["murmur2"]` of each key, for 100 keys in a fifth of the time.

    Keys of one length are hashed at once: each has 64 bits of one long integer, whose products and shifts do
    not reach the next key's.
    """
    lengths = list(map(len, keys))
    if lengths and lengths.count(lengths[0]) == len(keys):
        return list(_hashes_of_length(lengths[0], keys))
    by_length: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        by_length.setdefault(length, []).append(index)
    hashes = [0] * len(keys)
    for length, indices in by_length.items():
        found = _hashes_of_length(length, [keys[index] for index in indices])
        for index, hashed in zip(indices, found, strict=True):
            hashes[index] = hashed
    return hashes


def _hashes_of_length(length: int, keys: Sequence[bytes]) -> Iterable[int]:
    """As `kafka_hashes`, of keys that have this length."""
    if len(keys) < TOGETHER_LEAST or length > TOGETHER_LONGEST_BYTES:
        return map(_kafka_hash, keys)
    return _hashes_together(length, keys)


@lru_cache(maxsize=16)
def _ones(count: int) -> int:
    """Return 1 for each of `count` keys."""
    return ((1 << 64 * count) - 1) // ((1 << 64) - 1)


def _hashes_together(length: int, keys: Sequence[bytes]) -> tuple[int, ...]:
    """As `_murmur2_unsigned`, step by step, of keys that have this length."""
    count, words_each = len(keys), (length + 3) >> 2
    each = _ones(count)
    mask, size = _MASK * each, 4 * words_each
    data = b"".join(keys if size == length else [key.ljust(size, b"\0") for key in keys])
    word = bytearray(8 * count)
    h = (_MURMUR2_SEED ^ length) * each
    for number in range(words_each):
        for byte in range(4):
            word[byte::8] = data[4 * number + byte :: size]
        k = int.from_bytes(word, "little")
        if number < length >> 2:
            k = k * _MURMUR2_M & mask
            h = (h * _MURMUR2_M ^ (k ^ k >> 24 & mask) * _MURMUR2_M) & mask
        else:
            h = (h ^ k) * _MURMUR2_M & mask
    h = (h ^ h >> 13 & mask) * _MURMUR2_M & mask
    h = (h ^ h >> 15 & mask) & 0x7FFFFFFF * each
    return struct.unpack(f"<{count}Q", h.to_bytes(8 * count, "little"))


def _sarama_hash(key: bytes) -> int:
    h = _FNV1A_BASIS
    for byte in key:
        h = (h ^ byte) * _FNV1A_PRIME & _MASK
    return 0x100000000 - h if h & _SIGN else h


PARTITIONERS: dict[str, Callable[[bytes], int]] = {
    "murmur2": _kafka_hash,
    "crc32": crc32,
    "fnv1a": _sarama_hash,
}
"""Partitioner -> its hash of a key, never negative.

murmur2: Java clients (`BuiltInPartitioner.partitionForKey`), librdkafka's `murmur2` and `murmur2_random`.
crc32: librdkafka's `consistent` and `consistent_random` (rdcrc32.c), kprf, lua-resty-kafka.
fnv1a: Sarama's `NewHashPartitioner` (32-bit FNV-1a as int32, negated where it is negative), librdkafka's
`fnv1a` (rdfnv1a.c). Sarama's `NewReferenceHashPartitioner` is a different one.
"""


@lru_cache(maxsize=256)
def separator_of(partition_by: str) -> bytes:
    """Return the separator of "prefix:SEPARATOR"; b"" for "key", the whole key.

    Raises ValueError for anything else: a separator is 1 to 8 bytes of UTF-8 text.
    """
    if partition_by == WHOLE_KEY:
        return b""
    separator = partition_by.removeprefix(_BY_PREFIX).encode()
    if not partition_by.startswith(_BY_PREFIX) or not 1 <= len(separator) <= SEPARATOR_BYTES:
        raise ValueError(
            f'this must be "key", or "prefix:" and a separator of 1 to {SEPARATOR_BYTES} bytes: "prefix:|"'
        )
    return separator


def partition_key(key: bytes, partition_by: str = WHOLE_KEY) -> bytes:
    """Return the part of a key that partition and stripe are computed from, as `partition_for` takes it.

    With "prefix:|" that is the part before the first "|"; the whole key where it has none.
    Raises ValueError as `separator_of`.
    """
    separator = separator_of(partition_by)
    return key.partition(separator)[0] if separator else key


def partition_for(key: bytes, partition_count: int, partitioner: str = "murmur2") -> int:
    """Return the partition, 0 to `partition_count` - 1, to which a producer with that partitioner writes it.

    Raises ValueError for an unknown partitioner and for a count below 1.
    """
    check_partitioning(partition_count, partitioner)
    return PARTITIONERS[partitioner](key) % partition_count


@lru_cache(maxsize=256)
def lane_finder(
    partition_count: int, stripes: int, partitioner: str = "murmur2", partition_by: str = WHOLE_KEY
) -> Callable[[bytes], tuple[int, int]]:
    """Return the function from a key to its partition and stripe; counts and names are checked once.

    Raises ValueError as `partition_for`, `stripe_for` and `separator_of`.
    """
    check_partitioning(partition_count, partitioner)
    stripe_for(b"", stripes)
    hash_of, separator = PARTITIONERS[partitioner], separator_of(partition_by)
    if stripes == 1 and not separator:
        return lambda key: (hash_of(key) % partition_count, 0)

    def find(key: bytes) -> tuple[int, int]:
        part = partition_key(key, partition_by)
        return hash_of(part) % partition_count, stripe_for(part, stripes)

    return find


def find_lanes(
    keys: Sequence[bytes], partition_count: int, stripes: int, partitioner: str, partition_by: str
) -> list[tuple[int, int]]:
    """Return partition and stripe of each key, as the function that `lane_finder` returns. Raises as it."""
    if PARTITIONERS.get(partitioner) is not _kafka_hash or len(keys) < TOGETHER_LEAST:
        return list(map(lane_finder(partition_count, stripes, partitioner, partition_by), keys))
    lane_finder(partition_count, stripes, partitioner, partition_by)  # checks them
    if separator_of(partition_by):
        keys = [partition_key(key, partition_by) for key in keys]
    partitions = [hashed % partition_count for hashed in kafka_hashes(keys)]
    if stripes == 1:
        return [(partition, 0) for partition in partitions]
    return [(partition, stripe_for(key, stripes)) for partition, key in zip(partitions, keys, strict=True)]


def check_partitioning(partition_count: int, partitioner: str) -> None:
    """Raise ValueError for an unknown partitioner, naming the known ones, and for a count below 1."""
    if partitioner not in PARTITIONERS:
        raise ValueError(f"partitioner {partitioner!r} is unknown; known are {', '.join(PARTITIONERS)}")
    if partition_count < 1:
        raise ValueError(f"a topic has at least 1 partition, not {partition_count}")


def stripe_for(key: bytes, stripes: int) -> int:
    """Return the stripe of the key's partition, 0 to `stripes` - 1, by MurmurHash3 x86 32-bit with seed 0.

    Raises ValueError for `stripes` below 1.
    """
    if stripes == 1:
        return 0
    if stripes < 1:
        raise ValueError(f"a partition has at least 1 stripe, not {stripes}")
    return mmh3.hash(key, 0, signed=False) % stripes


def slot_for(
    partition: int, stripe: int, partition_count: int, stripes: int, *, centered: bool = True
) -> int:
    """Return the hash slot of a lane, 0 to 16383: partition p owns [p*16384/N, (p+1)*16384/N).

    A lane lies in the middle of its share of the slots: clusters are cut at the bounds of shares, or beside
    them by rounding. Not `centered`: in the first slot, as in the layouts of older writers. Raises ValueError
    for a partition or stripe outside its count, and for more than 16384 lanes.
    """
    lanes = partition_count * stripes
    if not (0 <= partition < partition_count and 0 <= stripe < stripes):
        raise ValueError(
            f"lane {partition}.{stripe} is outside {partition_count} partitions with {stripes} stripes"
        )
    if lanes > SLOTS:
        raise ValueError(f"{lanes} lanes are more than the {SLOTS} slots of a cluster")
    return (2 * (partition * stripes + stripe) + centered) * SLOTS // (2 * lanes)


@cache
def hash_tag(slot: int) -> bytes:
    """Return the text that, between braces in a key, puts the key into that slot.

    It is the first such string over 0-9a-z, shortest first, then in order. The first call for a slot takes
    about 0.1 ms: CRC16 is linear, so the slot and the tag's beginning determine its last character.
    Raises ValueError for a slot outside 0 to 16383.
    """
    if not 0 <= slot < SLOTS:
        raise ValueError(f"slot {slot} is outside 0 to {SLOTS - 1}")
    low_byte = slot & 0xFF
    step = next(byte for byte in range(256) if crc_hqx(bytes((byte,)), 0) & 0xFF == low_byte)
    for length in range(_TAG_LENGTH_MAX):
        for characters in product(_TAG_ALPHABET, repeat=length):
            state = crc_hqx(bytes(characters), 0)
            last = step ^ state >> 8
            if last in _TAG_ALPHABET and crc_hqx(bytes((last,)), state) % SLOTS == slot:
                return bytes((*characters, last))
    raise AssertionError(f"slot {slot} has no tag of up to {_TAG_LENGTH_MAX} characters")


def key_slot(key: bytes) -> int:
    """Return the hash slot of any Redis key, by its hash tag where it has one.

    Source: the Redis Cluster specification, "Hash tags"; its CRC16 is CRC16/XMODEM, `binascii.crc_hqx` here.
    """
    start = key.find(b"{") + 1
    if start:
        end = key.find(b"}", start)
        if end > start:
            key = key[start:end]
    return crc_hqx(key, 0) % SLOTS
