"""What is valid JSON: as Python's parser has it, without the constants that are not JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane.formats.json_text import (
    MAX_NESTING,
    NestedTooDeeply,
    is_json,
    members,
    no_constant,
    parse,
    parse_stream,
    parse_unambiguous,
    parse_verbatim,
    why_not_json,
)

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


def nested(levels: int) -> str:
    """An object of that many levels."""
    return f'{{"a": {"[" * (levels - 1)}1{"]" * (levels - 1)}}}'


READERS = [
    pytest.param(lambda text: parse(text.encode()), id="a body"),
    pytest.param(lambda text: list(parse_stream(text.encode())), id="a stream of documents"),
    pytest.param(parse_verbatim, id="a document with fields"),
    pytest.param(members, id="an event"),
]


@pytest.mark.parametrize("read", READERS)
def test_every_reader_takes_as_many_levels_whatever_the_process_has_read_before(read: Any):
    before = sys.getrecursionlimit()
    read(nested(MAX_NESTING))
    for levels in (MAX_NESTING + 1, 2 * MAX_NESTING, 100_000):
        with pytest.raises(ValueError, match=r"nested (too deeply|deeper than 500 levels)"):
            read(nested(levels))
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize("levels", [1, 2, MAX_NESTING - 1, MAX_NESTING])
def test_a_value_is_json_down_to_the_same_level(levels: int):
    assert is_json(nested(levels))
    assert not is_json(nested(levels + MAX_NESTING))
    assert not is_json(nested(MAX_NESTING + 1))


def test_brackets_that_are_not_levels_do_not_count():
    assert is_json(json.dumps("[" * 10_000))
    assert is_json(json.dumps([[{}]] * 10_000))
    assert parse(json.dumps({"a": ["{" * 10_000, [[]] * 10_000]}).encode())
    with pytest.raises(NestedTooDeeply):
        parse(json.dumps({"a": "{" * 10_000, "b": json.loads("[" * 500 + "]" * 500)}).encode())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"a" 1}', "is not valid JSON: Expecting ':' delimiter at character 5"),
        (b'{"a": 1e400}', "is not valid JSON: the number 1e400 is too large"),
        (b"9" * 5_000, "is not valid JSON: a number has too many digits"),
        (b"[NaN]", "is not valid JSON: NaN is not JSON"),
        (b'{"a": 1, "a": 2}', "is not valid JSON: a name is there twice"),
        (b'"\xf0\x9f', "is not UTF-8 at byte 1"),
        (b"[" * 501 + b"]" * 501, "is nested deeper than 500 levels"),
    ],
    ids=["comma", "range", "digits", "constant", "twice", "bytes", "depth"],
)
def test_what_is_wrong_with_a_document_is_said_without_its_text(data: bytes, why: str):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (of several classes)
        parse_unambiguous(data)
    assert why_not_json(caught.value) == why
