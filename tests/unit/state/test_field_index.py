"""What indexes of fields have of a document."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane.formats.json_text import parse_verbatim
from keylane.model.records import Options
from keylane.state import codec, ordered
from keylane.state.field_index import indexes_of, split_entries
from keylane.state.field_types import FIELD_TYPES

FIELDS = (
    ("amount", "number"),
    ("customer.id", "text"),
    ("open", "boolean"),
    ("placed", "time"),
    ("tags", "texts"),
)
OPTIONS = Options(index=1, fields=FIELDS, indexes=(("by_customer", ("customer.id", "placed")),))
INDEXES = indexes_of(OPTIONS)
DOCUMENT = {
    "amount": 12.5,
    "customer": {"id": "c7", "name": "Ann"},
    "open": True,
    "placed": "2013-01-01T05:00:00Z",
    "tags": ["new", "gift", "new"],
}


def entries(document):
    block, invalid = INDEXES.entries(parse_verbatim(json.dumps(document)))
    return list(split_entries(block)), invalid


def test_each_field_and_the_fields_together_have_an_entry():
    placed = ordered.encode_time("1357016400000")
    assert entries(DOCUMENT) == (
        [
            (0, ordered.encode_number("12.5")),
            (1, b"c7"),
            (2, b"t"),
            (3, placed),
            (4, b"gift"),
            (4, b"new"),
            (5, b"c7\0" + placed),
        ],
        0,
    )
    assert [index.name for index in INDEXES.indexes] == [*(name for name, _ in FIELDS), "by_customer"]


def test_a_missing_field_and_null_have_no_entry_and_are_not_invalid():
    assert entries({}) == ([], 0)
    assert entries({"amount": None, "customer": None, "tags": [], "open": None}) == ([], 0)
    assert entries({"customer": {"id": "c7"}}) == ([(1, b"c7")], 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("amount", "twelve"), ("amount", True), ("amount", [1]), ("amount", {}), ("open", "true"),
        ("open", 1), ("placed", "yesterday"), ("placed", False), ("tags", [1, 2]), ("tags", 7),
        ("tags", [str(number) for number in range(65)]),
    ],
)  # fmt: skip
def test_a_value_of_another_type_has_no_entry_and_is_invalid(name, value):
    assert entries({name: value}) == ([], 1)
    others, invalid = entries(DOCUMENT | {name: value})
    assert invalid == 1
    assert len(others) >= 4


def test_a_text_is_no_number_and_a_number_no_text():
    assert entries({"customer": {"id": 7}}) == ([], 1)
    assert entries({"customer": "c7"}) == ([], 0)


def test_decimals_in_strings_are_numbers_and_no_digit_is_lost():
    digits = "0.1000000000000000000000000001"
    as_text, _ = entries({"amount": digits})
    as_number = INDEXES.entries(parse_verbatim(f'{{"amount": {digits}}}'))[0]
    assert list(split_entries(as_number)) == as_text != entries({"amount": 0.1})[0]


def test_elements_that_are_no_text_are_left_out():
    assert entries({"tags": [None, "a", 3, ["b"]]}) == ([(4, b"a")], 0)
    assert entries({"tags": "a"}) == ([(4, b"a")], 0)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)


@given(st.fixed_dictionaries(dict.fromkeys(("a", "b", "c"), JSON)), st.sampled_from(list(FIELD_TYPES)))
def test_whatever_a_document_has_its_entries_are_sorted_and_come_back(document, kind):
    options = Options(index=1, fields=(("a", kind), ("b.c", "number"), ("c", "text")), indexes=())
    block, _ = indexes_of(options).entries(parse_verbatim(json.dumps(document)))
    found = list(split_entries(block))
    assert found == sorted(set(found))
    assert all(b"\0" not in value for _, value in found)
    data = codec.encode_record(b"v", 7, 9, 3, order_ms=10, fields=block, headers=(("a", b"b"),))
    assert codec.fields_of(data) == codec.fields_in_head(data) == block
    assert codec.fields_in_head(data[: codec.LONGEST_BEFORE_FIELDS + len(block)]) == block
    if block:
        assert codec.fields_in_head(data[: codec.LONGEST_BEFORE_FIELDS + len(block) - 1]) is None
    record = codec.decode_record(b"k", data, 0)
    assert record is not None
    assert (record.value, record.partition, record.offset) == (b"v", 3, 7)
    assert record.headers == (("a", b"b"),)


def test_the_longest_entry_fits_its_length():
    together = tuple((f"f{number}", "text") for number in range(3))
    options = Options(index=1, fields=together, indexes=(("all", ("f0", "f1", "f2")),))
    block, invalid = indexes_of(options).entries({f"f{number}": "\1" * 1_000_000 for number in range(3)})
    assert invalid == 0
    assert [len(value) for _, value in split_entries(block)] == [65, 65, 65, 197]


def test_entries_that_no_envelope_can_have_are_left_out_and_all_fields_count():
    options = Options(index=1, fields=tuple((f"f{number:02}", "texts") for number in range(16)))
    elements = [f"{number:02}" + "x" * 62 for number in range(64)]
    fits = {f"f{number:02}": elements for number in range(15)}
    block, invalid = indexes_of(options).entries(fits)
    assert (len(block), invalid) == (15 * 64 * 66, 0)
    assert codec.fields_of(codec.encode_record(b"v", 7, 9, fields=block)) == block
    assert indexes_of(options).entries(fits | {"f15": elements}) == (b"", 16)


def test_a_reader_that_does_not_know_fields_refuses_them():
    data = codec.encode_record(b"v", 7, 9, fields=b"\0\1a")
    assert data[:2] == b"\2\x20"
    with pytest.raises(codec.CodecError):
        codec.decode_record(b"k", b"\1" + data[1:], 0)
    for end in range(18, 23):
        with pytest.raises(codec.CodecError):
            codec.decode_record(b"k", data[:end], 0)
