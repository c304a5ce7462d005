"""Spans of the server and of the job on AWS: OpenTelemetry's SDK takes what the templates set."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from tests.support.cloudformation import template

from keylane.wiring.tracing import is_traced
from keylane_build import image_requirements, job_package

PARAMETERS = {"infra/server.yaml": "", "infra/pipeline.yaml": "", "template.yaml": "Job"}
"""Template -> what its parameters begin with."""
CONTAINERS = ("infra/server.yaml", "infra/pipeline.yaml")


def variables(path: str, given: dict[str, str]) -> dict[str, str]:
    """The variables of OpenTelemetry that a template's container gets."""
    [container] = template(path)["Resources"]["Task"]["Properties"]["ContainerDefinitions"]
    found = {each["Name"]: each["Value"] for each in container["Environment"]}
    return {
        name: given[value["Ref"]] if isinstance(value, dict) else value
        for name, value in found.items()
        if name.startswith("OTEL_")
    }


@pytest.mark.parametrize("path", PARAMETERS)
def test_spans_are_off_by_default_and_all_are_kept_where_they_are_on(path):
    parameters, prefix = template(path)["Parameters"], PARAMETERS[path]
    assert parameters[f"{prefix}TraceEndpoint"]["Default"] == ""
    assert parameters[f"{prefix}TraceRatio"]["Default"] == 1


@pytest.mark.parametrize("path", CONTAINERS)
def test_an_endpoint_turns_spans_on_and_none_leaves_them_off(path):
    assert not is_traced(variables(path, {"TraceEndpoint": "", "TraceRatio": "1"}))
    assert is_traced(variables(path, {"TraceEndpoint": "http://collector:4318", "TraceRatio": "1"}))


@pytest.mark.parametrize("path", CONTAINERS)
def test_the_sdk_keeps_the_share_of_the_parameter(path, monkeypatch):
    """It takes a sampler that it does not know for one that keeps everything."""
    given = {"TraceEndpoint": "http://collector:4318", "TraceRatio": "0.01"}
    for name, value in variables(path, given).items():
        monkeypatch.setenv(name, value)
    description = TracerProvider(shutdown_on_exit=False).sampler.get_description()
    assert description.startswith("ParentBased{root:TraceIdRatioBased{0.01}")


def test_the_main_template_passes_the_jobs_values_on():
    passed = template()["Resources"]["Pipeline"]["Properties"]["Parameters"]
    for name in ("TraceEndpoint", "TraceRatio"):
        assert passed[name] == {"Ref": f"Job{name}"}


@pytest.mark.parametrize("path", ["template.yaml", "infra/server.yaml"])
def test_records_name_their_trace_unless_the_parameter_says_otherwise(path):
    parameter = template(path)["Parameters"]["TraceHeaders"]
    assert (parameter["Default"], parameter["AllowedValues"]) == ("true", ["true", "false"])


def test_the_package_for_emr_has_what_the_jobs_image_has():
    assert image_requirements.EXTRAS["job"] == job_package.EXTRAS
