"""CloudFormation templates as Python: `!Ref X` is {"Ref": "X"}, `!GetAtt A.B` {"Fn::GetAtt": ["A", "B"]}."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


class _Loader(yaml.SafeLoader):
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


def template(path: str = "template.yaml") -> dict[str, Any]:
    """A template of the project."""
    return yaml.load((ROOT / path).read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 (a SafeLoader)


def of_type(found: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """The template's resources of a type, by logical id."""
    return {name: each for name, each in found["Resources"].items() if each["Type"] == kind}
