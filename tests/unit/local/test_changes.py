"""What `keylane up` says of an edited keylane.toml, and which programs it starts again."""

from __future__ import annotations

import sys

import pytest

from keylane_local.process.program import Program
from keylane_local.stack.changes import describe_changes

BEFORE = """
[topics.a]
[topics.b]
[topics.c]
[views.v]
topic = "a"
columns = {n = "count()"}
"""


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (BEFORE, []),
        (BEFORE.replace("[topics.a]", "[topics.a]\nindex = true"), ["topic 'a' is built again", "index"]),
        (BEFORE.replace("[topics.a]", '[topics.a]\npartitioner = "crc32"'), ["'a' is built again", "crc32"]),
        (BEFORE.replace("[topics.a]", '[topics.a]\nvalue_format = "text"'), ["topic 'a' changes in place"]),
        (BEFORE.replace("[topics.a]", "[topics.a]\npartitions = 3"), ["only in how Kafka would create it"]),
        (BEFORE.replace("[topics.c]", ""), ["topic 'c' is no longer written", "forget_topics"]),
        (BEFORE + "[topics.d]", ["topic 'd' is new"]),
        (BEFORE.replace("count()", "sum(x)"), ["view 'v' is built again"]),
        (BEFORE + "[job]\nheartbeat_ms = 100", ["settings of the job changed"]),
    ],
)
def test_each_change_is_one_sentence_of_what_it_changes(tmp_path, after, said):
    old, new = tmp_path / "old.toml", tmp_path / "new.toml"
    old.write_text(BEFORE)
    new.write_text(after)
    lines = describe_changes(old, new)
    assert len(lines) == bool(said)
    assert all(word in lines[0] for word in said)


def test_nothing_is_said_without_the_file_of_before(tmp_path):
    new = tmp_path / "new.toml"
    new.write_text(BEFORE)
    assert describe_changes(tmp_path / "old.toml", new) == []


@pytest.fixture
def program(tmp_path):
    """A program that runs, with one file and one variable."""
    (tmp_path / "keylane.toml").write_text("1")
    found = Program(
        "sleeper",
        [sys.executable, "-c", "import time; time.sleep(600)"],
        pid_file=tmp_path / "run" / "sleeper.json",
        log=tmp_path / "log",
        env={"KEYLANE_X": "1"},
        files=[tmp_path / "keylane.toml"],
    )
    found.start()
    yield found
    found.kill()


def test_a_program_is_outdated_once_its_file_or_a_setting_is_another(program, tmp_path, monkeypatch):
    assert not program.is_outdated
    monkeypatch.setenv("KEYLANE_URL", "http://there")
    monkeypatch.setenv("OTHER", "1")
    assert not program.is_outdated
    (tmp_path / "keylane.toml").write_text("2")
    assert program.is_outdated
    (tmp_path / "keylane.toml").write_text("1")
    assert not program.is_outdated
    monkeypatch.setenv("KEYLANE_Y", "2")
    assert program.is_outdated
    program.kill()
    assert not program.is_outdated
    program.start()
    assert not program.is_outdated
