"""The examples of the pages about the TypeScript client: each block is a program of its own."""

from __future__ import annotations

import re

from tests.support.project_files import ROOT

PAGES = ("clients/typescript/README.md", "docs/use/typescript.md")
_BLOCK = re.compile(r"^```ts\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page_blocks() -> dict[str, str]:
    """Return each example by its page and number."""
    return {
        f"{page}-{number}": block
        for page in PAGES
        for number, block in enumerate(_BLOCK.findall((ROOT / page).read_text(encoding="utf-8")))
    }
