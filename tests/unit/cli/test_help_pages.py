"""`keylane help`: pages of the documents, and the hints that name them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import keylane
import keylane_cli
import keylane_client
import keylane_local
import keylane_server
import keylane_spark
from keylane_client.cli import commands
from keylane_local.errors import BadInput
from keylane_local.tools import project_root

DOCS = project_root() / "docs"
SOURCES = [
    path
    for package in (keylane, keylane_cli, keylane_client, keylane_local, keylane_server, keylane_spark)
    for path in Path(package.__file__).parent.rglob("*.py")
]
"""All that pip installs."""


def ask(*arguments: str) -> str:
    found = CliRunner().invoke(commands.keylane, ["help", *arguments])
    if isinstance(found.exception, BadInput):
        return str(found.exception)
    assert found.exit_code == 0, found.output
    return found.output


def test_pages_are_listed_with_their_titles():
    lines = dict(re.split(r"  +", line, maxsplit=1) for line in ask().splitlines())
    assert lines["operate/own-kafka"] == "Your own Kafka"
    assert lines["http"] == "HTTP API"


@pytest.mark.parametrize(
    ("given", "file"),
    [
        ("troubleshooting", "operate/troubleshooting.md"),
        ("docs/operate/troubleshooting.md#a-transform-fails", "operate/troubleshooting.md"),
        ("http", "http/README.md"),
        ("configuration/README", "configuration/README.md"),
        ("use/find", "use/find.md"),
    ],
)
def test_a_page_is_printed_by_its_name_or_its_end(given: str, file: str):
    assert ask(given) == (DOCS / file).read_text(encoding="utf-8")


def test_an_unknown_page_names_the_one_that_was_meant():
    assert ask("troublshooting") == "there is no page 'troublshooting': did you mean troubleshooting?"
    assert ask("xyzzy") == "there is no page 'xyzzy': `keylane help` lists them"
    assert "is one of decisions/views, http/views" in ask("views")


@pytest.mark.parametrize("name", ["grafana-dashboard.json", "prometheus-rules.yaml"])
def test_a_file_for_monitoring_is_printed_as_it_is(name: str):
    assert ask(name) == (project_root() / "infra" / "monitoring" / name).read_text(encoding="utf-8")


def test_each_page_that_a_command_or_an_alert_names_is_one():
    sources = [*SOURCES, project_root() / "infra" / "monitoring" / "prometheus-rules.yaml"]
    named = {name for path in sources for name in re.findall(r"keylane help ([\w/-]+)", path.read_text())}
    assert {"troubleshooting", "sizing", "settings", "metrics", "spark"} <= named
    for name in named:
        assert ask(name).startswith("# "), name


def test_no_hint_of_a_command_names_a_file_that_only_a_checkout_has():
    for path in SOURCES:
        hints = re.findall(r'(?<!")"[^"\n]*docs/[a-z/-]+\.md[^"\n]*"', path.read_text())
        assert not hints, path
