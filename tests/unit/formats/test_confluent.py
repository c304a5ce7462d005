"""Confluent's wire format, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane.formats import confluent


def test_prefix_is_a_zero_and_the_schemas_id_in_big_endian():
    assert confluent.split(bytes.fromhex("00000001020aff")) == (258, b"\x0a\xff")
    assert confluent.join(258, b"\x0a\xff") == bytes.fromhex("00000001020aff")


@given(st.integers(0, 2**32 - 1), st.binary(max_size=50))
def test_what_is_joined_is_split_again(schema_id, payload):
    assert confluent.split(confluent.join(schema_id, payload)) == (schema_id, payload)


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x00\x00\x01", b"\x01\x00\x00\x00\x01a", b'{"a": 1}'])
def test_value_without_the_prefix_is_refused(value):
    with pytest.raises(ValueError, match="a schema id"):
        confluent.split(value)


@pytest.mark.parametrize(
    ("data", "indexes", "rest"),
    [
        ("000801", (0,), "0801"),
        ("02000801", (0,), "0801"),
        ("04020008", (1, 0), "08"),
        ("02d804", (300,), ""),
    ],
)
def test_message_indexes_are_zigzag_and_a_single_zero_is_the_first_message(data, indexes, rest):
    assert confluent.message_indexes(bytes.fromhex(data)) == (indexes, bytes.fromhex(rest))


@pytest.mark.parametrize("data", ["", "80", "04", "01", "feffffff0f00"])
def test_invalid_message_indexes_are_refused(data):
    with pytest.raises(ValueError, match=r"."):
        confluent.message_indexes(bytes.fromhex(data))
