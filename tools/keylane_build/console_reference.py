"""What the console knows of the API: `python -m keylane_build.console_reference`.

It writes clients/console/reference.json: each operation's form, from the OpenAPI document and the examples of
`events/`, and what to do about each type of problem, from docs/http/errors.md. openapi.json itself is larger
than the whole page may be.
"""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from keylane.model.routes import BY_NAME, Route
from keylane_build.openapi import TAGS, document
from keylane_local.tools import project_root

PATH = "clients/console/reference.json"
_SCHEMA_WORDS = ("enum", "minimum", "maximum", "default")
_LEFT_OUT: tuple[Any, ...] = ("GET", "query", [], {}, False)
"""The first group is 0, which is False."""
_PROBLEM_ROW = re.compile(r"^\| `([a-z-]+)` \| (?:\d{3}|4xx) \|(?:[^|]*\|)? ([^|]+) \|$", re.MULTILINE)
_ACT = re.compile(r"\[Act\]\(\.\./([^)]*)\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_VARIABLE = re.compile(r"{(\w+)}")


def reference(root: Path) -> dict[str, Any]:
    """Return `{"groups": [...], "parameters": [...], "operations": [...], "problems": {...}}`.

    Operations name their parameters by number: most are those of many. `problems`: what each type of problem
    means, and what to do. What is empty, or what most have, is left out.
    """
    parameters: list[dict[str, Any]] = []
    operations = [
        _operation(root, path, method.upper(), described, parameters)
        for path, methods in document()["paths"].items()
        for method, described in methods.items()
        if method != "head"
    ]
    return {
        "groups": list(TAGS.values()),
        "parameters": parameters,
        "operations": operations,
        "problems": _problems((root / "docs" / "http" / "errors.md").read_text(encoding="utf-8")),
    }


def _operation(
    root: Path, path: str, method: str, described: dict[str, Any], parameters: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return an operation; its parameters are added to those that are known."""
    own = [_parameter(each) for each in described["parameters"]]
    parameters += [each for each in own if each not in parameters]
    name = described["operationId"]
    function = BY_NAME[name].function
    operation = {
        "id": name,
        "method": method,
        "path": path,
        "group": list(TAGS).index(function),
        "summary": described["summary"],
        "parameters": [parameters.index(each) for each in own],
        "bodies": list(described.get("requestBody", {}).get("content", {})),
        "example": _example(root / "events" / function / f"{name}.json", BY_NAME[name]),
    }
    return {part: value for part, value in operation.items() if value not in _LEFT_OUT}


def _parameter(described: dict[str, Any]) -> dict[str, Any]:
    """Return what its form shows: which values it takes, their bounds and default. Any other is a text."""
    given = described["schema"]
    schema = {word: given[word] for word in _SCHEMA_WORDS if word in given}
    if given.get("type") == "boolean":
        schema["enum"] = [True, False]
    own = {**described, "schema": schema}
    return {name: value for name, value in own.items() if value not in _LEFT_OUT}


def _example(file: Path, route: Route) -> dict[str, Any]:
    """Return the values of an example event, by where they stand in the request; a new route has none yet."""
    if not file.exists():
        return {}
    event = json.loads(file.read_text(encoding="utf-8"))
    found = route.pattern.fullmatch(event["path"])
    parts = [unquote(part) for part in found.groups()] if found else []
    path = dict(zip(_VARIABLE.findall(route.path), parts, strict=True))
    example: dict[str, Any] = {"path": path, "query": event["queryStringParameters"]}
    if event["body"]:
        example |= {"body": event["body"], "type": event["headers"]["Content-Type"]}
    return {place: values for place, values in example.items() if values}


def _problems(page: str) -> dict[str, str]:
    meanings: dict[str, str] = {}
    for name, meaning in _PROBLEM_ROW.findall(page):
        # The service's own problems stand above those of API Gateway, which share some names.
        text = _LINK.sub(r"\1", _ACT.sub(r"Operators: docs/\1.", meaning))
        meanings.setdefault(name, text.replace("`", "").strip())
    return meanings


def write(root: Path) -> None:
    """Write the file, in one line for each operation: it is part of a page."""
    text = json.dumps(reference(root), ensure_ascii=False, separators=(",", ":"))
    (root / PATH).write_text(text.replace('{"id":', '\n{"id":') + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(project_root())
