"""A scope as text, for the context that an authorizer of API Gateway hands to the function behind it.

JSON of ASCII characters, without spaces:

    {"v":1,"caller":NAME,"rules":[{"rule":NAME,"key":[TEXT,IS_PREFIX],"where":[[FIELD,[VALUE,...]],...],
     "fields":[PATH,...],"read":[PATTERN,...],"write":[...],"views":[...],"stamp":HEADER},...]}

What a rule does not have is left out. A text that is anything else is refused: a scope that is read wrongly
would be a wider one.
"""

import json
from typing import Any

from keylane.access.scopes import KeyRule, PermittedRows, Scope, ScopeRule

VERSION = 1
CONTEXT_NAME = "keylaneScope"
"""The scope's name in the authorizer's context, where no client can set anything."""
UNTIL_NAME = "keylaneUntil"
"""There, too: when the token expires, in seconds since 1970."""
_TEXTS = ("read", "write", "views")
_RULE = {"rule", "key", "where", "fields", "stamp", *_TEXTS}


def encode_scope(scope: Scope) -> str:
    """Return the scope as text."""
    rules = [_rule_document(each) for each in scope.rules]
    return json.dumps({"v": VERSION, "caller": scope.caller, "rules": rules}, separators=(",", ":"))


def decode_scope(text: str) -> Scope:
    """Return the scope of a text. Raises ValueError for one that `encode_scope` does not write."""
    try:
        scope = _scope_of(json.loads(text))
        is_ours = encode_scope(scope) == text
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError("the scope of the authorizer can't be read") from error
    if not is_ours:
        raise ValueError("the scope of the authorizer can't be read")
    return scope


def _scope_of(document: dict[str, Any]) -> Scope:
    if document.keys() != {"v", "caller", "rules"} or document["v"] != VERSION:
        raise ValueError("it is of another version")
    return Scope(document["caller"], tuple(map(_rule_of, document["rules"])))


def _rule_document(rule: ScopeRule) -> dict[str, Any]:
    rows = rule.rows
    document: dict[str, Any] = {"rule": rows.rule}
    if rows.key is not None:
        document["key"] = [rows.key.text, rows.key.is_prefix]
    if rows.where:
        document["where"] = [[name, list(values)] for name, values in rows.where]
    if rows.fields is not None:
        document["fields"] = list(rows.fields)
    document |= {name: list(given) for name in _TEXTS if (given := getattr(rule, name))}
    return document if rule.stamp is None else {**document, "stamp": rule.stamp}


def _rule_of(document: dict[str, Any]) -> ScopeRule:
    if not document.keys() <= _RULE:
        raise ValueError("a rule has an unknown part")
    key, fields = document.get("key"), document.get("fields")
    rows = PermittedRows(
        document["rule"],
        None if key is None else KeyRule(*key),
        tuple((name, tuple(values)) for name, values in document.get("where", ())),
        None if fields is None else tuple(fields),
    )
    read, write, views = (tuple(document.get(name, ())) for name in _TEXTS)
    return ScopeRule(rows, read, write, views, document.get("stamp"))
