"""The OpenAPI document says what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import an_event, load_handler

from keylane.model.routes import function_for
from keylane_build import openapi

if TYPE_CHECKING:
    from collections.abc import Iterator

STORED = Path(__file__).parents[3] / "docs" / "openapi.json"


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in openapi.document()["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_the_stored_document_is_up_to_date():
    assert json.loads(STORED.read_text(encoding="utf-8")) == openapi.document(), "make openapi"


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
    query = {"topics": "a,b", name: "wrong"}
    event = an_event(method.upper(), real, query=query, body=b'{"keys": ["k"]}' if method == "post" else None)
    answer = load_handler(function_for(method.upper(), real)).lambda_handler(event, None)
    assert answer["statusCode"] == 400
    if method != "head":
        assert json.loads(answer["body"])["parameter"] == name
