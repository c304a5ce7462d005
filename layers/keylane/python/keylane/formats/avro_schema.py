"""What reading and writing Avro make of a schema alike: its JSON looked through, its types named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

DEEPEST = "the value, or its schema, is nested too deep"


def made_of(schema: str, references: Sequence[str], make: Callable[[Any, dict[str, T], str], T]) -> T:
    """What `make` makes of a schema's JSON, the named types so far and a namespace.

    `references` define names, the first first. Raises ValueError, whose sentence says what is wrong.
    """
    names: dict[str, T] = {}
    try:
        for text in references:
            make(json.loads(text), names, "")
        return make(json.loads(schema), names, "")
    except RecursionError:
        raise ValueError(DEEPEST) from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no Avro schema: {error!r}") from error


def full_name(name: str, namespace: str) -> str:
    """The name with its namespace, where it has none of its own."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


def named(name: str, names: dict[str, T], namespace: str) -> T:
    """What stands under a type's name. Raises ValueError where nothing does."""
    found = names.get(full_name(name, namespace)) or names.get(name)
    if found is None:
        raise ValueError(f"the schema names a type {name[:100]!r} that it does not define")
    return found
