"""The figures of costs.toml, by their names: `costs.SERVER_MS`."""

import tomllib
from pathlib import Path

from keylane_cli.survey import key_memory

Figure = tuple[str, float, str, str]
"""What, how much, of which unit, and by which measurement, or why."""

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_FIGURES: dict[str, dict[str, Figure]] = {
    kind: {
        name: (what, vars(key_memory)[name] if value == "key_memory" else value, unit, source)
        for name, (value, what, unit, source) in table.items()
    }
    for kind, table in _TABLES.items()
}
MEASURED, ASSUMED = (tuple(_FIGURES[kind].values()) for kind in ("measured", "assumed"))
VALUES = {name: figure[1] for table in _FIGURES.values() for name, figure in table.items()}


def __getattr__(name: str) -> float:
    """Return a figure. Raises AttributeError."""
    try:
        return VALUES[name]
    except KeyError:
        raise AttributeError(name) from None
