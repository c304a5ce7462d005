"""The formulas of formulas.toml. The calculator computes with them, and the page shows their numbers."""

import tomllib
from pathlib import Path
from typing import Any, NamedTuple


class Formula(NamedTuple):
    """What is calculated, an expression of names, and what is taken for the result."""

    what: str
    expression: str
    taken: str = ""


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
FORMULAS = {name: Formula(*each) for name, each in _TABLE.items()}
"""In the order of the page."""


class Values(dict[str, Any]):
    """Numbers by name. That of a formula is computed once it is asked for."""

    def __missing__(self, name: str) -> float:
        """Compute a formula. Raises KeyError for another name."""
        self[name] = float(eval(FORMULAS[name].expression, {}, self))  # noqa: S307 (it is ours)
        return float(self[name])
