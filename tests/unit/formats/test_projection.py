"""Projection: some fields of a JSON object, digit by digit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane.api.http.parameters import read_fields
from keylane.formats.projection import project

VALUE = b'{"a": 1.10, "b": {"c": [1e2, {"d": null}], "e": "\xc3\xa9"}, "big": 123456789012345678901234567890}'


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ("a", '{"a": 1.10}'),
        ("big,a", '{"big": 123456789012345678901234567890, "a": 1.10}'),
        ("b.c", '{"b": {"c": [1e2, {"d": null}]}}'),
        ("b.e,b.c", '{"b": {"e": "\\u00e9", "c": [1e2, {"d": null}]}}'),
        ("b.e,b", '{"b": {"c": [1e2, {"d": null}], "e": "\\u00e9"}}'),
        ("b,b.e", '{"b": {"c": [1e2, {"d": null}], "e": "\\u00e9"}}'),
        ("a.x,b.e.d,none,b.none", "{}"),
        ("b.c.d", '{"b": {"c": [{"d": null}]}}'),
        ("b.c.x,a", '{"b": {"c": [{}]}, "a": 1.10}'),
        ("a,a", '{"a": 1.10}'),
    ],
)
def test_fields_keep_their_digits_and_come_in_the_requested_order(fields: str, text: str):
    assert project(VALUE, read_fields(fields)) == text


LINES = b"""{"lines": [{"n": 1, "amount": 1.50, "cost": 2}, {"n": 2}, 7, [{"cost": 9}], null],
 "none": [], "ids": [1]}"""


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ("lines.amount", '{"lines": [{"amount": 1.50}, {}, [{}]]}'),
        ("lines.n,lines.amount", '{"lines": [{"n": 1, "amount": 1.50}, {"n": 2}, [{}]]}'),
        ("none.a,ids.a", '{"none": []}'),
        ("ids,lines.cost", '{"ids": [1], "lines": [{"cost": 2}, {}, [{"cost": 9}]]}'),
    ],
)
def test_a_path_leads_into_the_objects_of_an_array_and_shows_nothing_else_of_it(fields: str, text: str):
    assert project(LINES, read_fields(fields)) == text


def test_a_path_through_as_many_levels_as_json_may_have_is_followed():
    deep = b'{"a": ' + b"[" * 498 + b'{"b": 1}' + b"]" * 498 + b"}"
    assert project(deep, (("a", "b"),)) == deep.decode()


@pytest.mark.parametrize(
    "value", [b"", b"[1]", b"1", b"null", b'"a"', b"text", b"\xff", b"NaN", b'{"a": NaN}', b"[" * 100_000]
)
def test_a_value_that_is_not_an_object_has_no_fields(value: bytes):
    assert project(value, (("a",),)) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from("abc"), JSON, max_size=3))
def test_all_fields_make_up_the_object(found):
    assert json.loads(project(json.dumps(found).encode(), (("a",), ("b",), ("c",)))) == found
