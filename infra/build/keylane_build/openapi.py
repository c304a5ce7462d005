"""The OpenAPI document of all requests, made from the functions' routes.

`python -m keylane_build.openapi` writes docs/openapi.json.
"""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any

import keylane
from keylane.api import problems
from keylane.api.explore import LAST_PARTITION
from keylane.api.router import BYTES
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.model.routes import FUNCTIONS
from keylane.state.windows import NAME_LIMIT
from keylane_build import openapi_explore, openapi_reads, openapi_writes
from keylane_build.openapi_terms import (
    TEXT,
    an_object,
)
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from pathlib import Path

    from keylane.api.parameters import Parameter
    from keylane.api.router import Operation, Resolver
    from keylane.model.routes import Route

SCHEMAS: dict[str, Any] = {
    **openapi_reads.SCHEMAS,
    **openapi_explore.SCHEMAS,
    **openapi_writes.SCHEMAS,
    "Problem": an_object(
        ("type", "title", "status", "detail", "instance"),
        type={"type": "string", "pattern": "^urn:keylane:problem:"},
        title=TEXT,
        status={"type": "integer"},
        detail=TEXT,
        code=TEXT,
        parameter=TEXT,
        path={**TEXT, "description": "a JSON Pointer to the fault in the value"},
        instance=TEXT,
    ),
}
INTERNAL_ERROR = 500
_PROBLEMS = (400, 404, INTERNAL_ERROR, 503)
"""Statuses of problems that any route may answer with."""
_PROBLEM = {
    "description": "what went wrong, with a stable type",
    "content": {problems.CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_PATH_PARTS = {
    "topic": ("a topic", {"type": "string", "pattern": "^[a-zA-Z0-9._-]{1,249}$"}),
    "view": ("a view", {"type": "string", "pattern": f"^[a-zA-Z0-9._-]{{1,{NAME_LIMIT}}}$"}),
    "partition": ("a partition's number", {"type": "integer", "minimum": 0, "maximum": LAST_PARTITION}),
    "key": (
        "a key, percent-encoded, or base64 with key_format=base64",
        {"type": "string", "minLength": 1, "maxLength": KEY_LIMIT_BYTES},
    ),
}


def document() -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, Any] = {}
    for function in FUNCTIONS:
        for operation in operations_of(function):
            for method in operation.route.methods:
                path = paths.setdefault(operation.route.path, {})
                path[method.lower()] = _operation(operation, method)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Keylane",
            "version": keylane.__version__,
            "description": "Kafka topics, queryable over HTTPS. Each answer tells how fresh it is.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": SCHEMAS,
            "responses": {
                "Problem": _PROBLEM,
                "ProblemOfHead": {"description": "what went wrong: a GET would tell more"},
            },
        },
    }


def operations_of(function: str) -> list[Operation]:
    """Return the operations that a function's handler registers."""
    path = project_root() / "functions" / function / "handler.py"
    spec = importlib.util.spec_from_file_location(f"keylane_{function}_handler", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    app: Resolver = module.app
    return list(app.operations.values())


def operation_id(route: Route, method: str) -> str:
    """Return the id of one of a route's operations: its name, which HEAD shares with GET."""
    return route.name if method != "HEAD" else f"head_{route.name}"


def _operation(operation: Operation, method: str) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation_id(operation.route, method),
        "summary": (operation.handler.__doc__ or "").partition("\n")[0],
        "parameters": [*_path_parameters(operation), *map(_parameter, operation.parameters)],
        "responses": _responses(operation, method),
    }
    if operation.body is BYTES:
        described["requestBody"] = {"description": "any bytes", "content": {"*/*": {}}}
    elif operation.body is not None:
        content = {"application/json": {"schema": operation.body}}
        described["requestBody"] = {"required": True, "content": content}
    elif operation.bodies:
        content = {name: {"schema": schema} for name, schema in operation.bodies.items()}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "description": description, "schema": schema}
        for name, (description, schema) in _PATH_PARTS.items()
        if f"{{{name}}}" in operation.route.path
    ]


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.description,
        "schema": parameter.schema,
    }


def _responses(operation: Operation, method: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{operation.answer}"}
    content: dict[str, Any] = {operation.answer_type: {"schema": schema}}
    if operation.answer == "Record":
        # Without envelope=true it is the value itself, whatever that is.
        any_of = {"anyOf": [schema, {}]}
        content = {"application/json": {"schema": any_of}, "text/plain": {}, "application/octet-stream": {}}
    answered: dict[str, Any] = {"description": "the answer"}
    if method != "HEAD":
        answered["content"] = content
    responses: dict[str, Any] = {str(operation.status): answered}
    if operation.accepted:
        schema = {"$ref": f"#/components/schemas/{operation.accepted}"}
        told = {operation.answer_type: {"schema": schema}}
        responses["202"] = {"description": "in the write-ahead log: it will be written", "content": told}
    if operation.answer == "Record":
        responses["304"] = {"description": "it is still the record that the client has"}
    statuses = {*_PROBLEMS, *operation.refusals, *([414] if "{key}" in operation.route.path else [])}
    reference = "Problem" if method != "HEAD" else "ProblemOfHead"
    for status in sorted(statuses):
        responses[str(status)] = {"$ref": f"#/components/responses/{reference}"}
        if operation.reports_failures and status != INTERNAL_ERROR:
            told = {problems.CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}, **content}
            responses[str(status)] = {"description": "what went wrong", "content": told}
    if operation.answer == "Health":
        responses["503"] = {**answered, "description": "a part is not ready"}
    is_write = int(openapi_writes.TOO_MANY) in operation.refusals
    return openapi_writes.with_headers(responses, operation.status, _PROBLEM) if is_write else responses


def write(path: Path) -> None:
    """Write the document."""
    path.write_text(json.dumps(document(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(project_root() / "docs" / "openapi.json")
