"""`keylane help`: the documents, and the files for Prometheus and Grafana. All travel with the program."""

from pathlib import Path

import click

from keylane_local.errors import BadInput
from keylane_local.tools import project_root


@click.command("help")
@click.argument("page", required=False)
def help_pages(page: str | None) -> None:
    """Print PAGE of the documents, such as troubleshooting or use/find; without one, list them."""
    pages = _find_pages(project_root() / "docs") | _find_files(project_root() / "infra" / "monitoring")
    if page is None:
        width = max(map(len, pages))
        for name, path in pages.items():
            click.echo(f"{name:<{width}}  {_title_of(path)}")
        return
    click.echo(_choose(page, pages).read_text(encoding="utf-8"), nl=False)


def _find_pages(folder: Path) -> dict[str, Path]:
    """Return the pages by their names: configuration/topics; a folder's own is that of the folder."""
    found = {}
    for path in sorted(folder.rglob("*.md")):
        name = path.relative_to(folder).with_suffix("")
        found[str(name.parent if name.name == "README" else name)] = path
    return found


def _find_files(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in sorted(folder.iterdir())}


def _choose(given: str, pages: dict[str, Path]) -> Path:
    """Return the page of a name, or of the end of one. Raises BadInput."""
    from keylane.errors import ask_meant  # noqa: PLC0415 - its imports take long

    wanted = given.removeprefix("docs/").partition("#")[0].removesuffix(".md").removesuffix("/README")
    found = [name for name in pages if name == wanted] or [
        name for name in pages if name.rpartition("/")[2] == wanted
    ]
    if len(found) > 1:
        raise BadInput(f"{given!r} is one of {', '.join(found)}: name the folder, too")
    if not found:
        ends = {*pages, *(name.rpartition("/")[2] for name in pages)}
        meant = ask_meant(wanted, ends) or ": `keylane help` lists them"
        raise BadInput(f"there is no page {given!r}{meant}")
    return pages[found[0]]


def _title_of(path: Path) -> str:
    if path.suffix != ".md":
        return "A file for monitoring: `keylane help metrics`"
    with path.open(encoding="utf-8") as lines:
        return next((line[2:].strip() for line in lines if line.startswith("# ")), "")
