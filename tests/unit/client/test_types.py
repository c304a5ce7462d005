"""The client's types on the oldest Python that it supports: its own code, and what users of both write."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import keylane_client
from keylane_client import (
    AsyncFind,
    AsyncSession,
    AsyncSnapshot,
    AsyncSyncedTopic,
    AsyncTopic,
    AsyncView,
    Find,
    Session,
    Snapshot,
    SyncedTopic,
    Topic,
    View,
    topics,
)

USE = Path(__file__).with_name("typed_use.py")
PACKAGE = Path(keylane_client.__file__).parent
OLDEST = "3.10"


def test_a_type_checker_knows_what_each_method_takes_and_returns():
    # With the checkout's cache: without one it reads Spark and pandas again, for 15 s of a core.
    command = [sys.executable, "-m", "mypy", "--python-version", OLDEST, USE, PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PACKAGE.parents[2])
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("blocking", "other"),
    [
        (Topic, AsyncTopic),
        (Find, AsyncFind),
        (View, AsyncView),
        (Session, AsyncSession),
        (Snapshot, AsyncSnapshot),
        (SyncedTopic, AsyncSyncedTopic),
    ],
)
def test_both_clients_have_the_same_methods_and_each_is_in_the_typed_code(blocking, other):
    names = [name for name in dir(blocking) if not name.startswith("_")]
    assert names == [name for name in dir(other) if not name.startswith("_")]
    use = USE.read_text(encoding="utf-8")
    for name in names:
        assert len(re.findall(rf"\.{name}\b", use)) >= 2, name


@pytest.mark.parametrize("kind", [Topic, AsyncTopic, Find, AsyncFind], ids=lambda kind: kind.__name__)
def test_what_type_checkers_read_of_a_topic_takes_what_its_methods_take(kind):
    tree = ast.parse(inspect.getsource(topics))
    [stated] = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == kind.__name__]
    [stubs] = [each for each in stated.body if isinstance(each, ast.If)]
    assert {each.name for each in stubs.body} >= ({"page"} if "Find" in stated.name else {"get", "find"})
    for stub in stubs.body:
        found = inspect.signature(getattr(kind, stub.name)).parameters.values()
        arguments = stub.args
        rest = [arguments.kwarg] if arguments.kwarg else []
        names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest)]
        defaults = [None if each is None else ast.literal_eval(each) for each in arguments.kw_defaults]
        assert names == [each.name for each in found], stub.name
        assert defaults == [each.default for each in found if each.kind == each.KEYWORD_ONLY], stub.name


def test_help_shows_the_documented_signature_of_either_client():
    for name in ("get", "scan", "put", "watch"):
        blocking, other = getattr(Topic, name), getattr(AsyncTopic, name)
        assert blocking.__doc__ == other.__doc__ != None  # noqa: E711
        assert inspect.signature(blocking).parameters == inspect.signature(other).parameters
    assert (
        str(inspect.signature(Session.topic)) == "(self, name: 'str', model: 'type | None' = None) -> 'Topic'"
    )
    assert (
        str(inspect.signature(AsyncSession.topic))
        == "(self, name: 'str', model: 'type | None' = None) -> 'AsyncTopic'"
    )
