"""Two pages have every parameter of their template with its default; each is described, and used."""

from __future__ import annotations

import re

import pytest
from tests.support.cloudformation import ROOT, template

PAGES = {"template.yaml": "docs/operate/parameters.md", "infra/server.yaml": "docs/operate/fargate.md"}
"""Template -> the page of its parameters."""
ROWS = {
    path: re.findall(r"^\| (`[A-Z].*?) \| (.+?) \| (.+) \|$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    for path, page in PAGES.items()
}
NAMED = {"template.yaml": r"`(\w+)`", "infra/server.yaml": r"^`([A-Z]\w+)`$"}
"""How rows name parameters. The server's page has tables of other things, too."""
DEFAULTS = {
    path: {name: default for names, default, _ in rows for name in re.findall(NAMED[path], names)}
    for path, rows in ROWS.items()
}
SHARED = re.search(
    r"^As in \[parameters\].*", (ROOT / PAGES["infra/server.yaml"]).read_text("utf-8"), re.MULTILINE
)
"""The server's page leaves to the other one what has the same default and meaning there."""
DEFAULTS["infra/server.yaml"] |= {
    name: DEFAULTS["template.yaml"][name] for name in re.findall(r"`(\w+)`", SHARED[0] if SHARED else "")
}
DESCRIBED = {path: template(path)["Parameters"] for path in PAGES}
PARAMETERS = [(path, name) for path, described in DESCRIBED.items() for name in described]
PLACEHOLDERS = {"KafkaClusterArn"}
"""A default that CloudFormation needs and that means none."""
MOST_PARAMETERS, MOST_RESOURCES, LARGEST_TEMPLATE = 200, 500, 1_000_000
"""CloudFormation's quotas: parameters and resources of a template, bytes of a template in S3."""


@pytest.mark.parametrize("path", PAGES)
def test_the_page_has_the_parameters_of_the_template_and_no_other(path):
    assert DEFAULTS[path].keys() == DESCRIBED[path].keys()


@pytest.mark.parametrize(("path", "name"), PARAMETERS)
def test_a_parameter_is_used_and_has_a_description_and_the_default_of_the_page(path, name):
    described = DESCRIBED[path][name]
    assert len(described["Description"]) > 15
    default = described.get("Default")
    shown = "required" if default is None else f"`{default}`"
    assert DEFAULTS[path][name] == ("none" if default == "" or name in PLACEHOLDERS else shown)
    assert re.search(rf"!Ref {name}\b|\$\{{{name}\}}", (ROOT / path).read_text(encoding="utf-8"))


def test_what_the_page_calls_a_rule_is_one():
    asserted = " ".join(
        each["AssertDescription"] for rule in template()["Rules"].values() for each in rule["Assertions"]
    )
    for names, _, text in ROWS["template.yaml"]:
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
