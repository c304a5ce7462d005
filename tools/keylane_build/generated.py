"""Generated parts of files, between two marker lines."""

from collections.abc import Iterable, Iterator


def replace_between(text: str, begin: str, end: str, lines: Iterable[str]) -> str:
    """Return `text` with `lines` between the lines that end with `begin` and `end`.

    Raises ValueError if `text` does not have both markers.
    """
    before, has_begin, rest = text.partition(f"{begin}\n")
    _, has_end, after = rest.partition(f"{end}\n")
    if not has_begin or not has_end:
        raise ValueError(f"the file does not have the lines {begin.strip()!r} and {end.strip()!r}")
    generated = "".join(f"{line}\n" for line in lines)
    return f"{before}{begin}\n{generated}{end}\n{after}"


def render_table(title: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    columns = tuple(title)
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
