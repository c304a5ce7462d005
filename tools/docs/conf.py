"""Sphinx's settings for the site of the documents. `keylane_build.site` writes the sources and starts it."""

import os
import re
import sys
from pathlib import Path
from typing import Any

from sphinx.search.en import SearchEnglish  # type: ignore[import-not-found]

sys.path.insert(0, os.environ["SITE_CLIENT"])

project = "Keylane"
version = release = os.environ["SITE_VERSION"]
copyright = "the Keylane contributors, Apache-2.0"  # noqa: A001 - Sphinx's name

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "README"
exclude_patterns: list[str] = []

# The pages are read on GitHub, too: its anchors of headings, and nothing that it does not know.
myst_heading_anchors = 6
# Answers in the pages are shortened with "...", which is not JSON.
suppress_warnings = ["misc.highlighting_failure"]

# The client's docstrings quote code with single backticks.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_mock_imports = ["botocore"]
python_use_unqualified_type_names = True
add_module_names = False

html_theme = "furo"
html_title = f"Keylane {version}"
html_favicon = "../../clients/console/icon.svg"
html_static_path: list[str] = []
html_copy_source = False
html_show_sphinx = False
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
# Without these words "own kafka" would be a search for Kafka.
SearchEnglish.stopwords = SearchEnglish.stopwords - {"own", "your"}
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f4fb8", "color-brand-content": "#1f4fb8"},
    "dark_css_variables": {"color-brand-primary": "#8ab4ff", "color-brand-content": "#8ab4ff"},
}


def _draw_trees(_app: Any, what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """The docstring of a module has its tree of classes drawn below its first line."""
    if what == "module":
        lines[1:] = ["", "::", "", *(f"   {each}" for each in lines[1:])]


_CONVERSATION = re.compile(r"^~?[\w.]*Generator\[~?[\w.]*ApiRequest, ~?[\w.]*ApiResponse, (.*)\]$")
_STREAM = re.compile(r"^~?[\w.]*Generator\[.*Items\[(.*)\], ~?[\w.]*ApiResponse, .*\]$")
_CALLS = re.compile(r"~?[\w.]*\b(Topic|View|Service)Calls\b")


def _name_results(
    _app: Any, _what: str, name: str, _object: Any, _options: Any, signature: str, result: str | None
) -> tuple[str, str | None]:
    """A client's methods are conversations, stated once for both clients: a caller sees their results."""
    if not result:
        return signature, result
    is_async = ".Async" in name
    if found := _STREAM.match(result):
        return signature, f"{'AsyncIterator' if is_async else 'Iterator'}[{found[1]}]"
    if found := _CONVERSATION.match(result):
        return signature, found[1]
    if found := _CALLS.search(result):
        of_service = "Batching" if name.endswith("batching") else "Session"
        result = f"{'Async' * is_async}{of_service if found[1] == 'Service' else found[1]}"
    return signature, result


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("autodoc-process-signature", _name_results)
    app.connect("autodoc-process-docstring", _draw_trees)
