"""docs/operate/parameters.md has every parameter of the template with its default; each has a description."""

from __future__ import annotations

import re

import pytest
from tests.support.cloudformation import ROOT, template

PARAMETERS = template()["Parameters"]
PAGE = (ROOT / "docs" / "operate" / "parameters.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`[A-Z].*?) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
DEFAULTS = {name: default for names, default, _ in ROWS for name in re.findall(r"`(\w+)`", names)}
PLACEHOLDERS = {"KafkaClusterArn"}
"""A default that CloudFormation needs and that means none."""
MOST_PARAMETERS, MOST_RESOURCES, LARGEST_TEMPLATE = 200, 500, 1_000_000
"""CloudFormation's quotas: parameters and resources of a template, bytes of a template in S3."""


def test_the_page_has_the_parameters_of_the_template_and_no_other():
    assert DEFAULTS.keys() == PARAMETERS.keys()


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_parameter_has_a_description_and_the_default_of_the_page(name):
    described = PARAMETERS[name]
    assert len(described["Description"]) > 15
    shown = "none" if described["Default"] == "" or name in PLACEHOLDERS else f"`{described['Default']}`"
    assert DEFAULTS[name] == shown


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_parameter_is_used(name):
    text = (ROOT / "template.yaml").read_text(encoding="utf-8")
    assert re.search(rf"!Ref {name}\b|\$\{{{name}\}}", text)


def test_what_the_page_calls_a_rule_is_one():
    asserted = " ".join(
        each["AssertDescription"] for rule in template()["Rules"].values() for each in rule["Assertions"]
    )
    for names, _, text in ROWS:
        if re.search(r"\brule\b", text):
            mentioned = re.findall(r"`(\w+)`", f"{names} {text}")
            assert any(word in asserted for word in mentioned), names


@pytest.mark.parametrize(
    "path",
    ["template.yaml", *sorted(str(each.relative_to(ROOT)) for each in (ROOT / "infra").glob("*.yaml"))],
)
def test_a_template_is_within_the_quotas_of_cloudformation(path):
    found = template(path)
    assert len(found.get("Parameters", {})) <= MOST_PARAMETERS
    # SAM adds a version, an alias and a deployment group for each function, and what belongs to the API.
    assert len(found["Resources"]) <= MOST_RESOURCES / 2
    assert (ROOT / path).stat().st_size <= LARGEST_TEMPLATE / 2
