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
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.api.router import BYTES
from keylane.state.windows import NAME_LIMIT
from keylane_build import openapi_explore, openapi_writes
from keylane.model.routes import FUNCTIONS
from keylane_build.openapi_terms import COUNT as _COUNT
from keylane_build.openapi_terms import FLAG as _FLAG
from keylane_build.openapi_terms import MAYBE_TEXT as _MAYBE_TEXT
from keylane_build.openapi_terms import TEXT as _TEXT
from keylane_build.openapi_terms import TIME as _TIME
from keylane_build.openapi_terms import VALUE as _VALUE
from keylane_build.openapi_terms import a_list as _list
from keylane_build.openapi_terms import an_object as _object
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from pathlib import Path

    from keylane.api.parameters import Parameter
    from keylane.api.router import Operation, Resolver

_KEY = {"key": _TEXT, "key_format": {"enum": ["text", "base64"]}}
_PLACE = {"partition": _COUNT, "offset": _COUNT, "position": _TEXT, "timestamp": _COUNT}
_FRESHNESS = {
    "watermarks": {
        "type": "object",
        "description": "partition -> everything below is in the answer",
        "additionalProperties": _COUNT,
    },
    "age_ms": {**_COUNT, "description": "nothing acknowledged longer ago than this is missing"},
    "building": _FLAG,
    "incomplete": _FLAG,
}
_MAYBE_COUNT = {"type": ["integer", "null"], "minimum": 0}
_FATE = {
    "index": {**_COUNT, "description": "of the record in the request, where it failed"},
    "field": {**_MAYBE_TEXT, "description": "of the record, where one is at fault"},
    "code": {**_TEXT, "description": "Kafka's name of the error"},
    "retriable": _FLAG,
    "uncertain": {**_FLAG, "description": "it may have been written all the same"},
    "path": {**_TEXT, "description": "a JSON Pointer to the fault in the value, where a schema finds one"},
}
_ID = {"type": "string", "description": "of a queued record; its header keylane-id in Kafka"}
_PAGE = {"next": {"type": "string", "description": "the cursor of the next page; missing at the end"}}

SCHEMAS: dict[str, Any] = {
    "Record": _object(
        ("topic", *_PLACE, *_KEY, "value", "value_format", "watermark"),
        topic=_TEXT,
        watermark=_TEXT,
        age_ms=_COUNT,
        building=_FLAG,
        incomplete=_FLAG,
        **_PLACE,
        **_KEY,
        **_VALUE,
    ),
    "Row": {
        "description": "a record; or its key alone, with absent or history_too_short where that is why",
        **_object(
            tuple(_KEY),
            **_KEY,
            **_PLACE,
            **_VALUE,
            absent=_FLAG,
            history_too_short=_FLAG,
            since_ms=_COUNT,
        ),
    },
    "Entry": {
        "description": "a record of a history; a tombstone is `deleted` and has no value",
        **_object(tuple(_PLACE), **_PLACE, **_VALUE, deleted=_FLAG),
    },
    "Records": _object(("records", "watermarks"), records=_list("Row"), **_FRESHNESS),
    "Page": _object(("records", "watermarks"), records=_list("Row"), **_PAGE, **_FRESHNESS),
    "History": _object(
        (*_KEY, "records", "watermarks"), **_KEY, records=_list("Entry"), **_PAGE, **_FRESHNESS
    ),
    "Joined": _object(
        (*_KEY, "records", "watermarks"),
        **_KEY,
        **_FRESHNESS
        | {
            "records": {
                "type": "object",
                "description": "by topic",
                "additionalProperties": {"$ref": "#/components/schemas/Row"},
            },
            "watermarks": {
                "type": "object",
                "description": "by topic, then by partition",
                "additionalProperties": {"type": "object", "additionalProperties": _COUNT},
            },
        },
    ),
    "Lane": _object(
        ("partition", "stripe", "slot", "shard", "next_offset", "log_end", "lag", "building", "incomplete"),
        partition=_COUNT,
        stripe=_COUNT,
        slot={"type": "integer", "minimum": 0, "maximum": 16383},
        shard=_TEXT,
        next_offset=_COUNT,
        log_end=_COUNT,
        lag=_COUNT,
        building=_FLAG,
        incomplete=_FLAG,
        has_strays=_FLAG,
        age_ms=_COUNT,
    ),
    "Topic": _object(
        ("topic", "partitions", "stripes", "partitioner", "partition_by", "generation", "options", "lanes"),
        topic=_TEXT,
        partitions=_COUNT,
        stripes=_COUNT,
        partitioner={"enum": ["murmur2", "crc32", "fnv1a"]},
        partition_by={"type": "string", "pattern": "^(key|prefix:.+)$"},
        generation=_COUNT,
        options={"type": "object"},
        building=_FLAG,
        incomplete=_FLAG,
        lag=_COUNT,
        age_ms=_COUNT,
        strays={"type": "object", "additionalProperties": _COUNT},
        lanes=_list("Lane"),
    ),
    "Window": _object(
        (*_KEY, "changed", "values"),
        **_KEY,
        start=_TIME,
        end=_TIME,
        final={**_FLAG, "description": "it changes no more"},
        changed=_COUNT,
        values={"type": "object", "description": "the view's columns"},
    ),
    "Windows": _object(
        ("windows",),
        windows=_list("Window"),
        event_time={**_COUNT, "description": "windows that end by this time are final"},
        **_PAGE,
        age_ms=_FRESHNESS["age_ms"],
        building=_FLAG,
        incomplete=_FLAG,
    ),
    "View": _object(
        ("view", "topic", "window", "columns", "partitions", "generation", "late", "invalid", "lanes"),
        view=_TEXT,
        topic=_TEXT,
        key=_MAYBE_TEXT,
        time=_MAYBE_TEXT,
        where=_MAYBE_TEXT,
        window=_object(("kind",), kind={"enum": ["tumbling", "hopping", "session", "none"]}),
        lateness_ms=_COUNT,
        ttl_ms={"type": ["integer", "null"]},
        columns={"type": "array", "items": _object(("name", "kind"), name=_TEXT, kind=_TEXT)},
        partitions=_COUNT,
        generation=_COUNT,
        building=_FLAG,
        incomplete=_FLAG,
        age_ms=_COUNT,
        event_time=_COUNT,
        late={**_COUNT, "description": "records that came when their window was final"},
        invalid={**_COUNT, "description": "records without a key or a time"},
        lanes={"type": "array", "items": {"type": "object"}},
    ),
    "Partitions": {
        "type": "object",
        "description": "host:port -> partitions",
        "additionalProperties": {"type": "array", "items": _COUNT},
    },
    **openapi_explore.SCHEMAS,
    "Written": _object(("partition", "offset", "position"), partition=_COUNT, offset=_COUNT, position=_TEXT),
    "Accepted": _object(("status", "id"), status={"enum": ["queued"]}, id=_ID),
    "Pushed": _object(
        ("status", "errors", "positions"),
        status={"enum": ["ok", "err"]},
        errors={
            "type": "array",
            "description": "empty, or one for each record",
            "items": _object(
                ("status", "error", "message"),
                status={"enum": ["ok", "queued", "error"]},
                error=_FLAG,
                message=_MAYBE_TEXT,
                **_FATE,
            ),
        },
        positions={"type": "array", "items": _MAYBE_TEXT},
        queued={"type": "array", "description": "ids of those in the log", "items": _MAYBE_TEXT},
    ),
    "Offsets": _object(
        ("offsets", "key_schema_id", "value_schema_id"),
        offsets={
            "type": "array",
            "items": _object(
                ("partition", "offset", "error_code", "error"),
                partition=_MAYBE_COUNT,
                offset=_MAYBE_COUNT,
                error_code={"enum": [None, 1, 2], "description": "1: for good; 2: try again"},
                error=_MAYBE_TEXT,
                status={"enum": ["queued"], "description": "it is in the write-ahead log"},
                id=_ID,
                **_FATE,
            ),
        },
        key_schema_id={"type": "null"},
        value_schema_id={"type": "null"},
    ),
    "Problem": _object(
        ("type", "title", "status", "detail", "instance"),
        type={"type": "string", "pattern": "^urn:keylane:problem:"},
        title=_TEXT,
        status={"type": "integer"},
        detail=_TEXT,
        code=_TEXT,
        parameter=_TEXT,
        path={**_TEXT, "description": "a JSON Pointer to the fault in the value"},
        instance=_TEXT,
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


def _operation(operation: Operation, method: str) -> dict[str, Any]:
    name = operation.route.name
    described: dict[str, Any] = {
        "operationId": name if method != "HEAD" else f"head_{name}",
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
