"""Views' windows as bytes: keys that sort as keys and starts do, definitions, progress."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane.state.codec import CodecError
from keylane.state.windows import (
    Column,
    Definition,
    Progress,
    decode_rows,
    decode_window,
    encode_window,
    escaped,
    split,
    window_key,
)

KEYS = st.binary(min_size=1, max_size=6) | st.lists(st.sampled_from([b"\x00", b"\xff", b"a", b"\x01"])).map(
    b"".join
).filter(bool)
STARTS = st.integers(-(1 << 63), (1 << 63) - 1)


@given(KEYS, STARTS)
def test_a_window_key_gives_its_key_and_start_back(key, start_ms):
    assert split(window_key(key, start_ms)) == (key, start_ms)


@given(KEYS, STARTS, KEYS, STARTS)
def test_window_keys_sort_by_key_and_then_by_start(one, one_ms, other, other_ms):
    by_bytes = window_key(one, one_ms) < window_key(other, other_ms)
    assert by_bytes == ((one, one_ms) < (other, other_ms))


@given(KEYS, KEYS, STARTS)
def test_window_keys_of_a_prefix_begin_with_the_escaped_prefix_and_no_others_do(prefix, key, start_ms):
    assert window_key(key, start_ms).startswith(escaped(prefix)) == key.startswith(prefix)


def test_a_window_key_has_these_bytes():
    assert window_key(b"a\x00b", 1) == b"a\x00\xffb\x00\x01\x80\x00\x00\x00\x00\x00\x00\x01"


@given(st.binary(max_size=30))
def test_bytes_that_are_no_window_key_are_refused(name):
    try:
        key, start_ms = split(name)
    except CodecError:
        return
    assert window_key(key, start_ms) == name


@given(st.none() | STARTS, st.lists(st.none() | st.text() | st.integers()))
def test_a_window_gives_its_end_and_states_back(end_ms, states):
    assert decode_window(encode_window(end_ms, states)) == (end_ms, states)


def test_a_window_of_rows_gives_its_counts_and_states_back_and_is_a_window_for_readers():
    value = encode_window(None, [1, "2"], [3, 3, 1])
    assert decode_rows(value) == ([3, 3, 1], [1, "2"])
    assert decode_window(value) == (None, [1, "2"])
    with pytest.raises(CodecError):
        decode_rows(encode_window(None, [1]))


def test_a_view_has_the_text_of_earlier_versions_unless_it_is_of_a_table():
    text = Definition("t", (Column("n", "count"),)).to_json()
    assert "envelope" not in text
    assert '"key": null' in text  # every field that earlier versions had
    view = Definition("t", (Column("n", "count"),), value_format="registry", envelope="debezium")
    assert Definition.from_json(view.to_json()) == view
    # One whose lanes have rows of another version is built again beside it.
    assert json.loads(view.to_json())["rows"] == 2
    assert "rows" not in text


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"\xff", b'{"end": 1, "states": 3}'])
def test_bytes_that_are_no_window_are_refused(value):
    with pytest.raises(CodecError):
        decode_window(value)


def test_a_definition_and_a_progress_survive_as_json():
    view = Definition(
        "t", (Column("n", "count"), Column("l", "latest", "a.b", "c")), size_ms=1, is_session=True
    )
    assert Definition.from_json(view.to_json()) == view
    progress = Progress((1, 2), (None, 5), 3, 4)
    assert Progress.from_json(progress.to_json()) == progress


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"columns": [{"no": 1}], "topic": "t"}', '{"columns": 1}'])
def test_invalid_definition_is_refused(text):
    with pytest.raises(CodecError):
        Definition.from_json(text)
    with pytest.raises(CodecError):
        Progress.from_json(text.encode())


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, "none"),
        ({"size_ms": 10}, "tumbling"),
        ({"size_ms": 10, "every_ms": 10}, "tumbling"),
        ({"size_ms": 10, "every_ms": 3}, "hopping"),
        ({"size_ms": 10, "is_session": True}, "session"),
    ],
)
def test_windows_are_called_as_people_do(fields, kind):
    assert Definition("t", (), **fields).window == kind
