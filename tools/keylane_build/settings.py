"""The page of all settings, made from their tables and from the text in settings.txt beside this module.

`python -m keylane_build.settings` writes docs/configuration/settings.md.
"""

import re
from pathlib import Path

from keylane.config import kafka_table, table
from keylane.config.settings import REQUIRED, Choice, Integer, JsonObject, JsonOrFile, Setting
from keylane_local.tools import project_root

TEXT = Path(__file__).with_suffix(".txt")
TABLES = vars(table) | vars(kafka_table)
_HEAD = ("variable", "value", "default", "read by", "meaning")
ESCAPED_BAR = r"\|"
_TABLE = re.compile(r"^\{([A-Z_ ]+)\}$", re.MULTILINE)
"""A line with the names of tables, of which one is made."""


def page() -> str:
    """Return the page."""
    return _TABLE.sub(_rows, TEXT.read_text(encoding="utf-8"))


def _rows(names: re.Match[str]) -> str:
    settings = [setting for name in names[1].split() for setting in TABLES[name].values()]
    rows = [_row(setting) for setting in settings]
    parts = {setting.parts for setting in settings}
    if len(parts) > 1:
        return _table([_HEAD, *rows])
    return f"Read by {parts.pop()}.\n\n" + _table([(*row[:3], *row[4:]) for row in (_HEAD, *rows)])


def _table(rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(cell.replace('|', ESCAPED_BAR) for cell in row)} |" for row in rows]
    lines.insert(1, f"|{' --- |' * len(rows[0])}")
    return "\n".join(lines)


def _row(setting: Setting) -> tuple[str, ...]:
    return (f"`{setting.name}`", _value(setting), _default(setting), setting.parts, setting.text)


def _value(setting: Setting) -> str:
    if isinstance(setting, Choice):
        return ", ".join(f"`{word}`" for word in setting.words)
    if isinstance(setting, Integer):
        return f"{setting.least} or more" if setting.most is None else f"{setting.least} to {setting.most}"
    return f"JSON: `{setting.example}`" if isinstance(setting, JsonObject | JsonOrFile) else setting.accepts


def _default(setting: Setting) -> str:
    if setting.shown or setting.default is REQUIRED:
        return setting.shown or REQUIRED
    if setting.default in {None, ""}:
        return "none"
    return f"`{str(setting.default).lower() if isinstance(setting.default, bool) else setting.default}`"


def write(path: Path) -> None:
    """Write the page."""
    path.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write(project_root() / "docs" / "configuration" / "settings.md")
