"""Avro schemas: the walk through a schema's JSON that reading and writing share.

Source: the Avro 1.12 specification, "Schema Declaration" and "Names". Aliases, defaults and sort orders are
ignored: a schema is always the writer's own.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

TOO_DEEP = "the value, or its schema, is nested too deeply"
PATH_LIMIT = 300
_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_NAMED = {"record", "error", "enum", "fixed"}
_ITEMS = {"array": "items", "map": "values"}
_LARGEST_FIXED = 1 << 30
_LARGEST_SCALE = 10_000


def decimal_scale(schema: dict[str, Any], size: int | None = None) -> int | None:
    """The scale of a valid decimal; None for any other schema.

    `size`: of a fixed type, in bytes. A logical type that is not valid is ignored: its values are bytes.
    Raises ValueError for a scale that makes a long text of any number.
    Source: the Avro 1.12 specification, "Logical Types" and "Decimal".
    """
    if schema.get("logicalType") != "decimal":
        return None
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or not precision:
        return None
    if size is not None and precision > (8 * size - 1) * math.log10(2):
        return None
    if scale > _LARGEST_SCALE:
        raise ValueError(f"the Avro schema has a decimal of scale {str(scale)[:50]}")
    return scale


class NotOfSchema(ValueError):
    """A value that does not fit its schema; `path` leads to the fault, as in `legs[2].dest`."""

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self.path = ""

    def path_below(self, root: str) -> str:
        """The path as seen from above the value: `root` leads to the value."""
        return _join(root, self.path)


def at_step(error: ValueError, step: str) -> NotOfSchema:
    """The error as seen from one level up: `step` is a field's name, a map's key, or an index as in `[2]`."""
    found = error if isinstance(error, NotOfSchema) else NotOfSchema(str(error))
    if len(found.path) < PATH_LIMIT:
        found.path = _join(step, found.path)
    return found


def _join(step: str, path: str) -> str:
    return step + ("." if path and not path.startswith("[") else "") + path


@dataclass(frozen=True, slots=True)
class Makers(Generic[T]):
    """What to make of each kind of schema: a reader or a writer of its values.

    `fixed` is given the size too. `logical` returns None for a logical type that is read as its base type.
    """

    primitives: Mapping[str, T]
    logical: Callable[[dict[str, Any], str], T | None]
    record: Callable[[list[tuple[str, T]]], T]
    enum: Callable[[tuple[str, ...]], T]
    fixed: Callable[[dict[str, Any], int], T]
    array: Callable[[T], T]
    map: Callable[[T], T]
    union: Callable[[list[tuple[str, T]]], T]


def compile_schema(schema: str, references: Sequence[str], makers: Makers[T]) -> T:
    """What the makers make of a schema's JSON; `references` define named types, dependencies first.

    Raises ValueError, whose sentence says what is wrong and where.
    """
    walk = _Walk(makers)
    try:
        for text in references:
            walk.compile(json.loads(text), "")
        return walk.compile(json.loads(schema), "")
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except json.JSONDecodeError as error:
        raise ValueError(f"the Avro schema is not valid JSON: {error}") from error
    except KeyError as error:
        raise walk.fault(f"has no {error}") from error
    except (TypeError, AttributeError) as error:
        raise walk.fault(f"is not a schema: {error}") from error


class _Walk(Generic[T]):
    """One walk; the path stays where it was when a fault ended it."""

    def __init__(self, makers: Makers[T]) -> None:
        self._makers = makers
        self._types: dict[str, T] = {}
        self._path: list[str] = []

    def fault(self, what: str) -> ValueError:
        where = f" at {'.'.join(self._path)[:PATH_LIMIT]}" if self._path else ""
        return ValueError(f"the Avro schema{where} {what}")

    def compile(self, schema: Any, namespace: str) -> T:
        """What the makers make of a schema; its named types are added to those known."""
        makers = self._makers
        if isinstance(schema, str):
            return makers.primitives.get(schema) or self._named(schema, namespace)
        if isinstance(schema, list):
            return makers.union(
                [(_branch_name(each, namespace), self.compile(each, namespace)) for each in schema]
            )
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.compile(kind, namespace)
        if kind in _NAMED:
            return self._define(schema, kind, namespace)
        if kind in _ITEMS:
            make = makers.array if kind == "array" else makers.map
            return make(self._below(_ITEMS[kind], schema[_ITEMS[kind]], namespace))
        return makers.logical(schema, kind) or self.compile(kind, namespace)

    def _below(self, step: str, schema: Any, namespace: str) -> T:
        self._path.append(step)
        found = self.compile(schema, namespace)
        self._path.pop()
        return found

    def _define(self, schema: dict[str, Any], kind: str, namespace: str) -> T:
        """The record, enum or fixed; a record is known before its fields, which may refer to it."""
        name = _full_name(schema, namespace)
        if kind == "enum":
            found = self._makers.enum(tuple(schema["symbols"]))
        elif kind == "fixed":
            size = schema["size"]
            if not isinstance(size, int) or not 0 <= size <= _LARGEST_FIXED:
                raise self.fault(f"has a fixed type of size {str(size)[:50]!r}")
            found = self._makers.fixed(schema, size)
        else:
            fields: list[tuple[str, T]] = []
            found = self._types[name] = self._makers.record(fields)
            inner = name.rpartition(".")[0]
            for field in schema["fields"]:
                step = str(field["name"])
                fields.append((step, self._below(step, field["type"], inner)))
        self._types[name] = found
        return found

    def _named(self, name: str, namespace: str) -> T:
        found = self._types.get(_qualified(name, namespace)) or self._types.get(name)
        if found is None:
            raise self.fault(f"names a type {name[:100]!r} that it does not define")
        return found


def _branch_name(schema: Any, namespace: str) -> str:
    """The name of a union's branch in the JSON encoding: of a named type its full name, else its type."""
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES else _qualified(schema, namespace)
    if isinstance(schema, list):
        return "union"
    kind = schema["type"]
    if not isinstance(kind, str):
        return _branch_name(kind, namespace)
    return _full_name(schema, namespace) if kind in _NAMED else kind


def _full_name(schema: dict[str, Any], namespace: str) -> str:
    given = schema.get("namespace")
    return _qualified(schema["name"], namespace if given is None else given)


def _qualified(name: str, namespace: str) -> str:
    """The name with the namespace, unless it has one of its own."""
    return name if "." in name or not namespace else f"{namespace}.{name}"
