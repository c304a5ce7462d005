"""SAM's own parsers, without Docker: routes for `sam local`, and parameters as the deployment page shows."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from typing import Any

import pytest
from tests.support.cloudformation import ROOT, of_type, template

from keylane.model.routes import ROUTES
from keylane_build import templates

pytestmark = pytest.mark.integration

PARSERS = """
import json, sys
from samcli.cli.types import CfnParameterOverridesType
from samcli.lib.providers.api_provider import ApiProvider
from samcli.lib.providers.sam_stack_provider import SamLocalStackProvider
asked = json.load(sys.stdin)
overrides = dict(each.split("=", 1) for each in asked["local"])
stacks, _ = SamLocalStackProvider.get_stacks("template.yaml", parameter_overrides=overrides)
routes = ApiProvider(stacks, cwd=".").api.routes
read = CfnParameterOverridesType().convert
print(json.dumps({
    "routes": [[method, route.path, route.function_name] for route in routes for method in route.methods],
    "overrides": {each: read((each,), None, None) for each in asked["overrides"]},
}))
"""
"""Reads overrides, and prints what SAM makes of them: of each by itself, and of the template with others."""
VARIABLES = json.loads((ROOT / "events" / "env.json").read_text(encoding="utf-8"))["Parameters"]
CONFIG = tomllib.loads((ROOT / "samconfig.toml").read_text(encoding="utf-8"))["default"]
PAGE = (ROOT / "docs" / "operate" / "deploy.md").read_text(encoding="utf-8")
DEPLOYMENTS = re.findall(r"^\$ sam deploy((?:[^\n]*\\\n)*[^\n]*)$", PAGE, re.MULTILINE)
SHOWN = {
    word
    for command in DEPLOYMENTS
    for word in shlex.split(command.replace("\\\n", " "))
    if re.match(r"[A-Z]\w+=", word)
} - {"Release=$(date"}
"""The overrides in the page's commands."""
IN_SHELL, IN_FILE = re.findall(r"`(\"[^`]*Topics=[^`]*\")`", PAGE)
QUOTED = (*shlex.split(IN_SHELL), IN_FILE.strip('"'))
BARE = 'Topics={"read":["orders*"]}'


@pytest.fixture(scope="module")
def parsed() -> dict[str, Any]:
    """What SAM's parsers make of everything, from one process: its start takes seconds."""
    asked = {
        "local": CONFIG["local_start_api"]["parameters"]["parameter_overrides"],
        "overrides": sorted({*SHOWN, *QUOTED, BARE}),
    }
    done = subprocess.run(
        [templates.program("python"), "-c", PARSERS],
        input=json.dumps(asked),
        cwd=ROOT,
        env=templates.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_route_is_served_by_its_function(parsed):
    assert {tuple(each) for each in parsed["routes"]} == {
        (method, route.path, f"{route.function.capitalize()}Function")
        for route in ROUTES
        for method in route.methods
    }


def test_every_override_of_the_page_reaches_cloudformation_as_it_is_written(parsed):
    assert len(SHOWN) > 14
    for each in SHOWN:
        name, _, value = each.partition("=")
        assert parsed["overrides"][each] == {name: value}


def test_json_is_quoted_as_the_page_says(parsed):
    for each in QUOTED:
        assert json.loads(parsed["overrides"][each]["Topics"]) == {"read": ["orders*"]}


def test_json_without_those_quotes_is_cut_off(parsed):
    """Should SAM ever take it as it is, the page can say less."""
    assert parsed["overrides"][BARE] == {"Topics": "{"}


def test_variables_for_containers_are_those_of_the_functions():
    """SAM passes only variables that the template has; those with a reference in them it leaves empty."""
    found = template()
    declared = [
        each
        for function in of_type(found, "AWS::Serverless::Function").values()
        for each in function["Properties"]["Environment"]["Variables"].items()
    ]
    unresolved = {
        name
        for name, value in declared
        if isinstance(value, dict) and ("Fn::If" in value or value.get("Ref") in found["Resources"])
    }
    assert unresolved <= VARIABLES.keys() <= dict(declared).keys()


def test_all_commands_use_these_variables_in_the_network_of_compose():
    for command in ("local_invoke", "local_start_api", "local_start_lambda"):
        assert CONFIG[command]["parameters"]["env_vars"] == "events/env.json"
        assert CONFIG[command]["parameters"]["docker_network"] == "keylane_default"
