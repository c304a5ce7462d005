"""CloudFormation templates as Python: `!Ref X` is {"Ref": "X"}, `!GetAtt A.B` {"Fn::GetAtt": ["A", "B"]}."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Resources = dict[str, dict[str, Any]]


# libyaml's parser takes a seventh of the time, where PyYAML was built with it.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):  # type: ignore[misc] # yaml has no types
    """YAML with CloudFormation's short tags."""


def _intrinsic(loader: _Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {suffix if suffix in {"Ref", "Condition"} else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _intrinsic)


def load_template(path: Path) -> dict[str, Any]:
    """Return the template in a file."""
    found: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 (a SafeLoader)
    return found


def of_type(resources: Resources, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the logical ids and properties of a type's resources."""
    for name, resource in resources.items():
        if resource["Type"] == kind:
            yield name, resource.get("Properties") or {}
