"""Patches of LocalStack are applied by name, to the version that they are for, and never stop it."""

from __future__ import annotations

import logging

import pytest
from localstack_process_executor.patches import PATCHES
from localstack_process_executor.patching import apply_patches, choose

LOGGER = "localstack_process_executor.patching"


@pytest.fixture
def applied():
    """The names of the patches that ran."""
    return []


@pytest.fixture
def patches(applied):
    """Three patches; the second one fails."""

    def first() -> None:
        """Fix the first thing."""
        applied.append("first")

    def broken() -> None:
        raise AttributeError("module 'localstack' has no attribute 'gone'")

    def last() -> None:
        applied.append("last")

    return {"first": first, "broken": broken, "last": last}


def test_without_names_localstack_stays_as_it_is(patches, applied):
    assert apply_patches("", patches, "4.14.0") == []
    assert applied == []


def test_only_named_patches_are_applied_and_logged(patches, applied, caplog):
    caplog.set_level(logging.INFO, LOGGER)
    assert apply_patches(" last , first ", patches, "4.14.3") == ["first", "last"]
    assert applied == ["first", "last"]
    assert "patch applied: first: Fix the first thing." in caplog.text


def test_a_patch_that_fails_is_logged_and_the_others_are_applied(patches, applied, caplog):
    assert apply_patches("all", patches, "4.14.0") == ["first", "last"]
    assert applied == ["first", "last"]
    assert "the patch broken could not be applied: LocalStack starts without it" in caplog.text
    assert "has no attribute 'gone'" in caplog.text


@pytest.mark.parametrize("version", ["4.13.1", "4.15.0", "4.140.0", "5.0.0"])
def test_another_version_of_localstack_is_not_patched(patches, applied, caplog, version):
    assert apply_patches("first", patches, version) == []
    assert applied == []
    assert f"they are for LocalStack 4.14 and this is {version}: first" in caplog.text


def test_an_unknown_name_is_logged_with_those_that_there_are(patches, caplog):
    assert choose("first,frist", patches) == ["first"]
    assert "there is no patch frist; choose from all, first, broken, last" in caplog.text


def test_every_patch_says_in_one_line_what_it_does():
    for name, patch in PATCHES.items():
        assert (patch.__doc__ or "").split("\n")[0].endswith("."), name


def test_the_readme_describes_every_patch(request):
    page = (request.path.parents[1] / "README.md").read_text(encoding="utf-8")
    for name in PATCHES:
        assert f"| `{name}` | " in page
