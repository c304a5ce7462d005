r"""How long the compiling of a JSON Schema's patterns takes, from their text: at most so long, or unknown.

`\p{L}{1,60}` has 60 copies of an automaton of a thousand states: 12 ms and 8 MB for eleven characters. The
compiler can't be interrupted, and it holds the interpreter. So an expression's parts are counted before, each
as often as its repetitions, and those of the groups around it, say. What this does not read (sets of classes,
flags besides `i`) is not estimated.
"""

import re
from collections.abc import Iterator
from typing import Any

_CHARACTER_NS, _CLASS_NS, _PROPERTY_NS = 500, 6_000, 220_000
_ANY_CASE = 4
"""How much more an expression costs that ignores case."""
BYTES_PER_US = 1_000
"""What is compiled in a microsecond takes up to 700 bytes."""
_TOKEN = re.compile(
    r"""(?P<unread>\(\?(?!:|=|!|>|<|P<|i\)|i:)|\[\^?\]|\[(?:\\.|[^\]\\])*?(?:\[|&&|--|~~))
    |(?P<open>\((?:\?(?::|<?[=!]|>|P?<\w+>|i\)?|i:))?)
    |(?P<close>\))
    |(?P<times>\{\s*\d*\s*,?\s*\d*\s*\})
    |(?P<class>\[(?:\\.|[^\]\\])*\]|\.|\\[DSWBbdswR])
    |(?P<property>\\[pP](?:\{[^}]*\}|.))
    |(?P<character>\\.|.)""",
    re.VERBOSE | re.DOTALL,
)
_PROPERTY = re.compile(r"\\[pP]")


def compile_ns(*documents: Any) -> int | None:
    """The time of all patterns of schemas, wherever they are in them; None where it is not known."""
    costs = [_pattern_ns(pattern) for pattern in _patterns(documents)]
    return None if None in costs else sum(filter(None, costs))


def _patterns(document: Any) -> Iterator[str]:
    below = [document]
    while below:
        found = below.pop()
        if isinstance(found, dict):
            if isinstance(found.get("pattern"), str):
                yield found["pattern"]
            if isinstance(found.get("patternProperties"), dict):
                yield from found["patternProperties"]
            below.extend(found.values())
        elif isinstance(found, list | tuple):
            below.extend(found)


def _pattern_ns(pattern: str) -> int | None:
    total_ns, last_ns = _CLASS_NS, 0
    outer: list[int] = []
    for token in _TOKEN.finditer(pattern):
        kind, text = token.lastgroup, token[0]
        if kind == "unread":
            return None
        if kind == "open":
            outer.append(total_ns)
            total_ns = last_ns = 0
        elif kind == "close":
            last_ns = total_ns
            total_ns += outer.pop() if outer else 0
        elif kind == "times":
            times = max((int(digits[:9]) for digits in re.findall(r"\d+", text)), default=1)
            total_ns += last_ns * (max(1, times) - 1)
            last_ns *= max(1, times)
        else:
            last_ns = _token_ns(str(kind), text)
            total_ns += last_ns
    return (total_ns + sum(outer)) * (_ANY_CASE if "(?i" in pattern else 1)


def _token_ns(kind: str, text: str) -> int:
    if kind == "property":
        return _PROPERTY_NS
    if kind == "class":
        properties = len(_PROPERTY.findall(text))
        return _CLASS_NS + len(text) * _CHARACTER_NS + properties * _PROPERTY_NS
    return _CHARACTER_NS
