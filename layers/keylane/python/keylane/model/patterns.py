"""Matches names with patterns: `*` stands for any characters, everything else for itself."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    # Several stars in a row would make the match exponential.
    return re.compile(".*".join(map(re.escape, re.sub(r"\*+", "*", pattern).split("*"))), re.DOTALL)


def fits(pattern: str, name: str) -> bool:
    """Return whether the pattern matches the complete name."""
    return _compiled(pattern).fullmatch(name) is not None
