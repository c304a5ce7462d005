"""The page of errors is made from the service's table, and the client's errors are held against it."""

from __future__ import annotations

import re

import pytest
from tests.support.project_files import ROOT

from keylane.api.http.problems import PROBLEMS
from keylane_build import errors as errors_page
from keylane_client.errors import ERRORS_BY_STATUS, ERRORS_BY_TYPE, ProblemError, error_of


def test_the_page_is_what_the_table_and_the_text_say():
    stored = (ROOT / "docs" / "http" / "errors.md").read_text(encoding="utf-8")
    assert stored == errors_page.page(), "make generate"


def test_each_problem_has_one_row_on_the_page():
    of_functions = errors_page.page().partition("## Errors of API")[0]
    named = re.findall(r"^\| `([a-z-]+)` \| \d", of_functions, re.MULTILINE)
    assert sorted(named) == sorted(PROBLEMS)


def test_a_row_of_a_problem_that_there_is_not_is_refused(tmp_path, monkeypatch):
    text = tmp_path / "errors.txt"
    text.write_text("| {no-such-problem} | It is not there. |\n")
    monkeypatch.setattr(errors_page, "TEXT", text)
    with pytest.raises(KeyError, match="no-such-problem"):
        errors_page.page()


def test_a_problem_that_the_client_knows_by_its_type_is_one_of_the_service():
    assert ERRORS_BY_TYPE.keys() <= PROBLEMS.keys()


def test_a_problem_has_a_type_of_its_own_in_the_client_only_where_its_status_does_not_say_the_same():
    repeated = {
        name for name, kind in ERRORS_BY_TYPE.items() if ERRORS_BY_STATUS.get(PROBLEMS[name].status) is kind
    }
    assert repeated == set()


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_client_has_an_error_for_each_problem(name: str):
    kind = PROBLEMS[name]
    body = b'{"type": "urn:keylane:problem:%b", "title": "%b"}' % (name.encode(), kind.title.encode())
    error = error_of(kind.status, {}, body)
    assert isinstance(error, ProblemError)
    assert (error.type, error.title) == (name, kind.title)
    assert type(error) is not ProblemError
