"""What one caller may write: records whose keys a rule permits, with the caller's name in a header."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from keylane.errors import KeyUnreadable, OutsideScope
from keylane.model.routes import PermissionKind
from keylane.produce.readable import key_fault
from keylane.produce.topic_formats import ANYTHING
from keylane.state.scope_keys import intervals_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.access.scopes import PermittedRows, Scope
    from keylane.model.records import NewRecord, Options
    from keylane.produce.topic_formats import TopicFormats

_TYPED = ("{", "\0")
"""How the bytes of typed keys begin: no rule names these where nothing says that a topic's keys are plain."""


def scoped_records(
    scope: Scope, records: Sequence[NewRecord], formats: TopicFormats | None
) -> list[NewRecord]:
    """Return the records as the caller may write them: with the headers that their rules put there.

    A header of that name in a record is replaced, whatever its case. Raises OutsideScope, without a word on
    what there is, if one of them is not permitted: then none is written.
    """
    found: dict[str, Options] = {}
    scoped = []
    for record in records:
        if record.topic not in found:
            found[record.topic] = ANYTHING if formats is None else formats.options_of(record.topic)
        scoped.append(_scoped(scope, record, found[record.topic]))
    return scoped


def _scoped(scope: Scope, record: NewRecord, options: Options) -> NewRecord:
    rules = [
        rule
        for rule in scope.rules_for(PermissionKind.WRITE, record.topic)
        if _has_key(record, rule.rows, options)
    ]
    if not rules:
        raise OutsideScope(
            f"no rule of the access policy permits this caller to write this key of topic {record.topic!r}",
            "key",
        )
    stamps = {rule.stamp.lower(): rule.stamp for rule in rules if rule.stamp is not None}
    if not stamps:
        return record
    own = tuple((name, value) for name, value in record.headers if name.lower() not in stamps)
    name_of_caller = scope.caller.encode("utf-8", "backslashreplace")
    return replace(record, headers=(*own, *((name, name_of_caller) for name in stamps.values())))


def _has_key(record: NewRecord, rows: PermittedRows, options: Options) -> bool:
    """Return whether a rule permits to write a record: by its key alone.

    A rule that compares fields and has no key permits nothing: nothing would keep it from others' records.
    """
    if rows.key is None:
        return not rows.where
    if not record.key or (not options.has_typed_keys and rows.key.text.startswith(_TYPED)):
        return False
    found = intervals_of(record.topic, options, rows.key, lambda _: _refuse(record.topic))
    is_one = any(interval.has(record.key) for interval in found)
    # A key that begins as the rule says may have a name twice: others would take it for somebody else's.
    if is_one and options.has_typed_keys and (fault := key_fault(record.key, options)):
        raise KeyUnreadable(record.topic, fault)
    return is_one


def _refuse(topic: str) -> tuple[bytes, ...]:
    raise OutsideScope(
        f"keys of topic {topic!r} are of a Schema Registry: no rule with a key permits to write them"
    )
