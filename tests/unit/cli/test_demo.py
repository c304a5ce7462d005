"""`keylane demo` in an empty folder, and in one with topics of its own."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from rich.console import Console

from keylane_cli import stack
from keylane_local import tools
from keylane_local.demo import steps
from keylane_local.errors import BadInput, ToolMissing


class StackThatEnds:
    """Notes its configuration, and goes no further."""

    configs: list = []  # noqa: RUF012 (emptied by the fixture)

    def __init__(self, _, config=None, **__) -> None:
        self.configs.append(config)

    def up(self) -> None:
        raise ToolMissing("no Java")


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """Return a function that runs `keylane demo` in the folder, and returns how it ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KEYLANE_DATA", raising=False)
    monkeypatch.setattr(stack, "Stack", StackThatEnds)
    StackThatEnds.configs.clear()
    return lambda: CliRunner().invoke(stack.demo, []).exception


def test_in_an_empty_folder_the_demo_has_its_own_topics_and_leaves_the_folder_to_its_user(demo, tmp_path):
    assert isinstance(demo(), ToolMissing)
    [config] = StackThatEnds.configs
    assert config.read_bytes() == (tools.project_root() / "keylane.toml").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == [".keylane"]


def test_the_topics_of_the_folder_come_first(demo, tmp_path):
    (tmp_path / "keylane.toml").write_text("[topics.flights]\n")
    assert isinstance(demo(), ToolMissing)
    assert [str(config) for config in StackThatEnds.configs] == ["keylane.toml"]


def test_topics_without_the_flights_end_the_demo_before_anything_starts(demo, tmp_path):
    (tmp_path / "keylane.toml").write_text("[topics.orders]\n")
    error = demo()
    assert isinstance(error, BadInput)
    assert str(error) == "keylane.toml has no topic 'flights': run `keylane demo` in an empty folder"
    assert StackThatEnds.configs == []


@pytest.mark.parametrize(("status", "is_shown"), [(200, True), (409, False), (400, True)])
def test_what_is_found_by_fields_is_shown_where_the_topic_has_them(status, is_shown):
    answer = SimpleNamespace(status=status, data=b'{"records": [1]}')
    api = SimpleNamespace(took_ms=1.0, request=lambda *_: answer)
    out = io.StringIO()
    steps._show_found(api, Console(file=out, width=200))
    assert ('{"records": [1]}' in out.getvalue()) is is_shown
