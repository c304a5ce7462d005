"""How long a check by a JSON Schema may take at worst, from the schema's shape and the value's size.

jsonschema-rs follows each way through a schema: where ten subschemas name the next one twice, the last is
visited 1,024 times. It can't be interrupted, and the schema of a registry may come from any writer. So the
ways are counted before. What can't be counted (`$dynamicRef`, `unevaluated...`, a `$ref` to anything but a
JSON Pointer, too many ways, a `format` that compiles the value, patterns or a text that take long to compile)
has no bound here, and `json_schema_bounded` checks it in a process of its own.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from keylane.adapters.registry.pattern_cost import BYTES_PER_US, compile_ns

VISITS_LIMIT = 2_000
"""Subschemas, each as often as there are ways to it. The schema of a large event has a few hundred."""
DEPTH_LIMIT = 100
WORST_MS = 25
"""Of a check and of compiling: both hold the interpreter, and others of the server wait for it."""
_VISIT_NS, _PATTERN_NS, _BACKTRACKING_NS = 50, 2, 2_000_000
_NS_PER_MS = 1_000_000
_NS_PER_US = 1_000
COMPILE_MS = 15
REFUSED_COMPILE_MS = 2_000
"""What is estimated to take longer is refused: a process of its own would not end it in its second."""
CHARACTERS_LIMIT = 64 * 1024
"""Of a schema with all that it refers to: compiling them takes up to 30 ms."""

_SAME = {"allOf", "anyOf", "oneOf", "not", "if", "then", "else"}
_SAME_BY_NAME = {"dependentSchemas", "dependencies"}
_INNER = {"items", "prefixItems", "additionalItems", "additionalProperties", "contains", "propertyNames"}
_INNER_BY_NAME = {"properties", "patternProperties"}
_NOT_VISITED = {"$defs", "definitions"}
_BY_NAME = _SAME_BY_NAME | _INNER_BY_NAME | _NOT_VISITED
_DATA = {"const", "default", "enum", "example", "examples"}
"""What is below these is a value, whatever it looks like."""
_UNBOUNDED = {"$dynamicRef", "$recursiveRef", "unevaluatedItems", "unevaluatedProperties"}
_STEP = _SAME | _SAME_BY_NAME | _INNER | _INNER_BY_NAME | _NOT_VISITED
_REPETITION = re.compile(r"\{\d*,?(\d+)")
_BACKTRACKING = re.compile(r"\(\?(?!:)|\\[1-9kKG]|[*+?}]\+")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


class Cost(NamedTuple):
    """A schema's cost: `visit_ns` for each part of a value, `pattern_ns` for each of its bytes.

    `ways_back`: how many ways lead from the root back to a subschema that was met before. `patterns_bytes`:
    what its patterns take when they are compiled.
    """

    visit_ns: int
    pattern_ns: int
    ways_back: int
    patterns_bytes: int = 0

    def allows(self, value: bytes) -> bool:
        """Whether the check of this value takes no longer than `WORST_MS`."""
        parts = 1 + sum(map(value.count, (b",", b"[", b"{", b":")))
        worst_ns = parts * self.visit_ns + len(value) * self.pattern_ns
        if self.ways_back > 1:
            worst_ns *= self.ways_back ** min(_depth(value), DEPTH_LIMIT)
        return worst_ns <= WORST_MS * _NS_PER_MS


def estimate(schema: Any, references: Mapping[str, Any]) -> Cost | None:
    """The schema's cost, None where nothing bounds it; `references`: other schemas by their names.

    Raises ValueError for patterns that no process compiles in its time.
    """
    if any(map(_has_inner_base, (schema, *references.values()))):
        return None
    compiled_ns = compile_ns(schema, *references.values())
    if compiled_ns and compiled_ns > REFUSED_COMPILE_MS * _NS_PER_MS:
        raise ValueError(
            "its patterns take too long to compile: they repeat large classes, \\p{L} say, too often"
        )
    if compiled_ns is None or compiled_ns > COMPILE_MS * _NS_PER_MS:
        return None
    walk = _CostWalk(references)
    try:
        walk.visit(schema, schema, 0)
    except (_UnboundedError, RecursionError):
        return None
    patterns_bytes = compiled_ns // _NS_PER_US * BYTES_PER_US
    return Cost(walk.visit_ns, walk.pattern_ns, walk.ways_back, patterns_bytes)


class _UnboundedError(Exception):
    """Nothing bounds the schema's cost."""


class _CostWalk:
    """Follows every way through a schema, until it comes back to a subschema on it."""

    def __init__(self, references: Mapping[str, Any]) -> None:
        self.visit_ns = self.pattern_ns = self.ways_back = 0
        self._references = references
        self._visits = 0
        self._way: dict[int, int] = {}

    def visit(self, schema: Any, document: Any, depth: int) -> None:
        """Count a subschema; `depth`: how far inside the value it applies."""
        self._visits += 1
        self.visit_ns += _VISIT_NS
        if self._visits > VISITS_LIMIT or len(self._way) > DEPTH_LIMIT:
            raise_unbounded()
        if not isinstance(schema, dict):
            return
        if id(schema) in self._way:
            if self._way[id(schema)] == depth:  # it never comes to an inner part of the value
                raise_unbounded()
            self.ways_back += 1
            return
        if not _UNBOUNDED.isdisjoint(schema):
            raise_unbounded()
        self._count(schema)
        self._way[id(schema)] = depth
        for step, below in _subschemas(schema):
            self.visit(below, document, depth + step)
        if "$ref" in schema:
            self.visit(*self._resolve(schema["$ref"], document), depth)
        del self._way[id(schema)]

    def _count(self, schema: dict[str, Any]) -> None:
        self.visit_ns += sum(len(str(value)) for name, value in schema.items() if name not in _STEP)
        patterns = [schema["pattern"]] if "pattern" in schema else []
        for pattern in map(str, (*patterns, *_names(schema.get("patternProperties")))):
            if _BACKTRACKING.search(pattern):
                self.visit_ns += _BACKTRACKING_NS
            size = len(pattern)
            for repetition in _REPETITION.findall(pattern):
                size *= max(1, int(repetition[:6]))
            self.pattern_ns += size * _PATTERN_NS
        if schema.get("format") == "regex":
            raise_unbounded()  # the value is compiled

    def _resolve(self, reference: Any, document: Any) -> tuple[Any, Any]:
        """The subschema that a `$ref` means, and the document that it lies in."""
        name, _, pointer = str(reference).partition("#")
        if name:
            document = self._references.get(name)
        found = document
        for step in pointer.split("/")[1:] if pointer.startswith("/") else ():
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            else:
                found = found.get(key) if isinstance(found, dict) else None
        if found is None or (pointer and not pointer.startswith("/")):
            raise_unbounded()
        return found, document


def raise_unbounded() -> None:
    """Raise, as nothing bounds the cost."""
    raise _UnboundedError


def _subschemas(schema: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    """The subschemas, and whether they apply to an inner part of the value (1) or to the same (0)."""
    for name, value in schema.items():
        if name in _SAME or name in _INNER:
            for below in value if isinstance(value, list) else [value]:
                yield int(name in _INNER), below
        elif (name in _SAME_BY_NAME or name in _INNER_BY_NAME) and isinstance(value, dict):
            for below in value.values():
                yield int(name in _INNER_BY_NAME), below


def _names(schemas: Any) -> Iterator[str]:
    yield from schemas if isinstance(schemas, dict) else ()


def _has_inner_base(document: Any) -> bool:
    """Whether a subschema has an id of its own, so that the `$ref`s below it are relative to it."""
    below = (
        [(each, name in _BY_NAME) for name, each in document.items() if name not in _DATA]
        if isinstance(document, dict)
        else []
    )
    while below:
        value, has_names = below.pop()
        if isinstance(value, list):
            below.extend((each, False) for each in value)
        elif isinstance(value, dict) and has_names:
            below.extend((each, False) for each in value.values())
        elif isinstance(value, dict):
            if isinstance(value.get("$id"), str) or isinstance(value.get("id"), str):
                return True
            below.extend((each, name in _BY_NAME) for name, each in value.items() if name not in _DATA)
    return False


def _depth(value: bytes) -> int:
    """How deep the JSON is nested."""
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", value)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest
