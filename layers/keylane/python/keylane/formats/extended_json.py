"""MongoDB's extended JSON, which has its types as objects, as plain JSON.

    {"$oid": "596e..."}                  "596e..."      also $symbol, $uuid
    {"$numberLong": "7"}                 7              also $numberInt, and $numberDouble of a finite number
    {"$numberDecimal": "12.50"}          "12.50"        digits as they are; also "NaN" and "Infinity"
    {"$date": 1577836800000}             1577836800000  or the time of ISO 8601 that is there
    {"$binary": "YQ==", "$type": "00"}   "YQ=="         also the form with `base64` and `subType`

What else there is ($timestamp, $regularExpression, $minKey, ...) stays as it is. Strict, canonical and
relaxed forms are read. The types are those that Debezium gives documents that it unwraps.

Source: the specification of MongoDB Extended JSON v2, and "Strict mode" of v1.
"""

import re

_SPACE = r"[ \t\r\n]*+"
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_INTEGER = r"-?(?:0|[1-9][0-9]*+)"
_NUMBER = _INTEGER + r"(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"


def _object(*members: tuple[str, str]) -> str:
    inside = f"{_SPACE},".join(f'{_SPACE}"{name}"{_SPACE}:{_SPACE}{value}' for name, value in members)
    return rf"\{{{inside}{_SPACE}\}}"


PATTERNS = (
    _object((r"\$number(?:Int|Long|Double)", f'"({_NUMBER})"')),
    _object((r"\$(?:oid|symbol|uuid|numberDecimal|numberDouble|date)", f"({_STRING}|{_INTEGER})")),
    _object((r"\$binary", f"({_STRING})"), (r"\$type", _STRING)),
    _object((r"\$binary", _object(("base64", f"({_STRING})"), ("subType", _STRING)))),
)
"""What is replaced by its group, one after the other; Java's expressions read them, too. In a text that is
JSON none can begin within a string: the next quotation mark would end it."""
_COMPILED = [re.compile(pattern) for pattern in PATTERNS]


def to_plain(text: str) -> str:
    """Return the plain JSON of a document. What it has besides such objects stays character by character."""
    if '"$' in text:
        for pattern in _COMPILED:
            text = pattern.sub(r"\1", text)
    return text
