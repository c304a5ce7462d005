from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from keylane_local.servers import kafka_format

if TYPE_CHECKING:
    from pathlib import Path

LEVELS = b"the levels of all features"


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of jars, with Kafka's."""
    monkeypatch.setenv("KEYLANE_TOOLS", str(tmp_path / "tools"))
    folder = tmp_path / "tools" / "jars"
    folder.mkdir(parents=True)
    (folder / "kafka_2.13-4.3.1.jar").touch()
    return folder


@pytest.fixture
def by_tool(tmp_path: Path) -> Path:
    """A log folder that Kafka's tool has formatted."""
    folder = tmp_path / "by-tool"
    folder.mkdir()
    (folder / "bootstrap.checkpoint").write_bytes(LEVELS)
    (folder / "meta.properties").write_text("version=1\nnode.id=1\n")
    return folder


def ids_of(data: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (data / "meta.properties").read_text().splitlines())


@pytest.mark.usefixtures("jars")
def test_a_folder_has_ids_of_its_own_and_the_levels_of_the_one_that_the_tool_has_formatted(
    by_tool: Path, tmp_path: Path
):
    kafka_format.keep_format(by_tool)
    one, other = tmp_path / "home" / "one", tmp_path / "home" / "other"
    assert kafka_format.format_as_before(one, 7, "cluster")
    assert kafka_format.format_as_before(other, 8, "cluster")
    assert kafka_format.is_formatted(one)
    assert (one / "bootstrap.checkpoint").read_bytes() == LEVELS
    folder_id = ids_of(one).pop("directory.id")
    assert ids_of(one) == {"version": "1", "node.id": "7", "cluster.id": "cluster", "directory.id": folder_id}
    assert ids_of(other)["directory.id"] != folder_id


def test_the_levels_of_another_release_are_not_taken(jars: Path, by_tool: Path, tmp_path: Path):
    kafka_format.keep_format(by_tool)
    (jars / "kafka_2.13-4.3.1.jar").rename(jars / "kafka_2.13-4.4.0.jar")
    assert not kafka_format.format_as_before(tmp_path / "new", 1, "cluster")
    assert not kafka_format.is_formatted(tmp_path / "new")


def test_a_folder_of_tools_that_cannot_be_written_to_keeps_nothing(
    jars: Path, by_tool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kafka_format.shutil, "copyfile", _refused)
    kafka_format.keep_format(by_tool)
    assert not kafka_format.format_as_before(tmp_path / "new", 1, "cluster")
    assert list(jars.parent.iterdir()) == [jars]


def _refused(*_: object) -> None:
    raise PermissionError


def test_an_id_is_sixteen_bytes_and_no_option_of_a_command():
    for _ in range(300):
        found = kafka_format.new_id()
        assert len(base64.urlsafe_b64decode(f"{found}==")) == 16
        assert not found.startswith("-")
