"""Answers of many rows: how they are put together, and how large they are for Lambda."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane.api.http import router
from keylane.api.http.json_response import FreshnessFields, render_rows
from keylane.api.http.router import _size_in_json

FRESHNESS = FreshnessFields({"watermarks": {"0": 7}, "age_ms": 3}, (("t", 3),))


@given(st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2), max_size=4))
def test_rows_are_a_document_with_what_is_before_and_behind_them(rows):
    answer = render_rows(
        list(map(json.dumps, rows)),
        FRESHNESS,
        {"next": "c"},
        before='"key": "k", "rows": [',
        behind='], "n": 1',
    )
    assert json.loads(answer.body) == {"key": "k", "rows": rows, "n": 1, "next": "c", **FRESHNESS.fields}
    assert answer.ages == FRESHNESS.ages


@pytest.mark.parametrize("slice_characters", [1, 3, 1_000])
@given(text=st.text(st.characters(codec="utf-8") | st.sampled_from('"\\\n\t\x00\x7f\ue000\U0001f600')))
def test_an_answer_is_as_large_as_the_json_that_lambda_makes_of_it(text: str, slice_characters: int):
    turns: list[None] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(router, "SLICE_CHARACTERS", slice_characters)
        assert _size_in_json(text, partial(turns.append, None)) == len(json.dumps(text))
    assert len(turns) == -(-len(text) // slice_characters)
