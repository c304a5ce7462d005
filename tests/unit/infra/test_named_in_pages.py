"""What pages name of the templates is there: parameters and values that they take, outputs, resources."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from tests.support.cloudformation import ROOT, template

TEMPLATES = ["template.yaml", *sorted(f"infra/{each.name}" for each in (ROOT / "infra").glob("*.yaml"))]
PAGES = sorted((ROOT / "docs" / "operate").glob("*.md"))
ASSIGNED = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PARTS = ("Parameters", "Outputs", "Resources", "Conditions", "Rules")
OTHERS = frozenset(
    {
        *("CacheClusterId", "DatabaseMemoryUsagePercentage", "EngineCPUUtilization", "ReplicationLag"),
        *("ConcurrentExecutions", "UnreservedConcurrentExecutions"),  # CloudWatch's and Lambda's
        *("PhysicalResourceId", "NoEcho", "Globals"),  # CloudFormation's and SAM's
        *("DescribeConfigs", "State"),  # Kafka's, Spark's
        "Restart",  # systemd's
        *("Host", "Origin", "Prefer"),  # of HTTP
        *("ClientGone", "RequestCancelled"),  # ours, in traces
        "Keylane",  # a namespace of metrics
    }
)
"""Names in code style that are of no template, and no metric."""
_SPAN = re.compile(r"`([A-Z][a-z]\w*)`")
_ASSIGNMENT = re.compile(r"[ `(]([A-Z][a-z][A-Za-z]+)=((?:[^\s`\"',)]|,(?=[\w.]))+)")
_NESTED = re.compile(r"`(\w+)` of the nested stack `(\w+)`")
_STAND_INS = re.compile(r"\$|^[A-Z]+$|^OWNER/NAME$|^\.\.\.$")
"""What stands for a value: variables of a shell, and words in capitals."""
LARGEST_BODY = 51_200
"""Bytes of a template that is in no bucket: of `validate-template --template-body`, and of `deploy`."""
FOUND = {path: template(path) for path in TEMPLATES}
NAMES = {path: {name for part in PARTS for name in found.get(part, {})} for path, found in FOUND.items()}
PARAMETERS = [found.get("Parameters", {}) for found in FOUND.values()]
CHOICES = {
    str(value) for found in PARAMETERS for each in found.values() for value in each.get("AllowedValues", ())
}


@cache
def metrics() -> frozenset[str]:
    """Those of job and hosts, and their dimensions: a test of their own page compares them with the code."""
    page = (ROOT / "docs" / "operate" / "metrics.md").read_text("utf-8")
    return frozenset(_SPAN.findall(page))


def unknown_names(text: str) -> list[str]:
    """Return the names in code style that no template has."""
    known = OTHERS | CHOICES | metrics() | set().union(*NAMES.values())
    return [name for name in _SPAN.findall(text) if name not in known]


def is_refused(name: str, value: str) -> bool:
    """Whether no template takes this value of a parameter; a name that none has is refused, too."""
    return not any(_takes(each[name], value) for each in PARAMETERS if name in each)


def _takes(described: dict[str, Any], value: str) -> bool:
    if allowed := [str(each) for each in described.get("AllowedValues", [])]:
        return value in allowed
    if _STAND_INS.search(value):
        return True
    if described["Type"] == "Number":
        least, most = described.get("MinValue", float("-inf")), described.get("MaxValue", float("inf"))
        return re.fullmatch(r"-?\d+(\.\d+)?", value) is not None and least <= float(value) <= most
    return re.fullmatch(described.get("AllowedPattern", "(?s:.*)"), value) is not None


def wrong_values(text: str) -> list[str]:
    """Return the assignments of which a template would refuse the value, or has no such parameter."""
    return [f"{name}={value}" for name, value in _ASSIGNMENT.findall(text) if is_refused(name, value)]


def unknown_in_nested(text: str) -> list[str]:
    """Return what is said to be of a nested stack, and is not in its template."""
    stacks = {
        name: each["Properties"]["TemplateURL"]
        for name, each in FOUND["template.yaml"]["Resources"].items()
        if each["Type"] == "AWS::CloudFormation::Stack"
    }
    return [
        f"{name} of {stack}"
        for name, stack in _NESTED.findall(text)
        if stack not in stacks or name not in NAMES[stacks[stack]]
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_what_a_page_names_in_code_style_is_in_a_template(page):
    text = page.read_text("utf-8")
    assert unknown_names(text) == []
    assert unknown_in_nested(text) == []


@pytest.mark.parametrize("page", ASSIGNED, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_parameter_has_a_value_that_its_template_takes(page):
    assert wrong_values(page.read_text("utf-8")) == []


def test_the_deployment_page_has_names_and_values_that_were_looked_at():
    text = (ROOT / "docs" / "operate" / "deploy.md").read_text("utf-8")
    assert len(_ASSIGNMENT.findall(text)) > 40
    assert len(_SPAN.findall(text)) > 80
    assert len(_NESTED.findall(text)) > 1


@pytest.mark.parametrize("path", [each for each in TEMPLATES if each != "template.yaml"])
def test_a_template_that_is_deployed_or_validated_without_a_bucket_is_small_enough(path):
    assert (ROOT / path).stat().st_size <= LARGEST_BODY


@pytest.mark.parametrize(
    ("check", "text", "found"),
    [
        (unknown_names, "the output `DomainTargets`", ["DomainTargets"]),
        (unknown_names, "the alarm `JobsSilent`, and `JobSilent`", ["JobsSilent"]),
        (unknown_in_nested, "`Setting` of the nested stack `Cache`", ["Setting of Cache"]),
        (unknown_in_nested, "`Settings` of the nested stack `Caches`", ["Settings of Caches"]),
        (wrong_values, "with `KafkaMode=SERVERLES`", ["KafkaMode=SERVERLES"]),
        (wrong_values, "with `KafkaModes=SERVERLESS`", ["KafkaModes=SERVERLESS"]),
        (wrong_values, "$ sam deploy --parameter-overrides ZoneCount=4 Job=FARGATE", ["ZoneCount=4"]),
        (wrong_values, "`QueryMemory=64` or `QueryMemory=128`", ["QueryMemory=64"]),
        (wrong_values, "`TierA=trial:5:10`", ["TierA=trial:5:10"]),
        (wrong_values, "JobImage=$IMAGE SecretArns=ARN `KafkaMode=SERVERLESS`", []),
    ],
)
def test_what_does_not_exist_or_is_not_taken_is_found(check, text, found):
    assert check(text) == found
