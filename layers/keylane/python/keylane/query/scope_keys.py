"""The keys of a rule, as spans of the keys' bytes in one topic.

A rule has keys as callers write them. Its text may have claims in it, which somebody else chose: it is taken
literally, never as JSON. So typed keys of one field are meant by its value; a rule can't name keys of several
fields, which callers write as an object.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from keylane.errors import BadRequest, OutsideScope, called
from keylane.formats.connect_keys import quote
from keylane.query.span import Span
from keylane.state import windows
from keylane.state.json_keys import encode_json, json_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.access.scopes import KeyRule
    from keylane.formats.connect_keys import ConnectKeys
    from keylane.model.records import Layout

FIRST_MS, LAST_MS = -(1 << 63), (1 << 63) - 1


def spans_of(
    layout: Layout, rule: KeyRule, keys_of: Callable[[Layout, bytes], tuple[bytes, ...]]
) -> tuple[Span, ...]:
    """Return the spans of a rule's keys: () where no key of the topic can be one of them.

    `keys_of`: see `RowScopes`. Raises OutsideScope where the topic's keys can't be named by such a rule.
    """
    try:
        text = rule.text.encode()
        if not text and not rule.is_prefix:
            return ()
        if layout.options.view is not None:
            return (_span_of_windows(text, is_prefix=rule.is_prefix),)
        if layout.options.key_format == "registry":
            return _spans_by_schemas(layout, rule, text, keys_of)
        form = json_keys(layout.options)
        if form is None:
            return (Span.of_prefix(text) if rule.is_prefix else _span_of(text),)
        return (_span_of_typed(layout, form, rule),)
    except (UnicodeEncodeError, BadRequest):
        return ()


def _span_of(key: bytes) -> Span:
    return Span(key, key + b"\0")


def _span_of_windows(text: bytes, *, is_prefix: bool) -> Span:
    if not is_prefix:
        return Span(windows.window_key(text, FIRST_MS), windows.window_key(text, LAST_MS) + b"\0")
    span = Span.of_prefix(text)
    return Span(windows.escaped(span.low), None if span.high is None else windows.escaped(span.high))


def _span_of_typed(layout: Layout, form: ConnectKeys, rule: KeyRule) -> Span:
    """Raises OutsideScope, BadRequest."""
    if len(form.fields) > 1:
        raise OutsideScope(
            f"keys of {called(layout.topic)} have several fields, so no rule can name them: a rule for it"
            " compares fields of the values (where)"
        )
    [(name, kind)] = form.fields
    if rule.is_prefix and kind != "string":
        raise OutsideScope(
            f"a rule for this caller has a prefix of keys, and keys of {called(layout.topic)} are of the kind"
            f" {kind}: only whole ones can be named"
        )
    if rule.is_prefix:
        opening = "" if form.is_bare else f"{{{quote(name)}:"
        return Span.of_prefix(f"{form.head}{opening}{quote(rule.text)[:-1]}".encode())
    if form.is_bare or not rule.text.startswith("{"):
        return _span_of(encode_json(form, rule.text.encode()))
    return _span_of(encode_json(form, json.dumps({name: rule.text}).encode()))


def _spans_by_schemas(
    layout: Layout, rule: KeyRule, text: bytes, keys_of: Callable[[Layout, bytes], tuple[bytes, ...]]
) -> tuple[Span, ...]:
    """Raises OutsideScope, BadRequest."""
    if rule.is_prefix:
        raise OutsideScope(
            f"a rule for this caller has a prefix of keys, and keys of {called(layout.topic)} begin with the"
            " id of their schema: only whole ones can be named"
        )
    # It would be taken for an object of the key's fields.
    if rule.text.startswith("{"):
        return ()
    return tuple(_span_of(key) for key in keys_of(layout, text))
