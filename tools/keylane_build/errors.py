"""The page of all errors, made from the service's table and from the text in errors.txt beside this module.

`python -m keylane_build.errors` writes docs/http/errors.md. In the text a row begins with the problem's type
in braces, and has its meaning alone: `| {key-absent} | The topic has no record with this key. |`.
"""

import re
from pathlib import Path

from keylane.api.http.problems import PROBLEMS, Problem
from keylane_local.tools import project_root

TEXT = Path(__file__).with_suffix(".txt")
_ROW = re.compile(r"^\| \{([a-z-]+)(: [^}]+| without code)?\} \|", re.MULTILINE)
_TITLE = re.compile(r"\{title of ([a-z-]+)\}")


def page() -> str:
    """Return the page. Raises KeyError for a type that the table does not have."""
    text = _ROW.sub(lambda found: _cells(PROBLEMS[found[1]], found[2]), TEXT.read_text(encoding="utf-8"))
    return _TITLE.sub(lambda found: PROBLEMS[found[1]].title, text)


def _cells(kind: Problem, instead: str | None) -> str:
    """Return the first cells of a row; `instead` of the code: what the text has after the type."""
    known = f"| `{kind.name}` | {kind.status} |"
    if instead == " without code":
        return known
    code = f"`{kind.code}`" if kind.code else "-"
    return f"{known} {instead.removeprefix(': ') if instead else code} |"


def write(path: Path) -> None:
    """Write the page."""
    path.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write(project_root() / "docs" / "http" / "errors.md")
