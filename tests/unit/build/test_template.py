"""template.yaml says what the code does."""

from __future__ import annotations

import re

import pytest
from tests.support.cloudformation import ROOT, of_type, template

from keylane.model.routes import FUNCTIONS, find
from keylane_build import gateway, layer, openapi

TEMPLATE = ROOT / "template.yaml"
FOUND = template()
BESIDES = {"parameters", "options"}
PATHS = FOUND["Resources"]["Api"]["Properties"]["DefinitionBody"]["paths"]


def test_the_templates_routes_are_up_to_date():
    text = TEMPLATE.read_text(encoding="utf-8")
    assert text == gateway.insert_paths(text), "make generate"


def test_a_template_without_markers_is_rejected():
    with pytest.raises(ValueError, match="begin: made by"):
        gateway.insert_paths("Resources: {}\n")


def test_every_operation_of_the_document_is_routed():
    operations = {(path, method) for path, found in openapi.document()["paths"].items() for method in found}
    routed = {(path, method) for path, found in PATHS.items() for method in found if method not in BESIDES}
    assert operations == routed


def test_every_route_invokes_the_function_of_the_table():
    for path, methods in PATHS.items():
        for method, operation in methods.items():
            if method in BESIDES:
                continue
            uri = str(operation["x-amazon-apigateway-integration"]["uri"])
            function = find(method.upper(), re.sub(r"{\w+}", "x", path)).function
            assert f":function:${{{function.capitalize()}Function}}${{Live}}/" in uri, (path, method)


def test_every_route_requires_authorization_unless_the_api_is_open():
    for path, methods in PATHS.items():
        for method, operation in methods.items():
            if method not in BESIDES:
                if_open, then, otherwise = operation["security"]["Fn::If"]
                assert (if_open, then) == ("IsOpen", []), (path, method)
                [needed] = otherwise
                if_scopes, scopes, none = needed["caller"]["Fn::If"]
                assert (if_scopes, none) == ("HasScopes", [])
                assert scopes["Fn::Split"][1] == {"Ref": "UserPoolScopes"}


def test_every_function_has_its_code_its_role_and_its_log():
    functions = of_type(FOUND, "AWS::Serverless::Function")
    assert {f"{name.capitalize()}Function" for name in FUNCTIONS} <= functions.keys()
    for name, function in functions.items():
        properties = function["Properties"]
        short = name.removesuffix("Function")
        assert properties["CodeUri"] == f"functions/{short.lower()}"
        assert properties["Role"] == {"Fn::GetAtt": [f"{short}Role", "Arn"]}
        assert properties["LoggingConfig"] == {"LogGroup": {"Ref": f"{short}LogGroup"}}


def stored_requirements():
    """Each package of the layer's requirements with its version and its hashes."""
    stored = (ROOT / "layers" / "keylane" / "requirements.txt").read_text(encoding="utf-8")
    lines = stored.replace("\\\n", "").splitlines()[1:]
    return {line.split()[0]: re.findall(r"--hash=sha256:([0-9a-f]{64})\b", line) for line in lines}


def test_the_layers_requirements_are_up_to_date():
    pins = [f"{name}=={version}" for name, version in layer.pin_layer().items()]
    assert list(stored_requirements()) == pins, "make layer-requirements"


def test_the_layers_wheels_have_hashes_for_every_runtime_and_architecture():
    found = stored_requirements()
    assert all(found.values())
    [compiled] = [hashes for name, hashes in found.items() if name.startswith("hiredis==")]
    assert len(compiled) == len(layer.RUNTIMES) * len(layer.ARCHITECTURES)


def test_the_layer_has_no_packages_of_lambda_or_of_the_job():
    names = layer.pin_layer().keys()
    assert {"hiredis", "confluent-kafka", "aws-lambda-powertools"} <= names
    others = "boto3 botocore pyspark pyarrow pandas numpy aiohttp pytest redis"
    assert not names & set(others.split())
