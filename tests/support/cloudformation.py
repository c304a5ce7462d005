"""The project's CloudFormation templates as Python, and template.yaml as SAM's own translator expands it."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import Any

from keylane_build import templates
from keylane_build.stack.loading import load_template
from keylane_build.stack.matrix import MAIN, expand

ROOT = Path(__file__).parents[2]


def template(path: str = "template.yaml") -> dict[str, Any]:
    """A template of the project; whoever changes it changes a copy."""
    copy: dict[str, Any] = pickle.loads(_loaded(path))  # noqa: S301 (ours, and a fifth of `deepcopy`'s time)
    return copy


@cache
def _loaded(path: str) -> bytes:
    return pickle.dumps(load_template(ROOT / path))


def of_type(found: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """The template's resources of a type, by logical id."""
    return {name: each for name, each in found["Resources"].items() if each["Type"] == kind}


@cache
def expanded(**parameters: str) -> dict[str, Any]:
    """The template with these parameters; the others have their defaults. Requires SAM's tools. Read only."""
    [found] = expand(ROOT, templates.program("python"), load_template(ROOT / MAIN), [parameters])
    assert "error" not in found, found
    return found
