"""What `sam local` makes of the template, without Docker: SAM's own parser, and the files for it."""

from __future__ import annotations

import json
import subprocess
import tomllib

import pytest
from tests.support.cloudformation import ROOT, of_type, template

from keylane.model.routes import ROUTES
from keylane_build import templates

pytestmark = pytest.mark.integration

PARSER = """
import json, sys
from samcli.lib.providers.api_provider import ApiProvider
from samcli.lib.providers.sam_stack_provider import SamLocalStackProvider
overrides = dict(each.split("=", 1) for each in sys.argv[1:])
stacks, _ = SamLocalStackProvider.get_stacks("template.yaml", parameter_overrides=overrides)
routes = ApiProvider(stacks, cwd=".").api.routes
print(json.dumps([[method, route.path, route.function_name] for route in routes for method in route.methods]))
"""
VARIABLES = json.loads((ROOT / "events" / "env.json").read_text(encoding="utf-8"))["Parameters"]
CONFIG = tomllib.loads((ROOT / "samconfig.toml").read_text(encoding="utf-8"))["default"]


def test_every_route_is_served_by_its_function():
    overrides = CONFIG["local_start_api"]["parameters"]["parameter_overrides"]
    command = [templates.program("python"), "-c", PARSER, *overrides]
    done = subprocess.run(
        command, cwd=ROOT, env=templates.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = {tuple(each) for each in json.loads(done.stdout.splitlines()[-1])}
    assert found == {
        (method, route.path, f"{route.function.capitalize()}Function")
        for route in ROUTES
        for method in route.methods
    }


def test_variables_for_containers_are_those_of_the_functions():
    """SAM passes only variables that the template has; those with a reference in them it leaves empty."""
    declared = {
        name
        for function in of_type(template(), "AWS::Serverless::Function").values()
        for name in function["Properties"]["Environment"]["Variables"]
    }
    assert VARIABLES.keys() <= declared
    unresolved = {
        name
        for function in of_type(template(), "AWS::Serverless::Function").values()
        for name, value in function["Properties"]["Environment"]["Variables"].items()
        if isinstance(value, dict) and ("Fn::If" in value or value.get("Ref") in template()["Resources"])
    }
    assert unresolved <= VARIABLES.keys()


def test_all_commands_use_these_variables_in_the_network_of_compose():
    for command in ("local_invoke", "local_start_api", "local_start_lambda"):
        assert CONFIG[command]["parameters"]["env_vars"] == "events/env.json"
        assert CONFIG[command]["parameters"]["docker_network"] == "keylane_default"
