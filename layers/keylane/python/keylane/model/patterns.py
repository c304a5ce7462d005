"""Matches names with patterns: `*` stands for any characters, everything else for itself."""

import re
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    # Several stars in a row would make the match exponential.
    return re.compile(".*".join(map(re.escape, re.sub(r"\*+", "*", pattern).split("*"))), re.DOTALL)


def fits(pattern: str, name: str) -> bool:
    """Return whether the pattern matches the complete name."""
    return _compiled(pattern).fullmatch(name) is not None


def are_patterns(given: Any) -> bool:
    """Return whether a setting's value is a list of patterns."""
    return isinstance(given, list) and all(isinstance(each, str) and each for each in given)
