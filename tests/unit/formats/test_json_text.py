"""What is valid JSON: as Python's parser has it, without the constants that are not JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane.formats.json_text import is_json, no_constant

DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def is_parsed(text: str) -> bool:
    try:
        json.loads(text, parse_constant=no_constant)
    except ValueError:
        return False
    return True


@given(DOCUMENTS, st.integers(0, 40), st.sampled_from(["", " ", "}", "{", '"', ",", "1", "\n", "\\", "NaN"]))
def test_a_text_is_json_where_python_parses_it_whatever_is_changed_in_it(document, at, change):
    text = json.dumps(document)
    for each in (text, text[:at] + change + text[at:], text[:at] + change + text[at + 1 :], text[:at]):
        assert is_json(each) == is_parsed(each)


@pytest.mark.parametrize("text", ['{"a":}', "{", "{}{}", '{"a":1', "{,}", '{"a":{"b":}}', "", "[", "{} x"])
def test_what_ends_too_early_or_goes_on_is_not_json(text: str):
    assert not is_json(text)


def test_numbers_of_any_length_and_space_around_are_json():
    assert is_json(f'{{"a": {"9" * 10_000}}}')
    assert is_json(' {"a": 1e999} \n')
