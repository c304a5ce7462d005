from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keylane import routing
from keylane_spark.rows.hashing import MURMUR2
from keylane_spark.rows.routing import hash_column, partition_column, partition_keys, stripe_column


def random_keys(seed: int, count: int, longest: int) -> list[bytes]:
    source = random.Random(seed)
    return [source.randbytes(source.randint(0, longest)) for _ in range(count)]


def assert_equal_to_scalar(column, keys: list[bytes]) -> None:
    assert hash_column(column, MURMUR2).view(np.int32).tolist() == [routing.murmur2(key) for key in keys]
    for partitioner in routing.PARTITIONERS:
        found = partition_column(column, 9, partitioner)
        assert found.dtype == np.int32
        assert found.tolist() == [routing.partition_for(key, 9, partitioner) for key in keys]
    for stripes in (1, 7):
        found = stripe_column(column, stripes)
        assert found.tolist() == [routing.stripe_for(key, stripes) for key in keys]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=80))
def test_columns_agree_with_scalars_on_any_bytes(keys):
    assert_equal_to_scalar(pa.array(keys, pa.binary()), keys)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=9), min_size=40, max_size=60), st.integers(0, 40))
def test_slices_agree_with_scalars(keys, start):
    assert_equal_to_scalar(pa.array(keys, pa.binary()).slice(start, 17), keys[start : start + 17])


def test_a_bulk_of_lengths_0_to_300_agrees_over_several_chunks():
    keys = random_keys(seed=1, count=20_000, longest=300)
    assert {len(key) for key in keys} == set(range(301))
    assert_equal_to_scalar(pa.array(keys, pa.binary()), keys)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 20, 255, 300])
def test_keys_of_one_length_agree(length):
    source = random.Random(length)
    keys = [source.randbytes(length) for _ in range(500)]
    assert_equal_to_scalar(pa.array(keys, pa.binary()), keys)


def test_one_huge_key_among_small_ones_agrees():
    keys = [*random_keys(seed=2, count=900, longest=30), b"\xff" * 300_001, b""]
    assert_equal_to_scalar(pa.array(keys, pa.binary()), keys)


def test_high_bytes_are_unsigned():
    keys = [bytes([byte]) * length for byte in (0x7F, 0x80, 0xFF) for length in range(1, 30)]
    assert_equal_to_scalar(pa.array(keys, pa.binary()), keys)


@pytest.mark.parametrize(
    "column",
    [pa.array([], pa.binary()), pa.array([b"a"], pa.binary()).slice(1)],
    ids=["empty", "empty slice"],
)
def test_no_rows_make_no_hashes(column):
    assert_equal_to_scalar(column, [])


@pytest.mark.parametrize("count", [1, 33, 100])
def test_columns_of_empty_keys_agree(count):
    assert_equal_to_scalar(pa.array([b""] * count, pa.binary()), [b""] * count)


@pytest.mark.parametrize("stripes", [1, 4])
def test_null_keys_are_refused(stripes):
    column = pa.array([b"a", None, b"b", None], pa.binary())
    with pytest.raises(ValueError, match="2 of 4 keys are null"):
        partition_column(column, 9)
    with pytest.raises(ValueError, match="2 of 4 keys are null"):
        stripe_column(column, stripes)


def test_a_slice_without_the_nulls_of_its_array_is_taken():
    column = pa.array([None, b"a", b"b", None], pa.binary())
    assert_equal_to_scalar(column.slice(1, 2), [b"a", b"b"])


@pytest.mark.parametrize("column", [pa.array([1, 2]), pa.array([b"a"], pa.large_binary())], ids=str)
def test_a_column_of_another_type_is_refused(column):
    with pytest.raises(TypeError, match=f"binary, not {column.type}"):
        partition_column(column, 9)


def test_columns_refuse_what_scalars_refuse():
    column = pa.array([b"a"], pa.binary())
    with pytest.raises(ValueError, match="known are murmur2, crc32, fnv1a"):
        partition_column(column, 9, "md5")
    with pytest.raises(ValueError, match="at least 1 partition"):
        partition_column(column, 0)
    with pytest.raises(ValueError, match="at least 1 stripe"):
        stripe_column(column, 0)


@settings(deadline=None)
@given(
    st.lists(st.text("ab|:", max_size=9).map(str.encode) | st.binary(max_size=20), min_size=33, max_size=60),
    st.sampled_from(["key", "prefix:|", "prefix:::", "prefix:a|b"]),
    st.integers(0, 20),
)
def test_parts_of_keys_agree_with_scalars(keys, partition_by, start):
    column = partition_keys(pa.array(keys, pa.binary()).slice(start), partition_by)
    assert_equal_to_scalar(column, [routing.partition_key(key, partition_by) for key in keys[start:]])


def test_parts_of_no_keys_and_of_null_keys_are_as_whole_keys():
    assert_equal_to_scalar(partition_keys(pa.array([], pa.binary()), "prefix:|"), [])
    with pytest.raises(ValueError, match="1 of 2 keys are null"):
        partition_keys(pa.array([b"a|b", None], pa.binary()), "prefix:|")
