"""Where a field of a TOML document is: tomllib does not say."""

import re
from collections.abc import Mapping, Sequence

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")
_PART = re.compile(r""""[^"]*"|'[^']*'|[^.]+""")
_FIELD = re.compile(r"""\s*("[^"]*"|'[^']*'|[A-Za-z0-9_-]+)\s*=""")


def line_of(text: str, path: Sequence[str | int]) -> int:
    """Return the line of a TOML document that sets a field, else that of its table, else 1.

    `path`: names of tables and fields, and the number of a table in its array behind the array's name.
    """
    best, counts, wanted = 1, dict[str, int](), tuple(path)
    table: tuple[str | int, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            name = header[2]
            if header[1] == "[[":
                counts[name] = counts.get(name, -1) + 1
            table = _numbered(name, counts)
            if table == wanted[: len(table)]:
                best = number
        elif field := _FIELD.match(line):
            here = (*table, field[1].strip("\"'"))
            if here == wanted[: len(here)]:
                return number
    return best


def _numbered(header: str, counts: Mapping[str, int]) -> tuple[str | int, ...]:
    """Return the path of a table, with the number of the present one behind each array's name."""
    path: list[str | int] = []
    name = ""
    for part in _PART.findall(header):
        name = f"{name}.{part}" if name else part
        path.append(part.strip().strip("\"'"))
        if name in counts:
            path.append(counts[name])
    return tuple(path)
