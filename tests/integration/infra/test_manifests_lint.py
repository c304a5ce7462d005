"""What `make lint-infra` compares with Kubernetes' schemas: manifests that do not fit are found."""

from __future__ import annotations

import pytest
from tests.support.cloudformation import ROOT

from keylane_build import chart

pytestmark = pytest.mark.integration

SELECTOR = "selector: {matchLabels: {keylane: keylane-server}}\n  strategy"
BROKEN = {
    "a number that is text": ("replicas: 1", 'replicas: "1"', "'1' is not of type"),
    "a field that no version has": (
        "failureThreshold: 30",
        "mostFailures: 30",
        "'mostFailures' was unexpected",
    ),
    "a field of another kind": ("serviceName: keylane-job", "strategy: {}", "'strategy'"),
    "a missing field": (SELECTOR, "strategy", "'selector' is a"),
    "a kind that does not exist": ("kind: Stateful", "kind: Stateless", "find schema for kind"),
    "an unknown field of a template": ("workingDir:", "workDir:", "'workDir' was"),
}
"""What is wrong -> what stands in the chart's manifests, what takes its place, and what is reported."""


@pytest.fixture(scope="module")
def found():
    """What is found in all broken manifests. Each version of Kubernetes starts once: that takes a second."""
    text = (ROOT / chart.CASES / "default.yaml").read_text(encoding="utf-8")
    broken = {}
    for number, (right, wrong, _) in enumerate(BROKEN.values()):
        assert right in text
        broken[f"{number}.yaml"] = text.replace(right, wrong, 1)
    return list(chart.validate(broken))


@pytest.mark.parametrize(("number", "name"), list(enumerate(BROKEN)), ids=list(BROKEN))
def test_what_kubernetes_would_refuse_is_found(found, number, name):
    lines = [line for line in found if f"{number}.yaml" in line.partition(": ")[0]]
    assert len(lines) == len(chart.VERSIONS)
    assert any(BROKEN[name][-1] in line for line in lines)  # an older version may say what is missing instead
