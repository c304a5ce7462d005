"""The OpenAPI document says what the code does."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import an_event, load_handler

from keylane.errors import BadRequest
from keylane.model.routes import find
from keylane_build import openapi
from keylane_server import refusals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane.api.http.parameters import Parameter

ROOT = Path(__file__).parents[3]


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in openapi.document()["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


@pytest.mark.parametrize("path", ["docs/openapi.json", openapi.SERVED])
def test_the_stored_documents_are_up_to_date(path):
    assert json.loads((ROOT / path).read_text(encoding="utf-8")) == openapi.document(), "make generate"


def test_each_operation_has_the_problems_of_its_hosts():
    """Without a token, of a caller with too many requests, of too much, or too late."""
    for path, method, operation in operations():
        of_host = {str(each.status) for each, *_ in refusals._PROBLEMS.values()}
        # The one is of bodies, the other of snapshots.
        others = {"409"} if "requestBody" in operation else {"408", "409"}
        assert of_host - others <= operation["responses"].keys(), (method, path)


@pytest.mark.parametrize(
    ("path", "method", "status"), [("/topics/{topic}/keys", "get", "410"), ("/push", "post", "414")]
)
def test_a_problem_of_few_routes_is_listed(path: str, method: str, status: str):
    """A page as of a time that histories do not reach; a push whose only record has too large a key."""
    assert status in openapi.document()["paths"][path][method]["responses"]


def test_every_reference_resolves():
    document = openapi.document()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if "$ref" in node:
                found = document
                for part in node["$ref"].removeprefix("#/").split("/"):
                    found = found[part]
            for each in node.values():
                walk(each)
        elif isinstance(node, list):
            for each in node:
                walk(each)

    walk(document)


def test_generators_of_clients_find_a_type_for_each_schema_and_a_name_for_each_object():
    """They name an object by what it is in: no two have a name, and none has a component's."""
    document = openapi.document()
    names = Counter([*document["components"]["schemas"]])

    def walk(node: Any, name: str) -> None:
        if isinstance(node, list):
            for each in node:
                walk(each, name)
        if not isinstance(node, dict):
            return
        assert node.get("type") != "null", name
        assert "type" in node or not {"enum", "const"} & node.keys(), name
        names[name] += "properties" in node and name not in document["components"]["schemas"]
        for each, schema in node.get("properties", {}).items():
            walk(schema, name + each.title().replace("_", ""))
        for part in ("items", "additionalProperties", "anyOf", "oneOf"):
            walk(node.get(part), f"{name}Item")

    for name, schema in document["components"]["schemas"].items():
        walk(schema, name)
    for _, _, operation in operations():
        parts = [operation.get("requestBody", {}), *operation["responses"].values()]
        for content in (each for part in parts for each in part.get("content", {}).values()):
            assert "schema" in content, operation["operationId"]
            walk(content["schema"], operation["operationId"].title().replace("_", ""))
    assert [name for name, count in names.items() if count > 1] == []


def test_an_integer_that_does_not_fit_into_32_bits_has_64():
    def walk(node: Any) -> None:
        for each in node.values() if isinstance(node, dict) else node:
            if isinstance(each, dict | list):
                walk(each)
        if isinstance(node, dict) and node.get("type") in ("integer", ["integer", "null"]):
            assert node.get("format") == "int64" or node["maximum"] < 2**31, node

    walk(openapi.document())


def test_operations_have_unique_names_and_summaries():
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(names) == len(set(names))
    assert all(operation["summary"].endswith(".") for _, _, operation in operations())


def test_every_parameter_of_the_path_is_described():
    for path, _, operation in operations():
        described = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert described == set(re.findall(r"{(\w+)}", path))


BOUNDED = [
    (path, method, parameter["name"])
    for path, method, operation in operations()
    for parameter in operation["parameters"]
    if parameter["in"] == "query" and parameter["schema"].get("type") in {"integer", "boolean"}
]


@pytest.mark.parametrize(("path", "method", "name"), BOUNDED)
def test_an_invalid_bounded_parameter_is_named(
    path: str, method: str, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEYLANE_REDIS_NODES", "127.0.0.1:1")
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    real = (
        path.replace("{partition}", "0").replace("{topic}", "t").replace("{view}", "v").replace("{key}", "k")
    )
    query = ({"topics": "a,b"} if path.startswith("/join/") else {}) | {name: "wrong"}
    event = an_event(method.upper(), real, query=query, body=b'{"keys": ["k"]}' if method == "post" else None)
    answer = load_handler(find(method.upper(), real).function).lambda_handler(event, None)
    assert answer["statusCode"] == 400
    if method != "head":
        assert json.loads(answer["body"])["parameter"] == name


TEXTS = (
    *("", " ", ",", ".", "a", "a.b,c", "a,,b", "a..b", ".a", "a, b", "first name", "a. ", "é"),
    *(
        "0",
        "-1",
        "1.5",
        "1795257709908",
        "2026-11-21",
        "2026-11-21T10:00:00Z",
        "20261121",
        "yesterday",
        "now",
    ),
    *("3:1042", "3-1042", "-1:3", "earliest", "latest", "max", "MAX", "true", "base64", "!", "AQ"),
    ",".join("a" * 51),
)
STRINGS = {
    parameter.name + (f" of {name}" if parameter.name in {"from", "to", "as_of"} else ""): parameter
    for operations in openapi.OPERATIONS
    for name, parameters in ((each.route.name, each.parameters) for each in operations.values())
    for parameter in parameters
    if parameter.schema["type"] == "string"
}


@pytest.mark.parametrize("parameter", STRINGS.values(), ids=list(STRINGS))
def test_the_document_refuses_no_text_that_the_code_takes_and_takes_none_that_it_refuses(
    parameter: Parameter,
):
    lenient = {"Prefer", "cursor", "topic", "topics"}  # other code reads what is in them
    for text in TEXTS:
        schema = parameter.schema
        is_listed = text in schema.get("enum", [text])
        documented = is_listed and re.search(schema.get("pattern", ""), text) is not None
        try:
            parameter.parse(text)
            taken = True
        except BadRequest:
            taken = False
        if parameter.name in lenient or (taken is False and re.match(r"[0-9]", text)):
            # A pattern for each form of ISO 8601 would be unreadable.
            continue
        assert documented == taken, text
