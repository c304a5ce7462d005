"""The OpenAPI document of all routes: `python -m keylane_build.openapi` writes docs/openapi.json.

The server serves it, and the console's page of the API reads it: clients/console has it in one line.
"""

import json
from pathlib import Path
from typing import Any

import keylane
from keylane.api.http import problems
from keylane.api.http.common_parameters import MAX_AGE_MS
from keylane.api.http.parameters import Parameter
from keylane.api.http.router import BYTES, Operation
from keylane.api.http.schemas import TEXT, Schema
from keylane.api.reads.explore import LAST_PARTITION
from keylane.app import explore, produce, query
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.model.routes import EXPLORE, PRODUCE, QUERY, PermissionKind, Route
from keylane.state.windows import NAME_LIMIT
from keylane_local.tools import project_root

PROBLEM_SCHEMA = Schema.of(
    "Problem",
    optional=("code", "parameter", "path"),
    type={"type": "string", "pattern": "^urn:keylane:problem:"},
    title=TEXT,
    status={"type": "integer"},
    detail=TEXT,
    code=TEXT,
    parameter=TEXT,
    path={**TEXT, "description": "JSON Pointer to the part of the value that its schema rejects"},
    instance=TEXT,
)
PATH, SERVED = "docs/openapi.json", "clients/console/openapi.json"
OPERATIONS = (query.OPERATIONS, produce.OPERATIONS, explore.OPERATIONS)
NOT_ACCEPTABLE, CONFLICT, TOO_MANY, INTERNAL_ERROR = 406, 409, 429, 500
OCTETS = "application/octet-stream"
INT32_MAX = 2**31 - 1
_TYPES = {str: "string", int: "integer", bool: "boolean", type(None): "null"}
_BINARY = {"type": "string", "format": "binary"}
_PROBLEMS = (400, 401, 403, 404, 413, TOO_MANY, INTERNAL_ERROR, 503, 504)
"""Statuses of problems that every route may return, some by its host. 413: of its answer, too."""
TOO_SLOW = 408
"""Of every route that takes a body."""
_PROBLEM = {
    "description": "a problem; its type is stable",
    "content": {problems.CONTENT_TYPE: {"schema": PROBLEM_SCHEMA}},
}
_COUNT = {"schema": {"type": "integer", "minimum": 0}}
_RATE_LIMIT = {
    "RateLimit-Limit": {"description": "requests, records or bytes allowed per minute", **_COUNT},
    "RateLimit-Remaining": {"description": "how much of it is left", **_COUNT},
    "RateLimit-Reset": {"description": "seconds until all of it is available again", **_COUNT},
    "RateLimit-Policy": {
        "description": 'limit, window in seconds, burst and unit: 600;w=60;burst=60;comment="records"',
        "schema": {"type": "string"},
    },
}
_RETRY_AFTER = {"Retry-After": {"description": "seconds to wait before a retry", **_COUNT}}
_REPLAYED = {
    "Idempotency-Replayed": {
        "description": "the saved response of an earlier request with this Idempotency-Key",
        "schema": {"const": "true"},
    }
}
_PATH_PARTS = {
    "topic": ("a topic's name", {"type": "string", "pattern": "^[a-zA-Z0-9._-]{1,249}$"}),
    "view": ("a view's name", {"type": "string", "pattern": f"^[a-zA-Z0-9._-]{{1,{NAME_LIMIT}}}$"}),
    "cluster": ("a Kafka cluster's id", {"type": "string", "minLength": 1}),
    "broker": ("a broker's number", {"type": "integer", "minimum": 0}),
    "group": ("a consumer group's id, percent-encoded", {"type": "string", "minLength": 1}),
    "name": ("a setting's name", {"type": "string", "minLength": 1}),
    "partition": ("a partition's number", {"type": "integer", "minimum": 0, "maximum": LAST_PARTITION}),
    "key": (
        "a key, percent-encoded, or in base64 with key_format=base64",
        {"type": "string", "minLength": 1, "maxLength": KEY_LIMIT_BYTES},
    ),
}


TAGS = {QUERY: "Read the state", PRODUCE: "Write to Kafka", EXPLORE: "Look at Kafka"}
"""Function -> the tag of its operations: the groups of references, and of generated clients."""


def document() -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, Any] = {}
    for operations in OPERATIONS:
        for operation in operations.values():
            for method in operation.route.methods:
                path = paths.setdefault(operation.route.path, {})
                path[method.lower()] = _operation(operation, method)
    schemas: dict[str, Any] = {}
    responses = {
        "Problem": _PROBLEM,
        "ProblemOfHead": {"description": "a problem; a GET returns its details"},
    }
    referring = {"paths": dict(sorted(paths.items())), "responses": responses}
    rendered = _with_references(referring, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Keylane",
            "version": keylane.__version__,
            "description": "Kafka topics, queryable over HTTPS. Every answer reports how fresh it is.",
        },
        "tags": [{"name": tag} for tag in TAGS.values()],
        "paths": rendered["paths"],
        "components": {"schemas": dict(sorted(schemas.items())), "responses": rendered["responses"]},
    }


def _with_references(shape: Any, schemas: dict[str, Any]) -> Any:
    """Return the shape with references to the named schemas in it, which are added to `schemas`."""
    if isinstance(shape, Schema):
        if shape.name not in schemas:
            schemas[shape.name] = {}  # it may contain itself
            schemas[shape.name] = _with_references(shape.shape, schemas)
        return {"$ref": f"#/components/schemas/{shape.name}"}
    if isinstance(shape, dict):
        return _typed({name: _with_references(each, schemas) for name, each in shape.items()})
    return [_with_references(each, schemas) for each in shape] if isinstance(shape, list | tuple) else shape


def _typed(shape: dict[str, Any]) -> dict[str, Any]:
    """Return a shape with the types of its values: generators of clients do not look at those.

    For an integer that has no format they take 32 bits, in which no time in milliseconds fits.
    """
    values = shape.get("enum", [shape.get("const")])
    if shape.get("type") in ("integer", ["integer", "null"]) and shape.get("maximum", 2**63) > INT32_MAX:
        return {"format": "int64", **shape}
    if "type" in shape or not isinstance(values, list) or values == [None]:
        return shape
    types = list(dict.fromkeys(_TYPES[type(each)] for each in values))
    return {"type": types if len(types) > 1 else types[0], **shape}


def operation_id(route: Route, method: str) -> str:
    """Return the operation's id: the route's name, prefixed for HEAD, which shares its route with GET."""
    return route.name if method != "HEAD" else f"head_{route.name}"


CONDITIONS: dict[str, Any] = {
    "name": "conditions",
    "in": "query",
    "description": "conditions on the topic's fields, by their names: status=open, amount=10..20, name=Sm*",
    "style": "form",
    "explode": True,
    "schema": {"type": "object", "additionalProperties": {"type": "string"}},
}


def _operation(operation: Operation, method: str) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation_id(operation.route, method),
        "tags": [TAGS[operation.route.function]],
        "summary": (operation.handler.__doc__ or "").partition("\n")[0],
        "parameters": [
            *_path_parameters(operation),
            *map(_parameter, operation.parameters),
            *([CONDITIONS] if operation.takes_conditions else []),
        ],
        "responses": _responses(operation, method),
    }
    if operation.body is BYTES:
        content: dict[str, Any] = {media_type: {"schema": _BINARY} for media_type in (OCTETS, "*/*")}
        described["requestBody"] = {"description": "any bytes", "content": content}
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
    if operation.is_value:
        # Without envelope=true the body is the value itself, of any type.
        any_of = {"anyOf": [operation.answer, {}]}
        content = {
            "application/json": {"schema": any_of},
            "text/plain": {"schema": TEXT},
            OCTETS: {"schema": _BINARY},
        }
    answered: dict[str, Any] = {"description": "the answer"}
    if method != "HEAD":
        answered["content"] = content
    responses: dict[str, Any] = {str(operation.status): answered}
    if operation.accepted:
        accepted = _content(operation.answer_type, operation.accepted)
        responses["202"] = {"description": "in the write-ahead log: it will be written", "content": accepted}
    if operation.is_value:
        responses["304"] = {"description": "not modified: the client has the latest record"}
    statuses = {
        *_PROBLEMS,
        *operation.refusals,
        *([TOO_SLOW] if operation.body is not None or operation.bodies else []),
        *([] if operation.route.permission.kind is PermissionKind.WRITE else [NOT_ACCEPTABLE]),
        *([412] if MAX_AGE_MS in operation.parameters else []),
        *([414] if "{key}" in operation.route.path else []),
    }
    common = "Problem" if method != "HEAD" else "ProblemOfHead"
    for status in sorted(statuses):
        responses[str(status)] = {"$ref": f"#/components/responses/{common}"}
        if operation.reports_failures and status != INTERNAL_ERROR:
            either = {**_content(problems.CONTENT_TYPE, PROBLEM_SCHEMA), **content}
            responses[str(status)] = {"description": "a problem, or the records' results", "content": either}
    for status, meaning in operation.also.items():
        responses[str(status)] = {**answered, "description": meaning}
    responses |= {str(status): {"description": meaning} for status, meaning in operation.empty.items()}
    return _with_headers(responses, operation) if TOO_MANY in operation.refusals else responses


def _with_headers(responses: dict[str, Any], operation: Operation) -> dict[str, Any]:
    """Return a write's responses with the headers of rate limits and of idempotency keys."""
    responses[str(operation.status)]["headers"] = _RATE_LIMIT | _REPLAYED
    for status, headers in ((CONFLICT, _RETRY_AFTER), (TOO_MANY, _RETRY_AFTER | _RATE_LIMIT)):
        found = responses[str(status)]
        responses[str(status)] = {**(_PROBLEM if "$ref" in found else found), "headers": headers}
    return responses


def _content(content_type: str, schema: Schema) -> dict[str, Any]:
    return {content_type: {"schema": schema}}


def write(root: Path) -> None:
    """Write the document to both of its files below `root`."""
    text = json.dumps(document(), indent=1, ensure_ascii=False)
    (root / PATH).write_text(f"{text}\n", encoding="utf-8")
    text = json.dumps(document(), separators=(",", ":"), ensure_ascii=False)
    (root / SERVED).write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    write(project_root())
