"""The tools of a caller with a scope return what they do where nothing else is, and what routes return."""

from __future__ import annotations

import pytest
from tests.scopes.tool_pairs import compare_tools


@pytest.mark.parametrize("seed", range(4))
def test_tools_return_the_permitted_rows_and_fields_alone(seed: int):
    assert compare_tools(seed, 150) >= 150


@pytest.mark.long
def test_so_do_ten_thousand_more_calls():
    assert compare_tools(100, 10_000) >= 10_000
