"""What `keylane up` says of an edited keylane.toml, and which programs it starts again."""

from __future__ import annotations

import sys

import pytest

from keylane_local.process.program import Program
from keylane_local.stack.changes import find_changes

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
    lines = find_changes(old, new).sentences
    assert len(lines) == bool(said)
    assert all(word in lines[0] for word in said)


def test_nothing_is_said_without_the_file_of_before(tmp_path):
    new = tmp_path / "new.toml"
    new.write_text(BEFORE)
    found = find_changes(tmp_path / "old.toml", new)
    assert not found.sentences
    assert "not known" in found.why_start


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (BEFORE, BEFORE + "[topics.d]", ""),
        (BEFORE, BEFORE.replace("[topics.c]", ""), ""),
        (BEFORE, BEFORE.replace("count()", "sum(x)"), ""),
        (BEFORE, BEFORE + "[topics.d]\nwhere = 'a > 1'", ""),
        (BEFORE, BEFORE + "[job]\nheartbeat_ms = 100", "settings of the job"),
        (BEFORE, BEFORE + "[spark]\n'spark.executor.memory' = '4g'", "settings of the job"),
        (BEFORE, BEFORE + "[topics.d]\ntransform = 'a:b'", "functions"),
        (BEFORE + "[topics.d]\ntransform = 'a:b'", BEFORE, "functions"),
        ("[topics.a]", BEFORE, "without SQL and views"),
        ("[topics.a]", "[topics.a]\nwhere = 'a > 1'", "without SQL and views"),
        (BEFORE, "[topics.a]", ""),
    ],
)
def test_a_job_goes_on_with_other_topics_and_views_alone(tmp_path, before, after, why):
    old, new = tmp_path / "old.toml", tmp_path / "new.toml"
    old.write_text(before)
    new.write_text(after)
    found = find_changes(old, new).why_start
    assert bool(found) == bool(why)
    assert why in found


READER = """
import pathlib, signal, sys

def read(*_):
    print("read:", pathlib.Path(sys.argv[1]).read_text(), flush=True)

signal.signal(signal.SIGHUP, read)
read()
while True:
    signal.pause()
"""


@pytest.fixture
def program(tmp_path):
    """A program that runs, with one file and one variable."""
    (tmp_path / "keylane.toml").write_text("1")
    found = Program(
        "sleeper",
        [sys.executable, "-c", READER, tmp_path / "keylane.toml"],
        pid_file=tmp_path / "run" / "sleeper.json",
        log=tmp_path / "log",
        env={"KEYLANE_X": "1"},
        files=[tmp_path / "keylane.toml"],
    )
    found.start()
    yield found
    found.kill()


def test_a_program_names_the_settings_and_files_that_changed_since_its_start(program, tmp_path, monkeypatch):
    assert program.changed_inputs() == []
    monkeypatch.setenv("KEYLANE_URL", "http://there")
    monkeypatch.setenv("OTHER", "1")
    assert program.changed_inputs() == []
    (tmp_path / "keylane.toml").write_text("2")
    assert program.changed_inputs() == ["keylane.toml"]
    monkeypatch.setenv("KEYLANE_Y", "secret")
    assert program.changed_inputs() == ["KEYLANE_Y", "keylane.toml"]
    program.kill()
    assert program.changed_inputs() == []
    program.start()
    assert program.changed_inputs() == []
    assert "secret" not in program.pid_file.read_text()
    monkeypatch.delenv("KEYLANE_Y")
    (tmp_path / "keylane.toml").unlink()
    assert program.changed_inputs() == ["KEYLANE_Y", "keylane.toml"]


def test_a_program_that_reads_its_files_again_has_said_nothing_before_that(program, tmp_path):
    program.wait_until(lambda: program.said("read: 1"), 20)
    (tmp_path / "keylane.toml").write_text("2")
    pid = program.process.pid
    program.read_again()
    assert program.changed_inputs() == []
    program.wait_until(lambda: program.said("read: 2"), 20)
    assert not program.said("read: 1")
    assert program.process.pid == pid
