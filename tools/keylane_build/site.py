"""The documents as a site with search: `python -m keylane_build.site` builds it into build/site.

The pages are those of the repository, unchanged. Added are tables of contents, which GitHub needs not, the
reference of the HTTP API from its OpenAPI document, and that of the Python client from its docstrings. A link
that leads nowhere, a page that no table of contents has, and a search that misses its page, fail the build.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote_plus

from playwright.sync_api import sync_playwright

import keylane
from keylane_build.api_reference import api_page
from keylane_build.openapi import document
from keylane_local.tools import find_chromium, project_root, tools_dir

HTTP_PAGE, CLIENT_PAGE = "docs/reference/http", "docs/reference/python"
CONTENTS = {
    "Learn": ("docs/start", "docs/concepts", "docs/compare"),
    "Use": (
        "docs/http/README",
        HTTP_PAGE,
        "docs/use/python-client",
        CLIENT_PAGE,
        *(
            "docs/use/typescript",
            "docs/use/command-line",
            "docs/use/console",
            "docs/use/databases",
            "docs/use/transforms",
            "docs/use/rights",
            "docs/use/find",
            "docs/use/agents",
            "docs/use/snapshots",
            "docs/guarantees",
            "docs/limits",
            "docs/benchmarks",
        ),
    ),
    "Migrate": ("docs/migrate/README",),
    "Configure": ("docs/configuration/README",),
    "Operate": ("docs/operate/README", "docs/local"),
    "Understand": ("docs/architecture", "docs/protocol", "docs/decisions/README"),
    "Contribute": (
        *("CONTRIBUTING", "docs/contribute/README", "SECURITY", "CHANGELOG"),
        "local/localstack-process-executor/README",
        "local/localstack-process-executor/CHANGELOG",
    ),
    "Examples": ("examples/flights-board/README",),
}
"""The pages in the site's margin. A README has the other pages of its folder below it."""
_PAGES = ("*.md", "LICENSE", "examples/*/*.md", "local/*/*.md")
_LINK = re.compile(r"\]\(([^)#:]+\.md)")
_ASKED, _WANTED = "own kafka", "Your own Kafka"
_CLASSES = {
    "Clients": ("Client", "AsyncClient"),
    "Topics and views": ("Topic", "Find", "View", "AsyncTopic", "AsyncFind", "AsyncView"),
    "Sessions and batches": ("Session", "Batching", "AsyncSession", "AsyncBatching"),
    "Options and credentials": ("ClientOptions", "RetryPolicy", "ApiKey", "Bearer", "SigV4"),
    "Records and answers": (
        *("NewRecord", "Written", "WriteFailed", "Position", "Record", "RecordHeader", "Absent"),
        *("HistoryEntry", "FoundPage", "LogRecord", "Joined", "Window", "KafkaTopic", "TopicLayout", "Lane"),
    ),
}


def write_sources(root: Path, folder: Path) -> None:
    """Write what Sphinx reads into `folder`: the pages as they are, and what is added to them."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "docs", folder / "docs")
    for path in sorted(each for pattern in _PAGES for each in root.glob(pattern)):
        target = folder / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    pages = {HTTP_PAGE: api_page(document()), CLIENT_PAGE: client_page()}
    for name, text in pages.items():
        path = folder / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    _append(folder / "README.md", "".join(contents(pages, title) for title, pages in CONTENTS.items()))
    for readme in sorted((folder / "docs").rglob("README.md")):
        _append(readme, contents([each.stem for each in siblings(readme)]))


def siblings(readme: Path) -> list[Path]:
    """Return the other pages of a README's folder: first those that it links to, in its order."""
    linked = [readme.parent / each for each in _LINK.findall(readme.read_text(encoding="utf-8"))]
    pages = dict.fromkeys([*linked, *sorted(readme.parent.glob("*.md"))])
    return [each for each in pages if each.parent == readme.parent and each != readme and each.exists()]


def contents(pages: Sequence[str], title: str = "") -> str:
    """Return a table of contents as MyST has it. It is in the margin only."""
    caption = f":caption: {title}\n" if title else ""
    lines = "\n".join(pages)
    return f"\n```{{toctree}}\n:hidden:\n{caption}\n{lines}\n```\n"


def client_page() -> str:
    """Return the page of the Python client: Sphinx fills it from the docstrings."""
    return "\n".join(_client_lines())


def _client_lines() -> Iterator[str]:
    yield "# Python client, reference\n"
    yield "From the docstrings of `keylane_client`. [Its guide](../use/python-client.md) shows the use.\n"
    for title, names in _CLASSES.items():
        yield f"## {title}\n"
        for name in names:
            yield _described(
                f"autoclass:: keylane_client.{name}", ":members:", ":inherited-members: tuple, object"
            )
    yield "## Errors\n"
    yield _described("automodule:: keylane_client.errors", ":members:", ":show-inheritance:")


def _described(directive: str, *options: str) -> str:
    lines = "\n".join([f".. {directive}", *(f"   {each}" for each in options)])
    return f"```{{eval-rst}}\n{lines}\n```\n"


def _append(page: Path, text: str) -> None:
    page.write_text(page.read_text(encoding="utf-8") + text, encoding="utf-8")


def build(root: Path, to: Path) -> int:
    """Build the site into the folder `to`; return Sphinx' exit code."""
    sources, html = to / "source", to / "html"
    write_sources(root, sources)
    variables = {"SITE_VERSION": keylane.__version__, "SITE_CLIENT": str(root / "clients" / "python")}
    program = [str(tools_dir() / "docs" / "bin" / "python"), "-m", "sphinx"]
    options = ["-b", "html", "-c", str(root / "tools" / "docs"), "-d", str(to / "doctrees")]
    strict = ["--fail-on-warning", "--quiet"]
    shutil.rmtree(html, ignore_errors=True)
    command = [*program, *options, *strict, str(sources), str(html)]
    done = subprocess.run(command, env={**os.environ, **variables}, check=False)
    if done.returncode:
        return done.returncode
    shutil.copy(html / "README.html", html / "index.html")
    chromium = find_chromium()
    if chromium and (found := find_first(html, _ASKED, chromium)) != _WANTED:
        print(f"the site's search for {_ASKED!r} finds {found!r} first, not {_WANTED!r}", file=sys.stderr)
        return 1
    print(f"The site is in {html}: python -m http.server --directory {html}")
    return 0


def find_first(html: Path, words: str, chromium: str) -> str:
    """Return the first title that the site's own search finds, in a browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"{(html / 'search.html').as_uri()}?q={quote_plus(words)}")
        # It shows one result after the other.
        return page.locator("ul.search > li > a").first.inner_text()


if __name__ == "__main__":
    sys.exit(build(project_root(), project_root() / "build" / "site"))
