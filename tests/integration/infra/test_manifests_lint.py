"""The manifests for Kubernetes fit its schemas, and what does not fit is found."""

from __future__ import annotations

import shutil

import pytest
from tests.support.cloudformation import ROOT

from keylane_build import templates

pytestmark = pytest.mark.integration

BROKEN = {
    "a number that is text": ("job.yaml", "replicas: 1", 'replicas: "1"', "'1' is not of type"),
    "a field that no version has": (
        "server.yaml",
        "maxSurge: 1",
        "mostSurge: 1",
        "'mostSurge' was unexpected",
    ),
    "a field of another kind": ("job.yaml", "serviceName: keylane-job", "strategy: {}", "'strategy'"),
    "a missing field": (
        "server.yaml",
        "selector: {matchLabels: {app: keylane-server}}",
        "",
        "'selector' is a",
    ),
    "a kind that does not exist": (
        "job.yaml",
        "kind: StatefulSet",
        "kind: StatelessSet",
        "find schema for kind",
    ),
    "an unknown field of a template of Spark's": (
        "executor.yaml",
        "workingDir:",
        "workDir:",
        "'workDir' was",
    ),
}


def test_the_manifests_fit_the_schemas_of_kubernetes():
    assert list(templates.check_manifests(ROOT)) == []


@pytest.mark.parametrize(("file", "right", "wrong", "message"), BROKEN.values(), ids=BROKEN)
def test_what_kubernetes_would_refuse_is_found(tmp_path, file, right, wrong, message):
    folder = tmp_path / templates.MANIFESTS
    shutil.copytree(ROOT / templates.MANIFESTS, folder)
    text = (folder / file).read_text(encoding="utf-8")
    assert right in text
    (folder / file).write_text(text.replace(right, wrong, 1), encoding="utf-8")
    found = list(templates.check_manifests(tmp_path))
    assert any(message in line and line.partition(": ")[0].count(file) for line in found), found
    assert len(found) == len(templates.KUBERNETES)
