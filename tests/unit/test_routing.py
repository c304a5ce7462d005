from __future__ import annotations

import csv
import itertools
import subprocess
import sys
from binascii import crc_hqx
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane import routing
from keylane_spark.rows.routing import partition_column

GOLDEN = Path(__file__).parent / "golden" / "murmur2.csv"
VECTORS = [
    (
        bytes.fromhex(row["key_hex"]),
        int(row["murmur2"]),
        int(row["of_9"]),
        int(row["of_30"]),
        int(row["of_1000"]),
    )
    for row in csv.DictReader(GOLDEN.read_text().splitlines())
]
# As librdkafka's own test of rd_fnv1a has them, made there with Go's hash/fnv.
FNV1A_VECTORS = [
    (b"kafka", 0xD33C4E1),
    (b"giberish123456789", 0x77A58295),
    (b"1234", 0x23BDD03),
    (b"234", 0x2DEA3CD2),
    (b"34", 0x740FA83E),
    (b"4", 0x310CA263),
    (b"PreAmbleWillBeRemoved,ThePrePartThatIs", 0x65CBD69C),
    (b"", 0x7EE3623B),
]
LAYOUTS = [(1, 1), (9, 1), (9, 3), (30, 1), (7, 5), (1000, 16), (16_384, 1), (1, 16_384)]


def test_the_golden_file_has_every_length_up_to_300_and_high_bytes():
    assert {len(key) for key, *_ in VECTORS} == set(range(301))
    assert {byte for key, *_ in VECTORS for byte in key} == set(range(256))


def test_murmur2_is_kafkas():
    assert [routing.murmur2(key) for key, *_ in VECTORS] == [vector[1] for vector in VECTORS]


@pytest.mark.parametrize(("column", "count"), [(2, 9), (3, 30), (4, 1000)])
def test_partitions_are_those_of_the_java_producer(column, count):
    expected = [vector[column] for vector in VECTORS]
    assert [routing.partition_for(key, count) for key, *_ in VECTORS] == expected
    keys = pa.array([key for key, *_ in VECTORS], pa.binary())
    assert partition_column(keys, count).tolist() == expected


@pytest.mark.parametrize(("key", "hashed"), FNV1A_VECTORS)
def test_fnv1a_is_saramas(key, hashed):
    assert routing.partition_for(key, 2**31 - 1, "fnv1a") == hashed % (2**31 - 1)
    assert routing.partition_for(key, 9, "fnv1a") == hashed % 9


def test_crc32_is_the_common_one():
    assert routing.partition_for(b"123456789", 2**32, "crc32") == 0xCBF43926
    assert routing.partition_for(b"", 9, "crc32") == 0


@pytest.mark.parametrize(
    ("key", "hashed"), [(b"", 0), (b"\xff\xff\xff\xff", 0x76293B50), (b"!Ce\x87", 0xF55B516B)]
)
def test_stripes_come_from_murmurhash3(key, hashed):
    assert routing.stripe_for(key, 2**32) == hashed


def test_an_unknown_partitioner_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="'murmur3' is unknown; known are murmur2, crc32, fnv1a"):
        routing.partition_for(b"a", 9, "murmur3")


@pytest.mark.parametrize("count", [0, -1])
def test_counts_below_one_are_refused(count):
    with pytest.raises(ValueError, match="at least 1 partition"):
        routing.partition_for(b"a", count)
    with pytest.raises(ValueError, match="at least 1 stripe"):
        routing.stripe_for(b"a", count)


@pytest.mark.parametrize(("partition_count", "stripes"), LAYOUTS)
def test_a_partition_owns_a_contiguous_range_of_slots(partition_count, stripes):
    slots = [
        routing.slot_for(partition, stripe, partition_count, stripes)
        for partition in range(partition_count)
        for stripe in range(stripes)
    ]
    assert slots == sorted(set(slots)), "lanes lie in order, each in a slot of its own"
    for lane, slot in enumerate(slots):
        partition = lane // stripes
        assert partition * 16_384 / partition_count - 1 < slot < (partition + 1) * 16_384 / partition_count


def test_slots_are_those_of_the_design():
    assert [routing.slot_for(partition, 0, 9, 1) for partition in range(9)] == [
        *(910, 2730, 4551, 6371, 8192, 10_012, 11_832, 13_653, 15_473)
    ]
    assert routing.slot_for(2, 1, 3, 2) == 15_018


def test_lanes_of_older_layouts_are_where_their_writers_placed_them():
    assert [routing.slot_for(partition, 0, 9, 1, centered=False) for partition in range(9)] == [
        *(0, 1820, 3640, 5461, 7281, 9102, 10_922, 12_743, 14_563)
    ]
    assert routing.slot_for(2, 1, 3, 2, centered=False) == 13_653


def test_lanes_are_spread_evenly_over_shards_of_equal_ranges():
    """As `redis-cli --cluster create` cuts them. Rounding leaves no other choice in few of 64,000 pairs."""
    uneven = 0
    for shards in range(1, 65):
        bounds = [round(shard * routing.SLOTS / shards) for shard in range(shards + 1)]
        for lanes in range(1, 1001):
            slots = (2 * np.arange(lanes) + 1) * routing.SLOTS // (2 * lanes)
            counts = np.diff(np.searchsorted(slots, bounds))
            assert counts.max() - counts.min() <= 2, (shards, lanes)
            uneven += int(counts.max() - counts.min() == 2)
    assert uneven <= 122
    for lanes in (1, 9, 1000):
        slots = [routing.slot_for(lane, 0, lanes, 1) for lane in range(lanes)]
        assert slots == list((2 * np.arange(lanes) + 1) * routing.SLOTS // (2 * lanes))


@pytest.mark.parametrize("lane", [(9, 0), (-1, 0), (0, 2), (0, -1)])
def test_a_lane_outside_its_layout_is_refused(lane):
    with pytest.raises(ValueError, match="is outside 9 partitions with 2 stripes"):
        routing.slot_for(*lane, 9, 2)


def test_more_lanes_than_slots_are_refused():
    with pytest.raises(ValueError, match="16385 lanes"):
        routing.slot_for(0, 0, 16_385, 1)


def test_hash_tags_are_the_first_strings_that_reach_their_slots():
    alphabet = b"0123456789abcdefghijklmnopqrstuvwxyz"
    first: dict[int, bytes] = {}
    for length in range(1, 5):
        for characters in itertools.product(alphabet, repeat=length):
            text = bytes(characters)
            first.setdefault(crc_hqx(text, 0) % 16_384, text)
    assert len(first) == 16_384
    assert [routing.hash_tag(slot) for slot in range(16_384)] == [first[slot] for slot in range(16_384)]


@pytest.mark.parametrize("slot", [-1, 16_384])
def test_a_slot_outside_the_cluster_has_no_tag(slot):
    with pytest.raises(ValueError, match="outside 0 to 16383"):
        routing.hash_tag(slot)


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"123456789", b"123456789"),
        (b"{user1000}.following", b"user1000"),
        (b"foo{}{bar}", b"foo{}{bar}"),
        (b"foo{{bar}}zap", b"{bar"),
        (b"foo{bar}{zap}", b"bar"),
        (b"foo}{bar", b"foo}{bar"),
        (b"{", b"{"),
        (b"", b""),
    ],
)
def test_key_slots_follow_the_cluster_specification(key, hashed):
    assert routing.key_slot(key) == crc_hqx(hashed, 0) % 16_384


@given(st.integers(0, 16_383), st.binary())
def test_a_tagged_key_lies_in_its_slot_whatever_follows(slot, rest):
    assert routing.key_slot(b"{%b}:%b" % (routing.hash_tag(slot), rest)) == slot


@pytest.mark.parametrize(
    ("key", "partition_by", "part"),
    [
        (b"ann|2026|x", "key", b"ann|2026|x"),
        (b"ann|2026|x", "prefix:|", b"ann"),
        (b"ann", "prefix:|", b"ann"),
        (b"ann|", "prefix:|", b"ann"),
        (b"|2026", "prefix:|", b""),
        (b"", "prefix:|", b""),
        (b"a:b::c::d", "prefix:::", b"a:b"),
        (b"\xff\x00|\xff", "prefix:|", b"\xff\x00"),
        ("Zürich→Bern".encode(), "prefix:→", "Zürich".encode()),
        (b"prefix:a", "prefix:12345678", b"prefix:a"),
    ],
)
def test_a_partition_key_is_what_stands_before_the_first_separator(key, partition_by, part):
    assert routing.partition_key(key, partition_by) == part


@pytest.mark.parametrize(
    "partition_by", ["", "prefix", "prefix:", "suffix:|", "|", "prefix:123456789", "prefix:→→→", "Prefix:|"]
)
def test_a_separator_is_one_to_eight_bytes(partition_by):
    with pytest.raises(ValueError, match="1 to 8 bytes"):
        routing.partition_key(b"a|b", partition_by)


@given(
    st.binary(min_size=1, max_size=40),
    st.integers(1, 500),
    st.integers(1, 8),
    st.sampled_from(sorted(routing.PARTITIONERS)),
    st.sampled_from(["key", "prefix:|"]),
)
def test_the_finder_of_lanes_computes_what_the_single_functions_do(key, count, stripes, partitioner, by):
    part = routing.partition_key(key, by)
    expected = routing.partition_for(part, count, partitioner), routing.stripe_for(part, stripes)
    assert routing.lane_finder(count, stripes, partitioner, by)(key) == expected


@given(st.lists(st.binary(max_size=20), max_size=60), st.integers(0, 300))
def test_many_keys_have_the_hashes_that_each_has_alone(keys, length):
    same_length = [bytes((number, 255 - number)) * 150 for number in range(routing.TOGETHER_LEAST + 2)]
    keys = [*keys, *(key[:length] for key in same_length)]
    assert routing.kafka_hashes(keys) == [routing.PARTITIONERS["murmur2"](key) for key in keys]


@pytest.mark.parametrize("partitioner", routing.PARTITIONERS)
@pytest.mark.parametrize("partition_by", ["key", "prefix:|"])
@pytest.mark.parametrize("stripes", [1, 3])
@pytest.mark.parametrize("count", [0, 3, 100])
def test_many_keys_have_the_lanes_that_each_has_alone(partitioner, partition_by, stripes, count):
    keys = [b"%d|%d" % (number % 7, number) for number in range(count)]
    shape = 9, stripes, partitioner, partition_by
    assert routing.find_lanes(keys, *shape) == list(map(routing.lane_finder(*shape), keys))


@pytest.mark.parametrize("wrong", [(0, 1), (1, 0), (1, 1, "md5"), (1, 1, "murmur2", "suffix:|")])
def test_the_finder_of_lanes_refuses_what_they_refuse(wrong):
    with pytest.raises(ValueError, match=r"\bat least\b|unknown|this must be"):
        routing.lane_finder(*wrong)


def test_routing_imports_nothing_heavy():
    code = "import sys; before = set(sys.modules); import keylane.routing; print(*set(sys.modules) - before)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {"redis", "confluent_kafka", "boto3", "numpy", "pyarrow", "json"} & set(loaded.stdout.split())
