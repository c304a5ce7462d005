"""What the schema of a value says of its times: whether a number counts milliseconds, or anything else.

The schemas are those of Kafka Connect, as its JSON converter writes them beside the payload, and of its
converters for Avro and JSON Schema. Avro's own logical types are shown as texts: see `avro_primitives`.

Source: debezium.io, "Temporal types" of each connector (`time.precision.mode`).
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

_KINDS = {
    "io.debezium.time.MicroTimestamp": "time_us",
    "io.debezium.time.MicroTime": "time_us",
    "io.debezium.time.MicroDuration": "time_us",
    "io.debezium.time.NanoTimestamp": "time_ns",
    "io.debezium.time.NanoTime": "time_ns",
    "io.debezium.time.NanoDuration": "time_ns",
    "io.debezium.time.Date": "time_days",
    "org.apache.kafka.connect.data.Date": "time_days",
}
"""By the semantic types of schemas, as types of fields; all others that are times count milliseconds."""
_MOST_LEVELS, _MOST_TYPES = 100, 100


def time_kinds(
    schema: str, paths: Sequence[tuple[str, ...]], *, of_event: bool
) -> dict[tuple[str, ...], str]:
    """Return the types of the fields at these paths that are times in another unit than milliseconds.

    `of_event`: the schema is of change events, and the paths are of their rows.
    """
    try:
        root = json.loads(schema)
    except (ValueError, RecursionError):
        return {}
    named: dict[str, Any] = {}
    _collect(root, named, 0)
    nodes = _types(root, named)
    after = _below(nodes, "after", named)
    if of_event and after and not _below(nodes, "__deleted", named):
        nodes = after
    found = {}
    for path in paths:
        inner = nodes
        for name in path:
            inner = _below(inner, name, named)
        kinds = [_KINDS[name] for each in inner for name in _names(each) if name in _KINDS]
        if kinds:
            found[path] = kinds[0]
    return found


def _collect(node: Any, named: dict[str, Any], level: int) -> None:
    """Note Avro's records by their names: later fields have these alone."""
    if level > _MOST_LEVELS:
        return
    if isinstance(node, dict):
        if node.get("type") == "record" and isinstance(node.get("name"), str):
            named[node["name"].rpartition(".")[2]] = node
        for each in node.values():
            _collect(each, named, level + 1)
    elif isinstance(node, list):
        for each in node:
            _collect(each, named, level + 1)


def _types(node: Any, named: dict[str, Any], level: int = 0) -> list[dict[str, Any]]:
    """Return a schema, and what it is a choice of."""
    if level > _MOST_LEVELS:
        return []
    if isinstance(node, str):
        return _types(named.get(node.rpartition(".")[2]), {}, level + 1)
    if isinstance(node, list):
        return [found for each in node for found in _types(each, named, level + 1)]
    if not isinstance(node, dict):
        return []
    inner = [each for name in ("type", "oneOf", "anyOf") for each in _types(node.get(name), named, level + 1)]
    return [node, *inner]


def _below(nodes: Sequence[dict[str, Any]], name: str, named: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas of a field: some of them, for a schema can name itself any number of times."""
    found: list[dict[str, Any]] = []
    for node in nodes:
        fields, properties = node.get("fields"), node.get("properties")
        for each in fields if isinstance(fields, list) else ():
            if isinstance(each, dict) and each.get("field", each.get("name")) == name:
                found += _types(each, named)
        if isinstance(properties, dict) and name in properties:
            found += _types(properties[name], named)
    return found[:_MOST_TYPES]


def _names(node: dict[str, Any]) -> Iterator[str]:
    """Yield what may be the semantic type: of Connect's own schemas, of Avro and of JSON Schema."""
    for member in ("name", "connect.name", "title"):
        if isinstance(found := node.get(member), str):
            yield found
