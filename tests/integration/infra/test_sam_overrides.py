"""Parameters as the deployment page shows them: SAM's own parser takes each as it is meant."""

from __future__ import annotations

import json
import re
import shlex
import subprocess

import pytest
from tests.support.cloudformation import ROOT

from keylane_build import templates

pytestmark = pytest.mark.integration

PAGE = (ROOT / "docs" / "operate" / "deploy.md").read_text(encoding="utf-8")
PARSER = """
import json, sys
from samcli.cli.types import CfnParameterOverridesType
print(json.dumps(CfnParameterOverridesType().convert(tuple(sys.argv[1:]), None, None)))
"""
TOPICS = {"read": ["orders*"]}


def parsed(*overrides: str) -> dict[str, str]:
    command = [templates.program("python"), "-c", PARSER, *overrides]
    done = subprocess.run(command, env=templates.environment(), capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_every_override_of_the_page_reaches_cloudformation_as_it_is_written():
    commands = re.findall(r"^\$ sam deploy((?:[^\n]*\\\n)*[^\n]*)$", PAGE, re.MULTILINE)
    words = [word for command in commands for word in shlex.split(command.replace("\\\n", " "))]
    given = {word for word in words if re.match(r"[A-Z]\w+=", word)}
    assert len(given) > 15
    for each in given - {"Release=$(date"}:
        name, _, value = each.partition("=")
        assert parsed(each) == {name: value}


def test_json_is_quoted_as_the_page_says():
    [in_shell, in_file] = re.findall(r"`(\"[^`]*Topics=[^`]*\")`", PAGE)
    [word] = shlex.split(in_shell)
    for each in (word, in_file.strip('"')):
        assert json.loads(parsed(each)["Topics"]) == TOPICS


def test_json_without_those_quotes_is_cut_off():
    """Should SAM ever take it as it is, the page can say less."""
    assert parsed('Topics={"read":["orders*"]}') == {"Topics": "{"}
