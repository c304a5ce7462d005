"""Values as JSON for Spark's SQL, by the readers' rule: the job's one judge of what is JSON.

Spark's own parser takes a document and what stands behind it, replaces bytes that are not UTF-8, and keeps of
a number what 38 digits or a double hold. So it sees only texts that readers call JSON, with numbers that it
holds: up to 38 digits and 38 places, without an exponent. Any other number is a string of its digits there,
which Spark's casts take for a number too; `with_numbers` makes it one again in a result.

msgspec validates what it skips, and is as strict as Python's parser, which reads what msgspec refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keylane.formats.json_text import MAX_NESTING, NestedTooDeeply, may_be_deep, members, parse_verbatim
from keylane.formats.quick_json import is_surely_json
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane_spark.engine.record_sql import AS_IT_IS, NO_JSON, OTHER, QUOTED, UNREAD
from keylane_spark.rows.change_events import read_event
from keylane_spark.rows.fields import ABSENT, document_shape
from keylane_spark.rows.records import lengths_of

LARGEST_VALUE = 16 * 1024 * 1024
"""Spark is given no larger one: of a value that Kafka has compressed to a kilobyte the JVM's copies may take
all its memory, which ends the job."""
LONGEST_FIELD = 2 + 6 * KEY_LIMIT_BYTES
"""Of a field of a view, in JSON: a key, each character of it escaped. Spark is given no longer one."""
MOST_DIGITS = 38
"""Of Spark's widest decimal, before the point and behind it."""
_ENDLESS = r'(?:^|")\s*[+-]?[\d.]+[eE]-0*[1-9]\d{4}'
"""A string, or a text, that a condition may take for a decimal: Java rounds 1e-10000000 for a minute."""
_DOUBTFUL = rf"(?:^|[:\[,\s])-?(?:[\d.]{{{MOST_DIGITS + 1},}}|[\d.]+[eE])|{_ENDLESS}"
"""May find a number that Spark does not hold in a text, and finds each."""
_is_endless = re.compile(_ENDLESS).search
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*', re.DOTALL)
"""A string or a number of a JSON text."""
_STRING = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?', re.DOTALL)

_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
"""A string, which may be cut off, or a bracket of any text."""

_LARGE_EXPONENT = re.compile(r"[eE][+-]?0*[1-9][0-9]{4}")
"""Of a number that no condition may take for a decimal."""


class JsonColumn(NamedTuple):
    """Of n values. `forms`: int8, see `engine.record_sql`. `rows`, `texts`: string, null where not needed.

    `rows`: the rows of change events, as they have them. `texts`: what Spark reads instead of the value.
    """

    forms: NDArray[np.int8]
    rows: pa.StringArray
    texts: pa.StringArray


def read_json(values: pa.BinaryArray, are_events: NDArray[np.bool_] | None = None) -> JsonColumn:
    """Return the JSON of values; `are_events`: of which of them it is the row of a change event.

    An event without a row is UNREAD: what becomes of it others decide.
    """
    texts = decoded(values)
    documents: list[str | None] = texts.to_pylist()
    rows: dict[int, str | None] = {}
    if are_events is not None:
        for at in np.flatnonzero(are_events).tolist():
            documents[at] = rows[at] = row_of(documents[at])
    forms = np.array([_form_of(document) for document in documents], np.int8)
    if are_events is not None:
        forms[are_events & (forms == NO_JSON)] = UNREAD
    held = held_by_spark(texts, forms, documents)
    return JsonColumn(forms, _sparse(rows, len(values)), held)


def held_by_spark(
    texts: pa.StringArray, forms: NDArray[np.int8], documents: Sequence[str | None]
) -> pa.StringArray:
    """The texts that Spark reads instead of documents, null for most; `forms` says so then.

    `texts`: the values in which the documents are.
    """
    others: dict[int, str | None] = {}
    is_doubtful = np.asarray(pc.fill_null(pc.match_substring_regex(texts, _DOUBTFUL), False))
    for at in np.flatnonzero(is_doubtful).tolist():
        if _is_endless(documents[at] or texts[at].as_py()):
            forms[at] = UNREAD
        elif forms[at] == AS_IT_IS:
            text, forms[at] = _as_spark_holds(documents[at] or "")
            others[at] = None if forms[at] == UNREAD else text
    return _sparse(others, len(texts))


class JsonFields(NamedTuple):
    """The JSON of one field of n values, null where there is none.

    `texts`: as Spark holds it. `written`: as the values have it.
    """

    texts: pa.StringArray
    written: pa.StringArray


def read_fields(
    documents: Sequence[str | None], paths: Sequence[tuple[str, ...]]
) -> tuple[NDArray[np.int8], list[JsonFields]]:
    """Return the forms of texts, and their fields by their paths; what is not JSON has none.

    Without a name a field is the value. msgspec has validated what it has found fields in.
    """
    named = [path for path in paths if path]
    shape, places = document_shape(named)
    decode = msgspec.json.Decoder(shape).decode
    nothing = decode("{}")
    found, alone = [], {}
    for at, text in enumerate(documents):
        document = nothing
        if text is not None:
            try:
                if may_be_deep(text, 0, len(text)):
                    alone[at] = text  # msgspec's bound is another one
                else:
                    document = decode(text)
            except (msgspec.MsgspecError, RecursionError):
                alone[at] = text
        found.append(document)
    whole: list[Any] = list(documents)
    forms = np.array([NO_JSON if text is None else AS_IT_IS for text in documents], np.int8)
    for at, text in alone.items():
        forms[at] = _form_of(text)
        if forms[at] != AS_IT_IS:
            whole[at] = None
    columns = {path: _column(found, path, place) for path, place in zip(named, places, strict=True)}
    columns[()] = whole
    for path in named:
        for at in alone:
            columns[path][at] = _member(whole[at], path)
    return forms, [_fields(columns[path]) for path in paths]


def _column(
    documents: Iterable[Any], path: tuple[str, ...], attributes: Sequence[str]
) -> list[bytes | str | None]:
    for attribute in attributes:
        documents = [getattr(each, attribute, ABSENT) for each in documents]
    if len(attributes) == len(path):
        return [None if each is ABSENT else bytes(each) for each in documents]
    # Another path ends on the way: the documents have this one in what is there.
    outer = [None if each is ABSENT else bytes(each).decode() for each in documents]
    _, (field,) = read_fields(outer, [path[len(attributes) :]])
    inner: list[bytes | str | None] = field.written.to_pylist()
    return inner


def _member(text: str | None, path: Sequence[str]) -> str | None:
    for name in path:
        try:
            text = members(text).get(name) if text else None
        except ValueError:  # it is no object
            return None
    return text


def _fields(found: Sequence[bytes | str | None]) -> JsonFields:
    written = pa.array(found, pa.binary()).cast(pa.string())
    is_doubtful = np.asarray(pc.fill_null(pc.match_substring_regex(written, _DOUBTFUL), False))
    is_doubtful = is_doubtful & (np.asarray(lengths_of(written)) <= LONGEST_FIELD)
    if not is_doubtful.any():
        return JsonFields(written, written)
    texts = written.to_pylist()
    for at in np.flatnonzero(is_doubtful).tolist():
        texts[at], _ = _as_spark_holds(texts[at])
    return JsonFields(pa.array(texts, pa.string()), written)


def with_numbers(document: str, result: str) -> str | None:
    """Return JSON that Spark made of a QUOTED document with its numbers as the document has them.

    None where a string of the document has the same digits, so that nobody can tell which of them it is.
    """
    tokens = _TOKEN.findall(document)
    numbers = {f'"{token}"' for token in tokens if token[0] != '"' and _held(token) is None}
    if numbers.intersection(tokens):
        return None

    def number(found: re.Match[str]) -> str:
        string, is_name = found.groups()
        return found[0] if is_name or string not in numbers else string[1:-1]

    return _STRING.sub(number, result)


def decoded(values: pa.BinaryArray) -> pa.StringArray:
    """The texts, null where a value is not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in values.to_pylist()], pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def row_of(event: str | None) -> str | None:
    """The row of a change event; None: it has none, or is none."""
    try:
        return None if event is None else read_event(event).row
    except ValueError:
        return None


def _form_of(text: str | None) -> np.int8:
    if text is None:
        return NO_JSON
    if is_surely_json(text):
        return AS_IT_IS
    try:
        parse_verbatim(text)
    except NestedTooDeeply:
        return UNREAD  # it may well be JSON
    except ValueError:
        return UNREAD if _is_deep(text) else NO_JSON
    return AS_IT_IS


def _is_deep(text: str) -> bool:
    """Whether a text that is not JSON begins with what is, for a parser that stops there, and is deep."""
    depth = deepest = 0
    for bracket in _BRACKET.findall(text):
        depth += 1 if bracket in "[{" else -1 if bracket in "]}" else 0
        deepest = max(deepest, depth)
    return deepest > MAX_NESTING


def _as_spark_holds(text: str) -> tuple[str, np.int8]:
    """The JSON with numbers that Spark holds, and its form; UNREAD: not for conditions."""
    form = OTHER

    def held(found: re.Match[str]) -> str:
        nonlocal form
        token = found[0]
        if token[0] == '"':
            return token
        number = _held(token)
        if number is not None:
            return number
        if form != UNREAD:
            form = UNREAD if _LARGE_EXPONENT.search(token) else QUOTED
        return f'"{token}"'

    return _TOKEN.sub(held, text), form


def _held(number: str) -> str | None:
    """A number without an exponent; None where Spark does not hold it."""
    try:
        value = Decimal(number)
    except InvalidOperation:  # an exponent beyond 64 bits
        return None
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or not -MOST_DIGITS <= exponent <= MOST_DIGITS:
        return None
    if len(digits) + max(exponent, 0) > MOST_DIGITS:
        return None
    return number if exponent <= 0 and "e" not in number.lower() else format(value, "f")


def _sparse(found: Mapping[int, str | None], count: int) -> pa.StringArray:
    if not any(found.values()):
        return pa.nulls(count, pa.string())
    return pa.array([found.get(at) for at in range(count)], pa.string())
