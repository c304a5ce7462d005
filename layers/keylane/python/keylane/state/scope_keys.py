"""The keys of a rule, as intervals of the keys' bytes in one topic.

A rule has keys as answers show them. Its text may have claims in it, which somebody else chose: it is taken
literally, never as JSON. So typed keys of one field are meant by its value, in the one rendering that answers
have: by 07 for the key 7 two callers would share it. A rule can't name keys of several fields, which callers
write as an object.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from keylane.errors import BadRequest, OutsideScope, called
from keylane.formats.connect_keys import quote
from keylane.state import windows
from keylane.state.json_keys import encode_json, json_keys
from keylane.state.ordered import Interval, beginning_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.access.scopes import KeyRule
    from keylane.formats.connect_keys import ConnectKeys
    from keylane.model.records import Options

    KeysOf = Callable[[bytes], tuple[bytes, ...]]

FIRST_MS, LAST_MS = -(1 << 63), (1 << 63) - 1


def intervals_of(topic: str, options: Options, rule: KeyRule, keys_of: KeysOf) -> tuple[Interval, ...]:
    """Return the intervals of a rule's keys: () where no key of the topic can be one of them.

    `keys_of`: the keys of records that are shown so, where a Schema Registry has the schemas of keys; raises
    BadRequest for none. Raises OutsideScope where the topic's keys can't be named by such a rule.
    """
    try:
        text = rule.text.encode()
        if not text and not rule.is_prefix:
            return ()
        if options.view is not None:
            return (_interval_of_windows(text, is_prefix=rule.is_prefix),)
        if options.key_format == "registry":
            return _intervals_by_schemas(topic, rule, text, keys_of)
        form = json_keys(options)
        if form is None:
            return (beginning_with(text) if rule.is_prefix else _of_key(text),)
        return _intervals_of_typed(topic, form, rule)
    except (UnicodeEncodeError, BadRequest):
        return ()


def _of_key(key: bytes) -> Interval:
    return Interval(key, key + b"\0")


def _interval_of_windows(text: bytes, *, is_prefix: bool) -> Interval:
    if not is_prefix:
        return Interval(windows.window_key(text, FIRST_MS), windows.window_key(text, LAST_MS) + b"\0")
    low, high = beginning_with(text)
    return Interval(windows.escaped(low), None if high is None else windows.escaped(high))


def is_shown_as(shown: str | None, text: str) -> bool:
    """Return whether a text is what answers show of a key: its value, or that of its only field, as JSON."""
    if shown is None:
        return False
    value = json.loads(shown, parse_int=str, parse_float=str)
    if isinstance(value, dict) and len(value) == 1:
        [value] = value.values()
    return text == (str(value).lower() if isinstance(value, bool) else value)


def _intervals_of_typed(topic: str, form: ConnectKeys, rule: KeyRule) -> tuple[Interval, ...]:
    """Raises OutsideScope, BadRequest."""
    if len(form.fields) > 1:
        raise OutsideScope(
            f"keys of {called(topic)} have several fields, so no rule can name them: a rule for it compares"
            " fields of the values (where)"
        )
    [(name, kind)] = form.fields
    if rule.is_prefix and kind != "string":
        raise OutsideScope(
            f"a rule for this caller has a prefix of keys, and keys of {called(topic)} are of the kind"
            f" {kind}: only whole ones can be named"
        )
    if rule.is_prefix:
        opening = "" if form.is_bare else f"{{{quote(name)}:"
        return (beginning_with(f"{form.head}{opening}{quote(rule.text)[:-1]}".encode()),)
    is_text = form.is_bare or not rule.text.startswith("{")
    key = encode_json(form, (rule.text if is_text else json.dumps({name: rule.text})).encode())
    return (_of_key(key),) if is_shown_as(form.show(key), rule.text) else ()


def _intervals_by_schemas(topic: str, rule: KeyRule, text: bytes, keys_of: KeysOf) -> tuple[Interval, ...]:
    """Raises OutsideScope, BadRequest."""
    if rule.is_prefix:
        raise OutsideScope(
            f"a rule for this caller has a prefix of keys, and keys of {called(topic)} begin with the id of"
            " their schema: only whole ones can be named"
        )
    # It would be taken for an object of the key's fields.
    if rule.text.startswith("{"):
        return ()
    return tuple(_of_key(key) for key in keys_of(text))
