"""Resources of a resolved stack, by type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    Resources = dict[str, dict[str, Any]]


def of_type(resources: Resources, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the logical ids and properties of a type's resources."""
    for name, resource in resources.items():
        if resource["Type"] == kind:
            yield name, resource.get("Properties") or {}
