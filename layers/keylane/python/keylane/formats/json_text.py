"""JSON by RFC 8259, which has no NaN and no Infinity, nested no deeper than MAX_NESTING levels.

What is nested deeper is not JSON here, whoever reads it: a body, a value, a document with fields. Python's
own limit stops C's parser before the stack ends, but it depends on who calls; this one does not.
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

MAX_NESTING = 500
"""Levels of arrays and objects: half of Python's limit of 1,000, which counts each level of its parser and of
its encoder, and the calls below them."""
_SHALLOW_CHARACTERS = 2 * MAX_NESTING
"""No longer document is nested deeper: each level has two brackets."""
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


class ExactFloat(float):
    """A number that JSON has with these `digits`, of which the float is the nearest."""

    __slots__ = ("digits",)
    digits: str


def finite_exactly(text: str) -> ExactFloat:
    """As `finite`, with the number's digits."""
    number = ExactFloat(finite(text))
    number.digits = text
    return number


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, as `object_pairs_hook`. Raises ValueError for a name that is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def why_not_json(error: ValueError) -> str:
    """Say what is wrong with a document that can't be parsed, without its text, which may have a secret."""
    match error:
        case json.JSONDecodeError():
            return f"is not valid JSON: {error.msg} at character {error.pos}"
        case UnicodeDecodeError():
            return f"is not UTF-8 at byte {error.start}"
        case NestedTooDeeply():
            return str(error)
    # Python's own words for an integer that it does not read are about its settings.
    fault = "a number has too many digits" if str(error).startswith("Exceeds") else error
    return f"is not valid JSON: {fault}"


compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Renders without spaces, and text as it is."""
decoder = json.JSONDecoder(parse_constant=no_constant, parse_float=finite)
"""Decodes a text by RFC 8259; how deep it may be nested is Python's limit."""
_unambiguous = json.JSONDecoder(
    parse_constant=no_constant, parse_float=finite_exactly, object_pairs_hook=once
)
_SPACE = re.compile(r"[ \t\r\n]*")
_BYTE_ORDER_MARK = "\ufeff"
"""Removed here: the codec that removes it is in Python, and takes three times as long as UTF-8's."""


def parse(data: bytes) -> Any:
    """Parse a document in UTF-8, with or without a byte order mark.

    Raises NestedTooDeeply, and ValueError where it is not valid JSON.
    """
    return _parse_by(decoder, data)


def parse_unambiguous(data: bytes) -> Any:
    """As `parse`, with ExactFloats.

    An object that has a name twice, which readers take differently, is a ValueError, too.
    """
    return _parse_by(_unambiguous, data)


def _parse_by(decoder: json.JSONDecoder, data: bytes) -> Any:
    text = data.decode().removeprefix(_BYTE_ORDER_MARK)
    try:
        document = decoder.decode(text)
    except RecursionError:
        raise NestedTooDeeply from None
    _check_nesting(document, text, 0, len(text))
    return document


class Digits(str):
    """A number as the document has it."""

    __slots__ = ()


_verbatim = json.JSONDecoder(parse_float=Digits, parse_int=Digits, parse_constant=no_constant)


def parse_verbatim(text: str) -> Any:
    """Parse a document whose numbers become Digits, however many they have.

    Raises NestedTooDeeply, and ValueError where it is not valid JSON.
    """
    try:
        document = _decode(_verbatim, text)
    except RecursionError:
        raise NestedTooDeeply from None
    _check_nesting(document, text, 0, len(text))
    return document


def parse_stream(data: bytes) -> Iterator[Any]:
    """Parse documents that follow one another, with or without white space between them; else as `parse`.

    The documents before a faulty one are returned.
    """
    text = data.decode().removeprefix(_BYTE_ORDER_MARK)
    begin = _after_space(text, 0)
    while begin < len(text):
        try:
            document, end = decoder.raw_decode(text, begin)
        except RecursionError:
            raise NestedTooDeeply from None
        _check_nesting(document, text, begin, end)
        yield document
        begin = _after_space(text, end)


def _after_space(text: str, index: int) -> int:
    found = _SPACE.match(text, index)
    return found.end() if found else index


def _check_nesting(document: Any, text: str, begin: int, end: int, depth: int = 0) -> None:
    """Raise NestedTooDeeply for a document in a text, from `begin` to `end`; `depth`: of what it is in."""
    if not may_be_deep(text, begin, end, depth):
        return
    nodes = [document]
    while nodes := [node for node in nodes if isinstance(node, dict | list)]:
        depth += 1
        if depth > MAX_NESTING:
            raise NestedTooDeeply
        nodes = [child for node in nodes for child in (node.values() if isinstance(node, dict) else node)]


def may_be_deep(text: str, begin: int, end: int, depth: int = 0) -> bool:
    """Return whether a part of a text has so many brackets that it may be nested too deeply."""
    if end - begin + 2 * depth <= _SHALLOW_CHARACTERS:
        return False
    return text.count("[", begin, end) + text.count("{", begin, end) + depth > MAX_NESTING


# Numbers are not converted: however many digits they have, only validity matters.
_json = json.JSONDecoder(parse_float=len, parse_int=len, parse_constant=no_constant)
_scan_once = _json.scan_once  # type: ignore[attr-defined]
"""What `raw_decode` calls and adds half of its time to; it is not documented. A test finds its absence."""
_accepts: Callable[[str], bool] | None = None


def ask_first(accepts: Callable[[str], bool]) -> None:
    """Have `is_json` ask a faster parser first: it may refuse what is JSON, and accepts nothing else."""
    global _accepts  # noqa: PLW0603 - of the process, which has the time to import such a parser, or has not
    _accepts = accepts


def is_json(text: str) -> bool:
    """Whether the text is valid JSON, nested no deeper than MAX_NESTING."""
    if _accepts is not None and _accepts(text):
        return True
    try:
        _check_nesting(_decode(_json, text), text, 0, len(text))
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

    Of two members with one name it is the last. Raises ValueError where the text is not a JSON object, or is
    nested deeper than MAX_NESTING.
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
    except (NestedTooDeeply, RecursionError):
        raise ValueError("it is nested too deeply") from None
    except (StopIteration, ValueError):
        raise ValueError("it is not valid JSON") from None
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
    value, end = _scan_once(text, begin)
    _check_nesting(value, text, begin, end, depth=1)
    return name, begin, end
