"""Type checker, linter and import rules see all code, and what their settings name exists."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from tests.support.project_files import ROOT, project_files

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
FILES = sorted(path.relative_to(ROOT).as_posix() for path in project_files(".py"))
OWN = [name for name in FILES if "tests" not in name.split("/")]
"""All code but tests, which are not annotated."""
CONTRACTS = {each["name"]: each for each in SETTINGS["importlinter"]["contracts"]}
WHOLE = {
    "Client libraries are imported by adapters alone": {"keylane"},
    "keylane_spark: only what reads the log knows Kafka's clients": {"keylane_spark"},
    "keylane_spark: only the lanes speak to Redis": {"keylane_spark"},
    "keylane_client: only the drivers, what makes their clients, and the fake know of HTTP": {
        "keylane_client"
    },
    "keylane_cli, keylane_local: know the job by its settings and its preview; `keylane job` starts it": {
        "keylane_cli",
        "keylane_local",
    },
}
"""Contracts about all modules of packages: what may import is an exception, and a new module is none."""
PATTERNS = sorted(
    {*SETTINGS["ruff"]["lint"]["per-file-ignores"], *SETTINGS["ruff"]["per-file-target-version"]}
)


def regex_of(pattern: str) -> str:
    """A pattern of ruff's settings as a regular expression."""
    text = re.escape(pattern).replace(r"\*\*/", "(.*/)?").replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
    return text.replace(r"\{", "(").replace(r"\}", ")").replace(",", "|")


def folder_of(package: str) -> str:
    [folder] = [
        f"{each}/{package}" for each in SETTINGS["mypy"]["mypy_path"] if (ROOT / each / package).is_dir()
    ]
    return folder


def children(package: str) -> set[str]:
    """The modules and packages directly in a package."""
    inside = [
        name.removeprefix(f"{folder_of(package)}/") for name in FILES if name.startswith(folder_of(package))
    ]
    return {name.partition("/")[0].removesuffix(".py") for name in inside} - {"__init__"}


def imported() -> set[str]:
    """The packages that our code imports, without what is below them."""
    texts = ((ROOT / name).read_text(encoding="utf-8") for name in OWN)
    return {found for text in texts for found in re.findall(r"^ *(?:import|from) (\w+)", text, re.MULTILINE)}


def test_the_type_checker_reads_all_code_but_tests():
    checked = tuple(SETTINGS["mypy"]["files"])
    assert [name for name in OWN if not name.startswith(checked)] == []
    assert [name for name in checked if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_exception_of_the_linter_is_about_files_that_exist(pattern: str):
    assert any(re.fullmatch(regex_of(pattern), name) for name in FILES)


def test_the_import_rules_are_about_all_packages():
    packages = {
        name.rpartition("/")[2]
        for name in SETTINGS["mypy"]["files"]
        if (ROOT / name / "__init__.py").exists()
    }
    assert set(SETTINGS["importlinter"]["root_packages"]) == packages
    assert set(CONTRACTS["No circles"]["ancestors"]) == packages


@pytest.mark.parametrize("name", WHOLE)
def test_an_import_rule_about_all_modules_but_some_is_about_the_whole_package(name: str):
    assert {*CONTRACTS[name]["source_modules"]} == WHOLE[name]
    assert CONTRACTS[name]["ignore_imports"]
    assert CONTRACTS[name].get("unmatched_ignore_imports_alerting", "error") == "error"


def test_a_library_that_import_rules_forbid_is_one_that_the_code_imports():
    forbidden: set[Any] = {each for rule in CONTRACTS.values() for each in rule.get("forbidden_modules", ())}
    assert forbidden
    assert {each.partition(".")[0] for each in forbidden} - imported() == set()


def test_the_command_line_may_not_know_any_module_of_the_job_but_those_that_its_import_rule_leaves_out():
    name = "keylane_cli, keylane_local: know the job by its settings and its preview; `keylane job` starts it"
    left_out = {each.partition(" -> keylane_spark.")[2] for each in CONTRACTS[name]["ignore_imports"]}
    assert CONTRACTS[name]["forbidden_modules"] == ["keylane_spark"]
    assert left_out == {"config.*", "preview", "__main__"}
