"""template.yaml as CloudFormation gets it: expanded by SAM's own translator, for given parameters."""

from __future__ import annotations

from functools import cache
from typing import Any

from tests.support.cloudformation import ROOT

from keylane_build import templates
from keylane_build.stack.loading import load_template
from keylane_build.stack.matrix import MAIN, expand


@cache
def expanded(**parameters: str) -> dict[str, Any]:
    """The template with these parameters; the others have their defaults. Requires SAM's tools. Read only."""
    [found] = expand(ROOT, templates.program("python"), load_template(ROOT / MAIN), [parameters])
    assert "error" not in found, found
    return found
