"""Names by pattern: `*` stands for any characters, everything else for itself."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    # Several stars in a row would try the same names again and again.
    return re.compile(".*".join(map(re.escape, re.sub(r"\*+", "*", pattern).split("*"))), re.DOTALL)


def fits(pattern: str, name: str) -> bool:
    """Whether the whole name is as the pattern says."""
    return _compiled(pattern).fullmatch(name) is not None
