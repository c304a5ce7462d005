"""`keylane.env`: the lines that it may have, and that the environment wins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from keylane.config.api import ApiSettings
from keylane.model.routes import PermissionKind
from keylane.model.served_topics import ServedTopics
from keylane_local import env_file
from keylane_local.errors import BadInput
from keylane_local.stack import topics


def test_lines_are_read_as_systemd_and_compose_read_them(tmp_path):
    file = tmp_path / "keylane.env"
    file.write_text("# a comment\n\nA=1\nC=\"x y\"\nD='z'\nE=a=b \nF=\n")
    assert env_file.read(file) == {"A": "1", "C": "x y", "D": "z", "E": "a=b", "F": ""}


@pytest.mark.parametrize("line", ["export A=1", "secret", "1A=2", "=x"])
def test_a_line_that_is_none_is_named_by_its_number_and_not_shown(tmp_path, line):
    file = tmp_path / "keylane.env"
    file.write_text(f"A=1\n{line}\n")
    with pytest.raises(BadInput, match=r"keylane\.env:2: is not NAME=VALUE$"):
        env_file.read(file)


def test_the_environment_wins_and_a_missing_file_says_nothing(tmp_path):
    file = env_file.beside(tmp_path / "keylane.toml")
    environment = {"A": "mine"}
    env_file.apply(file, environment)
    assert environment == {"A": "mine"}
    file.write_text("A=1\nB=2\n")
    env_file.apply(file, environment)
    assert environment == {"A": "mine", "B": "2"}
    assert env_file.beside(None) == Path("keylane.env")


def test_writes_go_where_the_topics_say_that_keys_are(tmp_path):
    config = tmp_path / "keylane.toml"
    environment: dict[str, str] = {}
    env_file.apply_placement(config, environment)
    assert environment == {}
    config.write_text(
        '[topics.a]\npartitioner = "crc32"\n[topics."b.c"]\npartition_by = "prefix:|"\n[topics.d]\n'
    )
    env_file.apply_placement(config, environment)
    assert {name: json.loads(value) for name, value in environment.items()} == {
        "KEYLANE_PARTITIONERS": {"a": "crc32"},
        "KEYLANE_PARTITION_BY": {"b.c": "prefix:|"},
    }
    environment = {"KEYLANE_PARTITIONERS": "{}", "KEYLANE_PARTITION_BY": "{}"}
    env_file.apply_placement(config, environment)
    assert set(environment.values()) == {"{}"}
    config.write_text("[topics")
    with pytest.raises(BadInput, match="can't be read"):
        env_file.apply_placement(config, environment)


def test_without_a_setting_the_server_of_somebodys_kafka_writes_to_the_topics_of_the_file_alone(monkeypatch):
    monkeypatch.delenv("KEYLANE_TOPICS", raising=False)
    served = ApiSettings.from_environment(topics.render_served(["orders", "people"])).topics
    written = [name for name in ("orders", "people", "ordersx", "_schemas") if is_written(served, name)]
    assert written == ["orders", "people"]
    assert served.is_served("others")
    assert not is_written(ApiSettings.from_environment(topics.render_served([])).topics, "orders")
    monkeypatch.setenv("KEYLANE_TOPICS", "{}")
    assert topics.render_served(["orders"]) == {}


def is_written(served: ServedTopics, topic: str) -> bool:
    return served.is_served(topic, PermissionKind.WRITE)
