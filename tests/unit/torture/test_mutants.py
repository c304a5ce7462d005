"""The guards that the mutants of torture and model remove are where the mutants expect them."""

from __future__ import annotations

import dataclasses
import py_compile

import pytest
from tests.model.mutants import MUTANTS as MODEL_MUTANTS
from tests.torture.guards import MUTANTS, Replacement
from tests.torture.mutants import GuardGone, make


@pytest.mark.parametrize("mutant", [*MUTANTS, *MODEL_MUTANTS], ids=lambda mutant: mutant.name)
def test_each_guard_can_be_removed(mutant, tmp_path):
    make(mutant, tmp_path)
    for replacement in mutant.replacements:
        changed = tmp_path / replacement.path
        assert replacement.new in changed.read_text()
        if changed.suffix == ".py":
            py_compile.compile(str(changed), doraise=True)


def test_a_guard_that_has_changed_is_reported(tmp_path):
    gone = Replacement(MUTANTS[0].replacements[0].path, "no such text", "")
    with pytest.raises(GuardGone, match="no such text"):
        make(dataclasses.replace(MUTANTS[0], replacements=(gone,)), tmp_path)
