"""What `make lint-infra` compares with Kubernetes' schemas: manifests that do not fit are found."""

from __future__ import annotations

import pytest
from tests.support.cloudformation import ROOT

from keylane_build import templates

pytestmark = pytest.mark.integration

SELECTOR = "selector: {matchLabels: {app: keylane-server}}"
BROKEN = {
    "a number that is text": ("job.yaml", "replicas: 1", 'replicas: "1"', "'1' is not of type"),
    "a field that no version has": ("server.yaml", "maxSurge:", "mostSurge:", "'mostSurge' was unexpected"),
    "a field of another kind": ("job.yaml", "serviceName: keylane-job", "strategy: {}", "'strategy'"),
    "a missing field": ("server.yaml", SELECTOR, "", "'selector' is a"),
    "a kind that does not exist": ("job.yaml", "kind: Stateful", "kind: Stateless", "find schema for kind"),
    "an unknown field of a template": ("executor.yaml", "workingDir:", "workDir:", "'workDir' was"),
}
"""What is wrong -> a file, what stands there, what takes its place, and what is reported."""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What is found in all broken manifests. Each version of Kubernetes starts once: that takes a second."""
    root = tmp_path_factory.mktemp("manifests")
    (root / templates.MANIFESTS).mkdir(parents=True)
    for number, (file, right, wrong, _) in enumerate(BROKEN.values()):
        text = (ROOT / templates.MANIFESTS / file).read_text(encoding="utf-8")
        assert right in text
        (root / templates.MANIFESTS / f"{number}-{file}").write_text(text.replace(right, wrong, 1), "utf-8")
    return list(templates.check_manifests(root))


@pytest.mark.parametrize(("number", "name"), list(enumerate(BROKEN)), ids=list(BROKEN))
def test_what_kubernetes_would_refuse_is_found(found, number, name):
    file, *_, message = BROKEN[name]
    lines = [line for line in found if f"/{number}-{file}" in line.partition(": ")[0]]
    assert len(lines) == len(templates.KUBERNETES)
    assert any(message in line for line in lines)  # an older version may report what is missing instead
