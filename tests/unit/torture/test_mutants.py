"""The mutants of torture and model fit the code: their texts, their tests, and what they are run with."""

from __future__ import annotations

import ast
import dataclasses
import os
import subprocess
import sys
import tomllib
from collections import Counter

import pytest
from tests.model.mutants import MUTANTS as MODEL_MUTANTS
from tests.servers.own import shorten_jvm_starts
from tests.torture.configurations import configuration_named
from tests.torture.guards import MUTANTS, Mutant, Replacement
from tests.torture.mutants import GuardGone, environment_of, make, without_guard
from tests.torture.schedule import EVENTS

from keylane_local.tools import project_root

ROOT = project_root()


def by_name(mutant: Mutant) -> str:
    return mutant.name


def packages() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(settings["tool"]["importlinter"]["root_packages"])


@pytest.mark.parametrize("mutant", [*MUTANTS, *MODEL_MUTANTS], ids=by_name)
def test_each_guard_can_be_removed(mutant):
    texts = without_guard(mutant)
    assert texts
    for path, text in texts.items():
        assert text != (ROOT / path).read_text(encoding="utf-8")
        if path.endswith(".py"):
            compile(text, path, "exec")


@pytest.mark.parametrize("mutant", MUTANTS, ids=by_name)
def test_a_mutant_has_a_test_that_exists(mutant):
    file, _, name = mutant.test.partition("::")
    functions = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    assert name in {
        each.name for each in functions if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize("mutant", MUTANTS, ids=by_name)
def test_the_torture_has_the_event_and_the_topics_that_a_mutant_names(mutant):
    """It runs schedules on all topics where it has none of those that are named."""
    shapes = {shape.name for shape in configuration_named(mutant.configuration).shapes}
    assert set(mutant.topics) <= shapes
    assert mutant.focus is None or mutant.focus in EVENTS


def test_a_mutant_is_chosen_by_its_name():
    for mutants in (MUTANTS, MODEL_MUTANTS):
        names = Counter(mutant.name.partition(":")[0] for mutant in mutants)
        assert max(names.values()) == 1


def test_a_copy_imports_every_package_from_itself(tmp_path):
    make(dataclasses.replace(MUTANTS[0], replacements=()), tmp_path)
    code = f"import {', '.join(packages())}\nprint(*(each.__file__ for each in ({', '.join(packages())})))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment_of(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    files = done.stdout.split()
    assert len(files) == len(packages())
    assert [each for each in files if not each.startswith(str(tmp_path))] == []


def test_jvms_of_a_copy_have_the_options_of_pytest_unless_somebody_has_set_others(monkeypatch):
    monkeypatch.delenv("JDK_JAVA_OPTIONS")
    given = environment_of(ROOT)["JDK_JAVA_OPTIONS"]
    shorten_jvm_starts()
    assert os.environ["JDK_JAVA_OPTIONS"] == given
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xmx1g")
    assert environment_of(ROOT)["JDK_JAVA_OPTIONS"] == "-Xmx1g"


def test_a_copy_has_the_whole_project_without_the_guard(tmp_path):
    make(MUTANTS[0], tmp_path)
    lacking = {each.name for each in ROOT.iterdir()} - {each.name for each in tmp_path.iterdir()}
    assert {each for each in lacking if not each.startswith(".")} <= {"build", "dist"}
    path = MUTANTS[0].replacements[0].path
    assert (tmp_path / path).read_text(encoding="utf-8") == without_guard(MUTANTS[0])[path]
    assert (tmp_path / "tests/unit/build").is_dir()


def test_a_guard_that_has_changed_is_reported():
    gone = Replacement(MUTANTS[0].replacements[0].path, "no such text", "")
    with pytest.raises(GuardGone, match="no such text"):
        without_guard(dataclasses.replace(MUTANTS[0], replacements=(gone,)))
