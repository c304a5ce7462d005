"""The OpenAPI document of all routes: `python -m keylane_build.openapi` writes docs/openapi.json."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import keylane
from keylane.api import problems
from keylane.api.explore import LAST_PARTITION
from keylane.api.router import BYTES
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.model.routes import FUNCTIONS, Names, PermissionKind
from keylane.state.windows import NAME_LIMIT
from keylane_build import openapi_explore, openapi_reads, openapi_rest_proxy, openapi_writes
from keylane_build.openapi_terms import TEXT, an_object
from keylane_local.tools import project_root
from keylane_serve.handlers import load_handler

if TYPE_CHECKING:
    from pathlib import Path

    from keylane.api.parameters import Parameter
    from keylane.api.router import Operation, Resolver
    from keylane.model.routes import Route

SCHEMAS: dict[str, Any] = {
    **openapi_reads.SCHEMAS,
    **openapi_explore.SCHEMAS,
    **openapi_rest_proxy.SCHEMAS,
    **openapi_writes.SCHEMAS,
    "Problem": an_object(
        ("type", "title", "status", "detail", "instance"),
        type={"type": "string", "pattern": "^urn:keylane:problem:"},
        title=TEXT,
        status={"type": "integer"},
        detail=TEXT,
        code=TEXT,
        parameter=TEXT,
        path={**TEXT, "description": "JSON Pointer to the part of the value that its schema rejects"},
        instance=TEXT,
    ),
}
NOT_ACCEPTABLE, INTERNAL_ERROR = 406, 500
_PROBLEMS = (400, 404, INTERNAL_ERROR, 503)
"""Statuses of problems that every route may return."""
_PROBLEM = {
    "description": "a problem; its type is stable",
    "content": {problems.CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_PATH_PARTS = {
    "topic": ("a topic's name", {"type": "string", "pattern": "^[a-zA-Z0-9._-]{1,249}$"}),
    "view": ("a view's name", {"type": "string", "pattern": f"^[a-zA-Z0-9._-]{{1,{NAME_LIMIT}}}$"}),
    "cluster": ("a Kafka cluster's id", {"type": "string", "minLength": 1}),
    "partition": ("a partition's number", {"type": "integer", "minimum": 0, "maximum": LAST_PARTITION}),
    "key": (
        "a key, percent-encoded, or in base64 with key_format=base64",
        {"type": "string", "minLength": 1, "maxLength": KEY_LIMIT_BYTES},
    ),
}


def document() -> dict[str, Any]:
    """Return the document."""
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
            "description": "Kafka topics, queryable over HTTPS. Every answer reports how fresh it is.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": SCHEMAS,
            "responses": {
                "Problem": _PROBLEM,
                "ProblemOfHead": {"description": "a problem; a GET returns its details"},
            },
        },
    }


def operations_of(function: str) -> list[Operation]:
    """Return the operations that a function's handler registers."""
    app: Resolver = load_handler(project_root() / "functions", function).app
    return list(app.operations.values())


def operation_id(route: Route, method: str) -> str:
    """Return the operation's id: the route's name, prefixed for HEAD, which shares its route with GET."""
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
    content = _content(operation.answer_type, operation.answer)
    for media_type, schema in operation.other_answers.items():
        content |= _content(media_type, schema)
    if operation.answer == "Record":
        # Without envelope=true the body is the value itself, of any type.
        any_of = {"anyOf": [_reference(operation.answer), {}]}
        content = {"application/json": {"schema": any_of}, "text/plain": {}, "application/octet-stream": {}}
    answered: dict[str, Any] = {"description": "the answer"}
    if method != "HEAD":
        answered["content"] = content
    responses: dict[str, Any] = {str(operation.status): answered}
    if operation.accepted:
        accepted = _content(operation.answer_type, operation.accepted)
        responses["202"] = {"description": "in the write-ahead log: it will be written", "content": accepted}
    if operation.answer == "Record":
        responses["304"] = {"description": "not modified: the client has the latest record"}
    statuses = {
        *_PROBLEMS,
        *operation.refusals,
        *_forbidden(operation.route),
        *([] if operation.route.permission.kind is PermissionKind.WRITE else [NOT_ACCEPTABLE]),
        *([414] if "{key}" in operation.route.path else []),
    }
    common = "Problem" if method != "HEAD" else "ProblemOfHead"
    for status in sorted(statuses):
        responses[str(status)] = {"$ref": f"#/components/responses/{common}"}
        if operation.reports_failures and status != INTERNAL_ERROR:
            either = {**_content(problems.CONTENT_TYPE, "Problem"), **content}
            responses[str(status)] = {"description": "a problem, or the records' results", "content": either}
    if operation.answer == "Health":
        responses["503"] = {**answered, "description": "a part is not ready"}
    is_write = int(openapi_writes.TOO_MANY) in operation.refusals
    return openapi_writes.with_headers(responses, operation.status, _PROBLEM) if is_write else responses


def _forbidden(route: Route) -> tuple[int, ...]:
    """403 for a read that names its topics: KEYLANE_TOPICS may exclude them."""
    kind, names = route.permission
    return (403,) if kind is PermissionKind.READ and names not in {Names.ALL, Names.NONE} else ()


def _reference(schema: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{schema}"}


def _content(content_type: str, schema: str) -> dict[str, Any]:
    return {content_type: {"schema": _reference(schema)}}


def write(path: Path) -> None:
    """Write the document to `path`."""
    path.write_text(json.dumps(document(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(project_root() / "docs" / "openapi.json")
