"""A default is stated once: a change there is one of requests and documents, and pages by hand notice it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.support.builders import a_request

from keylane.api.reads import explore, pages, views
from keylane.api.reads.key import parse_read_key
from keylane.config.functions import QuerySettings
from keylane.config.table import SETTINGS
from keylane_build import openapi
from keylane_build import settings as settings_page
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from pathlib import Path

ROOT = project_root()
LAYER = ROOT / "layers" / "keylane" / "python"
STATED = {
    "docs/http/README.md": ["`KEYLANE_MAX_VALUE_BYTES`, {value_mib:g} MiB by default"],
    "docs/http/read.md": [
        "| `limit` | records on a page: 1 to {page_most:,}, {page:,} by default |",
        "The read waits {wait_s:g} s by default. `Prefer: wait=SECONDS` sets another, {wait_most_s:g} s",
    ],
    "docs/http/kafka.md": [
        "| `limit` | 1 to {topics_most:,}, {topics:,} by default |",
        "| `limit` | records on a page: 1 to {page_most:,}, {page:,} by default |",
        "up to {bytes_most_mib:g} MiB, {bytes_mib:g} MiB by default",
    ],
    "docs/http/write.md": ["It waits at most {write_s:g} s (`KEYLANE_PRODUCE_TIMEOUT_MS`)"],
    "docs/use/python-client.md": [
        "| `wait_s` | how long to wait: {wait_s:g} s by default, {wait_most_s:g} s at most |"
    ],
}
"""Pages that are written by hand, and how they state defaults and bounds."""


def documented(path: str, name: str) -> dict[str, Any]:
    """The schema of a parameter in the OpenAPI document."""
    parameters = openapi.document()["paths"][path]["get"]["parameters"]
    [schema] = [each["schema"] for each in parameters if each["name"] == name]
    return schema


def values() -> dict[str, float]:
    page = documented("/topics/{topic}/keys", "limit")
    topics = documented("/topics", "limit")
    size = documented("/topics/{topic}/partitions/{partition}/records", "max_bytes")
    return {
        "page": page["default"],
        "page_most": page["maximum"],
        "topics": topics["default"],
        "topics_most": topics["maximum"],
        "bytes_mib": size["default"] / 1024**2,
        "bytes_most_mib": size["maximum"] / 1024**2,
        "value_mib": SETTINGS["KEYLANE_MAX_VALUE_BYTES"].default / 1024**2,
        "wait_s": SETTINGS["KEYLANE_WAIT_DEFAULT_MS"].default / 1000,
        "wait_most_s": SETTINGS["KEYLANE_WAIT_MAX_MS"].default / 1000,
        "write_s": SETTINGS["KEYLANE_PRODUCE_TIMEOUT_MS"].default / 1000,
    }


def missing() -> list[str]:
    """The sentences that their page does not have."""
    found = values()
    return [
        f"{page}: {sentence.format(**found)}"
        for page, sentences in STATED.items()
        for sentence in sentences
        if sentence.format(**found) not in (ROOT / page).read_text(encoding="utf-8")
    ]


def seen() -> dict[str, Any]:
    """What requests without a word get, and what is documented."""
    settings = QuerySettings.from_environment({})
    wait = parse_read_key(a_request("GET", "/", query={"min_offset": "1"}), "t", "k", settings).wait
    return {
        "pages": [
            pages.parse_range(a_request("GET", "/"), "t", settings).scan.limit,
            pages.parse_history(a_request("GET", "/"), "t", "k", settings).scan.limit,
            views.parse_windows_of_key(a_request("GET", "/"), "v", "k", settings).scan.limit,
            explore.LIMIT.of(a_request("GET", "/")),
        ],
        "documented": [
            documented(path, "limit")["default"]
            for path in (
                "/topics/{topic}/keys",
                "/topics/{topic}/keys/{key}/history",
                "/views/{view}/keys/{key}",
                "/topics/{topic}/partitions/{partition}/records",
            )
        ],
        "waits_ms": wait.position_ms,
        "page_has_wait": "| `4321` |" in settings_page.page(),
        "missing": missing(),
    }


def seen_after(folder: Path, *changes: tuple[str, str, str]) -> dict[str, Any]:
    """As `seen`, of a copy of the layer in which some lines have changed: file, old text, new text."""
    shutil.copytree(LAYER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in changes:
        changed = folder / "keylane" / file
        text = changed.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} does not state {old!r} once"
        changed.write_text(text.replace(old, new), encoding="utf-8")
    program = "import json; from tests.unit.test_defaults import seen; print(json.dumps(seen()))"
    path = f"{folder}{os.pathsep}{ROOT}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_pages_state_the_defaults_that_are_in_force():
    assert not missing()


def test_a_changed_page_size_or_setting_is_that_of_all_lists_requests_and_documents(tmp_path):
    found = seen_after(
        tmp_path / "layer",
        ("api/http/common_parameters.py", "MOST_PAGE_RECORDS = 100, 1000", "MOST_PAGE_RECORDS = 37, 1000"),
        (
            "config/table.py",
            "        5_000,\n        bounds=(0, None),",
            "        4_321,\n        bounds=(0, None),",
        ),
    )
    assert found["pages"] == found["documented"] == [37] * 4
    assert (seen()["waits_ms"], found["waits_ms"]) == (5_000, 4_321)
    assert found["page_has_wait"]
    assert not seen()["page_has_wait"], "the page had this number before, and the test sees nothing"
    named = [(each.partition(":")[0], "37" in each, "4.321" in each) for each in found["missing"]]
    assert named == [
        ("docs/http/read.md", True, False),
        ("docs/http/read.md", False, True),
        ("docs/http/kafka.md", True, False),
        ("docs/use/python-client.md", False, True),
    ]
