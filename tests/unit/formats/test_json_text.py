"""What is valid JSON: as Python's parser has it, without the constants that are not JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane.formats import json_text
from keylane.formats.json_text import (
    MAX_NESTING,
    NestedTooDeeply,
    ask_first,
    is_json,
    members,
    no_constant,
    parse,
    parse_stream,
    parse_unambiguous,
    parse_verbatim,
    why_not_json,
)
from keylane.formats.quick_json import is_surely_json

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


def nested(levels: int) -> str:
    """An object of that many levels."""
    return f'{{"a": {"[" * (levels - 1)}1{"]" * (levels - 1)}}}'


@given(DOCUMENTS, st.integers(0, 40), st.sampled_from(["", " ", "}", "{", '"', ",", "1", "\n", "\\", "NaN"]))
def test_a_text_is_json_where_python_parses_it_whatever_is_changed_in_it(document, at, change):
    text = json.dumps(document)
    for each in (text, text[:at] + change + text[at:], text[:at] + change + text[at + 1 :], text[:at]):
        assert is_json(each) == is_parsed(each)
        assert is_parsed(each) or not is_surely_json(each)


@pytest.mark.parametrize("is_raw", [True, False])
@given(document=DOCUMENTS)
def test_the_faster_parser_takes_what_has_no_odd_numbers_nor_halves_of_characters(
    document: Any, is_raw: bool
):
    text = json.dumps(document, ensure_ascii=not is_raw)
    if not any(token in text for token in ("NaN", "Infinity", "\\ud", "\\uD")):
        assert is_surely_json(text)


@pytest.mark.parametrize(
    "text",
    [
        *('{"a": 01}', "[1.]", "[.5]", "[-]", "[+1]", "[1e]", "[1e+]", "[0x1]", "[NaN]", "[-Infinity]"),
        *("['a']", '["\t"]', '["\x00"]', '["\x1f"]', '["\\x"]', '["\\u12"]', '["\\u12g4"]', '["a'),
        *(
            "[1,]",
            '{"a":1,}',
            "{1:2}",
            "[1]]",
            "[1] 2",
            "nul",
            "truefalse",
            "\ufeff[1]",
            "[1]\x00",
            "\xa0[1]",
        ),
        *("[1]//", "[1/**/]", "\x0b[1]", "[1]\x0c", "", " ", "\ud83d", '["\ud83d"', "[" * 400 + "]" * 399),
    ],
    ids=repr,
)
def test_the_faster_parser_takes_nothing_that_is_not_json(text: str):
    assert not is_parsed(text)
    assert not is_surely_json(text)


@pytest.mark.parametrize(
    "text", ['["\ud83d"]', nested(MAX_NESTING), nested(MAX_NESTING + 1), nested(100_000)], ids=len
)
def test_what_the_faster_parser_does_not_read_has_the_verdict_of_the_other(
    text: str, monkeypatch: pytest.MonkeyPatch
):
    expected = is_json(text)
    monkeypatch.setattr(json_text, "_accepts", None)
    ask_first(is_surely_json)
    assert is_json(text) == expected


def test_a_text_that_the_first_parser_takes_is_not_read_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_text, "_accepts", None)
    ask_first(lambda text: text == "no JSON")
    assert [is_json(text) for text in ("no JSON", "nor this", "[1]")] == [True, False, True]


@pytest.mark.parametrize("text", ['{"a":}', "{", "{}{}", '{"a":1', "{,}", '{"a":{"b":}}', "", "[", "{} x"])
def test_what_ends_too_early_or_goes_on_is_not_json(text: str):
    assert not is_json(text)


def test_numbers_of_any_length_and_space_around_are_json():
    assert is_json(f'{{"a": {"9" * 10_000}}}')
    assert is_json(' {"a": 1e999} \n')


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
