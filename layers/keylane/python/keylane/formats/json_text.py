"""JSON by RFC 8259, which has no NaN and no Infinity."""

import json
import math
import re
import sys
from collections.abc import Iterator
from typing import Any

MAX_NESTING = 1_000
"""Levels of arrays and objects in a document, as Jackson takes them: Kafka's Java tools parse with it."""
_RECURSION_LIMIT = 4 * MAX_NESTING
INTEGER = re.compile(r"-?[0-9]{1,40}")
"""A text that may be asked for as an integer."""
BOOLEANS = {"true": True, "false": False}


class NestedTooDeeply(ValueError):
    """A document with more than MAX_NESTING levels."""

    def __init__(self) -> None:
        super().__init__(f"is nested deeper than {MAX_NESTING:,} levels")


def no_constant(name: str) -> None:
    """Raise ValueError, as `parse_constant` of a JSON decoder."""
    raise ValueError(f"{name} is not JSON")


def finite(text: str) -> float:
    """The number, as `parse_float` of a JSON decoder. Raises ValueError for one beyond a double's range."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


_decoder = json.JSONDecoder(parse_constant=no_constant, parse_float=finite)
_SPACE = re.compile(r"[ \t\r\n]*")
_BYTE_ORDER_MARK = "\ufeff"
"""Removed here: the codec that removes it is in Python, and takes three times as long as UTF-8's."""


def parse(data: bytes) -> Any:
    """Parse a document in UTF-8, with or without a byte order mark.

    Raises NestedTooDeeply, and ValueError where it is not valid JSON.
    """
    text = data.decode().removeprefix(_BYTE_ORDER_MARK)
    _allow_nesting()
    try:
        document = _decoder.decode(text)
    except RecursionError:
        raise NestedTooDeeply from None
    if text.count("[") + text.count("{") > MAX_NESTING:
        _check_nesting(document)
    return document


class Digits(str):
    """A number as the document has it."""

    __slots__ = ()


_verbatim = json.JSONDecoder(parse_float=Digits, parse_int=Digits, parse_constant=no_constant)


def parse_verbatim(text: str) -> Any:
    """Parse a document whose numbers become Digits, however many they have.

    Raises ValueError where it is not valid JSON, or is nested much deeper than MAX_NESTING.
    """
    _allow_nesting()
    try:
        return _decode(_verbatim, text)
    except RecursionError:
        raise NestedTooDeeply from None


def parse_stream(data: bytes) -> Iterator[Any]:
    """Parse documents that follow one another, with or without white space between them; else as `parse`.

    The documents before a faulty one are returned.
    """
    text = data.decode().removeprefix(_BYTE_ORDER_MARK)
    _allow_nesting()
    begin = _after_space(text, 0)
    while begin < len(text):
        try:
            document, end = _decoder.raw_decode(text, begin)
        except RecursionError:
            raise NestedTooDeeply from None
        if text.count("[", begin, end) + text.count("{", begin, end) > MAX_NESTING:
            _check_nesting(document)
        yield document
        begin = _after_space(text, end)


def _after_space(text: str, index: int) -> int:
    found = _SPACE.match(text, index)
    return found.end() if found else index


def _allow_nesting() -> None:
    if sys.getrecursionlimit() < _RECURSION_LIMIT:
        # It stays: Python counts each level of C's parser and encoder, which writes the value again later.
        sys.setrecursionlimit(_RECURSION_LIMIT)


def _check_nesting(document: Any) -> None:
    nodes, depth = [document], 0
    while nodes := [node for node in nodes if isinstance(node, dict | list)]:
        depth += 1
        if depth > MAX_NESTING:
            raise NestedTooDeeply
        nodes = [child for node in nodes for child in (node.values() if isinstance(node, dict) else node)]


# Numbers are not converted: however many digits they have, only validity matters.
_json = json.JSONDecoder(parse_float=len, parse_int=len, parse_constant=no_constant)
_scan_once = _json.scan_once  # type: ignore[attr-defined]
"""What `raw_decode` calls and adds half of its time to; it is not documented. A test finds its absence."""


def is_json(text: str) -> bool:
    """Whether the text is valid JSON, nested no deeper than Python can parse."""
    try:
        _decode(_json, text)
    except (ValueError, RecursionError):
        return False
    return True


def _decode(decoder: json.JSONDecoder, text: str) -> Any:
    """As `decode`, in half its time for an object without white space around it, as most values are."""
    try:
        if text[:1] == "{":
            document, end = decoder.scan_once(text, 0)  # type: ignore[attr-defined]  # see `_scan_once`
            if end == len(text):
                return document
        return decoder.decode(text)
    except StopIteration:
        raise ValueError("it is not valid JSON") from None


def members(text: str) -> dict[str, str]:
    """Return the members of a JSON object: each value's text, as the document has it.

    Of two members with one name it is the last. Raises ValueError where the text is not a JSON object.
    """
    found: dict[str, str] = {}
    at = _after_space(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError("it is not a JSON object")
    at = _after_space(text, at + 1)
    has_more = text[at : at + 1] != "}"
    try:
        while has_more:
            name, begin, end = _scan_member(text, at)
            found[name] = text[begin:end]
            at = _after_space(text, end)
            if has_more := text[at : at + 1] == ",":
                at = _after_space(text, at + 1)
    except (StopIteration, ValueError):
        raise ValueError("it is not valid JSON") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if text[at : at + 1] != "}" or _after_space(text, at + 1) < len(text):
        raise ValueError("it is not valid JSON")
    return found


def _scan_member(text: str, at: int) -> tuple[str, int, int]:
    """Return a member's name, and where its value begins and ends."""
    name, end = _scan_once(text, at)
    colon = _after_space(text, end)
    if text[at] != '"' or text[colon : colon + 1] != ":":
        raise ValueError
    begin = _after_space(text, colon + 1)
    return name, begin, _scan_once(text, begin)[1]
