"""The answers to a caller with a scope are those of an instance that holds what the scope permits."""

from __future__ import annotations

import pytest
from tests.scopes.pairs import compare_pairs


@pytest.mark.parametrize("seed", range(4))
def test_answers_are_those_of_topics_that_hold_the_permitted_rows_and_fields(seed: int):
    assert compare_pairs(seed, 150) >= 150


@pytest.mark.long
def test_so_are_twenty_thousand_more():
    assert compare_pairs(100, 20_000) >= 20_000
