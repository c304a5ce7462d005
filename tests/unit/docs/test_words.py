"""Words that the project has others for, in code and documents: see docs/contribute/style.md."""

from __future__ import annotations

import re

from tests.support.project_files import ROOT, project_files

BANNED = ("anew", "fate", "gravest", "parcel", "patience", "side process", "side program", "spelling", "told")
"""Those that are wrong wherever they stand; most others have a meaning that is right."""
STYLE = ROOT / "docs/contribute/style.md"
LEFT_OUT = (STYLE, ROOT / "CHANGELOG.md")
SUFFIXES = (".py", ".lua", ".md", ".ts")


def banned_words(text: str) -> list[str]:
    return re.findall(rf"\b(?:{'|'.join(BANNED)})s?\b", text)


def test_code_and_documents_have_no_banned_word():
    found = {}
    for suffix in SUFFIXES:
        for path in project_files(suffix):
            within = path.relative_to(ROOT)
            is_test = {"tests", "node_modules"} & set(within.parts)
            if path not in LEFT_OUT and not is_test:
                words = banned_words(path.read_text(encoding="utf-8"))
                found |= {str(within): words} if words else {}
    assert not found


def test_a_banned_word_is_found_and_one_that_contains_it_is_not():
    assert banned_words("It was told of fates, and of a parcel.") == ["told", "fates", "parcel"]
    assert not banned_words("untold fateful patient")
