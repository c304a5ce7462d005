"""template.yaml says what the code does."""

from __future__ import annotations

import re

import pytest
from tests.support.cloudformation import ROOT, of_type, template

from keylane.model.routes import FUNCTIONS, function_for
from keylane_build import gateway, layer, openapi

TEMPLATE = ROOT / "template.yaml"
FOUND = template()
PATHS = FOUND["Resources"]["Api"]["Properties"]["DefinitionBody"]["paths"]


def test_the_templates_routes_are_up_to_date():
    text = TEMPLATE.read_text(encoding="utf-8")
    assert text == gateway.insert_paths(text), "make openapi"


def test_a_template_without_markers_is_rejected():
    with pytest.raises(ValueError, match="begin: made by"):
        gateway.insert_paths("Resources: {}\n")


def test_every_operation_of_the_document_is_routed():
    operations = {(path, method) for path, found in openapi.document()["paths"].items() for method in found}
    routed = {(path, method) for path, found in PATHS.items() for method in found if method != "parameters"}
    assert operations == routed


def test_every_route_invokes_the_same_function_as_the_local_front():
    for path, methods in PATHS.items():
        for method, operation in methods.items():
            if method == "parameters":
                continue
            uri = str(operation["x-amazon-apigateway-integration"]["uri"])
            function = function_for(method.upper(), re.sub(r"{\w+}", "x", path))
            name = (
                "${QueryFunction}${Live}" if function == "query" else f"{function.capitalize()}Function.Arn"
            )
            assert name in uri, (path, method)


def test_every_route_requires_authorization_unless_the_api_is_open():
    for path, methods in PATHS.items():
        for method, operation in methods.items():
            if method != "parameters":
                if_open, then, otherwise = operation["security"]["Fn::If"]
                assert (if_open, then) == ("IsOpen", []), (path, method)
                assert otherwise == [{"caller": []}]


def test_every_function_has_its_code_its_role_and_its_log():
    functions = of_type(FOUND, "AWS::Serverless::Function")
    assert {f"{name.capitalize()}Function" for name in FUNCTIONS} <= functions.keys()
    for name, function in functions.items():
        properties = function["Properties"]
        short = name.removesuffix("Function")
        assert properties["CodeUri"] == f"functions/{short.lower()}"
        assert properties["Role"] == {"Fn::GetAtt": [f"{short}Role", "Arn"]}
        assert properties["LoggingConfig"] == {"LogGroup": {"Ref": f"{short}LogGroup"}}


def test_the_layers_requirements_are_up_to_date():
    stored = (ROOT / "layers" / "keylane" / "requirements.txt").read_text(encoding="utf-8")
    assert stored == layer.render_requirements(), "make openapi layer-requirements"


def test_the_layer_has_no_packages_of_lambda_or_of_the_job():
    names = {line.partition("==")[0] for line in layer.render_requirements().splitlines()[1:]}
    assert {"redis", "confluent-kafka", "aws-lambda-powertools"} <= names
    assert not names & {"boto3", "botocore", "pyspark", "pyarrow", "pandas", "numpy", "aiohttp", "pytest"}
