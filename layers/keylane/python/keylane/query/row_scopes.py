"""What one caller may read: the rules of a scope, by the layout of each topic that is read.

A `Store` with `scopes` reads as if it held the permitted records alone: each read asks its `Reading` whether
what it found is one of them, and takes another record for an absent one. So no route decides on rows.

Keys are judged by their bytes, fields by what the record's envelope has of them; only texts that are cut
there are compared with the value. What can't be judged is not permitted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from keylane.errors import NoJsonObject, OutsideScope, ValueNotDecodable, called
from keylane.formats.json_text import parse_verbatim
from keylane.model.routes import PermissionKind
from keylane.query.conditions import Condition, Drive
from keylane.query.span import Span
from keylane.state import ordered
from keylane.state.field_index import Field, indexes_of, values_at
from keylane.state.ordered import NotOrdered
from keylane.state.scope_keys import intervals_of

if TYPE_CHECKING:
    from keylane.access.scopes import PermittedRows, Scope, Value
    from keylane.formats.projection import Fields
    from keylane.model.records import Layout, Record

    Decode = Callable[[Layout, Record], Record]
    KeysOf = Callable[[Layout, bytes], tuple[bytes, ...]]

ALL_KEYS = (Span(),)
NO_KEYS = Span(b"\0", b"\0")
MOST_DRIVEN = 16
"""Values of a field that lead to a caller's records, one after the other: each takes a round trip."""
MOST_KNOWN = 16
"""Topics of which a caller's rules are kept, by their layouts."""
VIEW = "~"
"""How the names of views begin in the state."""


class PermittedValues(NamedTuple):
    """The values that a field must have one of. `cut`: texts by their form in the index, which is cut."""

    field: Field
    exact: frozenset[bytes]
    cut: dict[bytes, frozenset[str]]

    @classmethod
    def of(cls, field: Field, values: Iterable[Value]) -> PermittedValues:
        """Return the values that the field can have: of another type, they are none of its values."""
        exact: set[bytes] = set()
        cut: dict[bytes, frozenset[str]] = {}
        for value in values:
            text = _text_of(field, value)
            if text is None:
                continue
            try:
                form = field.type.encode(text)
            except NotOrdered:
                continue
            if field.type.is_text and ordered.is_cut(form):
                cut[form] = cut.get(form, frozenset()) | {text}
            else:
                exact.add(form)
        return cls(field, frozenset(exact), cut)

    @property
    def forms(self) -> list[bytes]:
        """The forms in the index that a permitted record has one of."""
        return [*self.exact, *self.cut]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The condition that leads to what has the one value; none where several would each do.

        Of a cut text it leads to what begins so, too.
        """
        if len(self.exact) + sum(map(len, self.cut.values())) != 1:
            return ()
        (form,) = self.forms
        return (Condition(self.field, ordered.equal_to(form), True),)

    @property
    def drive(self) -> Drive | None:
        """The index that leads to what has one of the values; None for many, and where a condition does."""
        if self.conditions or not 0 < len(self.forms) <= MOST_DRIVEN:
            return None
        return Drive.of_values(self.field, self.forms)

    def is_met(self, entries: bytes, document: Callable[[], Any]) -> bool:
        """Return whether a record with these entries has one. `document` returns its value, parsed."""
        found = values_at(entries, self.field.number)
        if not self.exact.isdisjoint(found):
            return True
        texts = [self.cut[form] for form in found if form in self.cut]
        if not texts:
            return False
        parsed = document()
        return any(
            Condition(self.field, ordered.ALL, on_text=each.__contains__).is_met_by(parsed) for each in texts
        )


@dataclass(frozen=True, slots=True)
class Permit:
    """One rule, by a layout. `spans`: of keys' bytes. `where`: all must be met. `fields`: None for all."""

    spans: tuple[Span, ...]
    where: tuple[PermittedValues, ...] = ()
    fields: Fields | None = None

    def has_key(self, key: bytes) -> bool:
        """Return whether the key is one of the rule's."""
        return any(span.has(key) for span in self.spans)

    def has(self, record: Record, document: Callable[[], Any]) -> bool:
        """Return whether the record is one of the rule's."""
        return self.has_key(record.key) and all(each.is_met(record.entries, document) for each in self.where)


class TopicScope:
    """The rules of one caller for one topic: they add up.

    `judges_rows`: whether a rule looks at fields. `hides`: whether what is stored of a permitted record may
    have more than its rule shows, so that it is shown decoded, and nothing else of it.
    """

    def __init__(
        self, layout: Layout, permits: Sequence[Permit], decode: Decode, rules: Sequence[PermittedRows] = ()
    ) -> None:
        self.layout = layout
        self._rules = tuple(rules)
        self.permits = tuple(permits)
        self._spans = tuple(span for each in permits for span in each.spans)
        self._decode = decode
        self.judges_rows = any(each.where for each in permits)
        has_images = layout.options.envelope != "none"
        self.hides = any(each.fields is not None or (each.where and has_images) for each in permits)

    @cached_property
    def incarnation(self) -> int:
        """The topic's incarnation as these rules show it."""
        return self.incarnation_of(self.layout.incarnation)

    def incarnation_of(self, incarnation: int) -> int:
        """Return the incarnation of a topic as these rules show it: what others show, are other records.

        Else a client to whom other rules apply would keep what those before have shown.
        """
        if not incarnation:
            return 0
        rules = sorted(map(_text_of_rule, self._rules))
        digest = hashlib.sha256(repr((incarnation, rules)).encode()).digest()
        return 1 + int.from_bytes(digest[:6], "big")

    def permits_record(self, record: Record) -> bool:
        """Return whether a rule permits a record. Raises RegistryUnavailable, BadConfig."""
        if not self.judges_rows:
            return self.has_key(record.key)
        document = _Document(self.layout, record, self._decode)
        return any(each.has(record, document) for each in self.permits)

    def shown_fields(self, record: Record) -> Fields | None:
        """Return the paths that are shown of a permitted record's value, of all rules; None for all."""
        document = _Document(self.layout, record, self._decode)
        own = [each.fields for each in self.permits if each.has(record, document)]
        shown = [fields for fields in own if fields is not None]
        return (
            None if len(shown) < len(own) else tuple(dict.fromkeys(path for each in shown for path in each))
        )

    @property
    def reads_history(self) -> bool:
        """Whether a rule can judge earlier records: those have no fields in their envelopes."""
        return not self.judges_rows or any(not each.where for each in self.permits)

    def of_history(self) -> TopicScope:
        """Return the rules that can judge earlier records. Raises OutsideScope where there are none."""
        if not self.reads_history:
            raise OutsideScope(
                f"the caller's rules for {called(self.layout.topic)} compare fields, and its earlier records"
                " are kept without them: only the latest ones can be read"
            )
        permits = [each for each in self.permits if not each.where]
        return TopicScope(self.layout, permits, self._decode, self._rules)

    def has_key(self, key: bytes) -> bool:
        """Return whether a rule permits records of a key, whatever else it asks of them."""
        for span in self._spans:  # noqa: SIM110 - each look-up asks, and a generator takes as long again
            if span.has(key):
                return True
        return False

    def drives(self) -> tuple[Drive, ...]:
        """Return the indexes that lead to what a caller's only rule permits; none where conditions do."""
        if len(self.permits) != 1:
            return ()
        return tuple(drive for each in self.permits[0].where if (drive := each.drive) is not None)

    def narrow(self, span: Span) -> tuple[tuple[Condition, ...], Span, bool]:
        """Return further conditions and the span of what is found, and whether they say all of the scope.

        The fields of a caller's only rule are conditions, which may drive an index; its keys narrow the span.
        What is not said so is tested on each record.
        """
        if len(self.permits) != 1:
            return (), span if self.permits else NO_KEYS, False
        (permit,) = self.permits
        conditions = tuple(condition for each in permit.where for condition in each.conditions)
        if len(permit.spans) != 1:
            return conditions, span, False
        is_said = all(each.conditions and not each.cut for each in permit.where)
        return conditions, permit.spans[0].common(span) or NO_KEYS, is_said

    def check_condition(self, field: Field) -> None:
        """Raise OutsideScope for a field that a rule does not show: a condition would tell its values."""
        for permit in self.permits:
            if permit.fields is not None and not any(
                field.path[: len(shown)] == shown for shown in permit.fields
            ):
                raise OutsideScope(
                    f"the caller's rules do not show the field {field.name}: it can be neither a condition"
                    " nor an order",
                    field.name,
                )


class RowScopes:
    """The scope of one caller, by the layouts of what is read; it may serve several requests of theirs.

    `decode`: as `ValueDecoder.decode`, of values as their topics have them. `keys_of`: the keys of records
    that are shown as a rule's key, where a Schema Registry has the schemas of keys; raises BadRequest.
    """

    def __init__(self, scope: Scope, decode: Decode, keys_of: KeysOf) -> None:
        self.scope = scope
        self._decode = decode
        self._keys_of = keys_of
        self._known: dict[str, TopicScope] = {}

    def of(self, layout: Layout) -> TopicScope:
        """Return the rules for a topic or view. Raises OutsideScope where they permit nothing of it."""
        found = self._known.get(layout.topic)
        if found is None or (found.layout is not layout and found.layout != layout):
            found = self._make(layout)
            # Whose keys a registry explains, it may explain otherwise for the next request.
            if layout.options.key_format != "registry":
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                self._known[layout.topic] = found
        return found

    def _make(self, layout: Layout) -> TopicScope:
        topic = layout.topic
        is_view = layout.options.view is not None
        kind, name = (
            (PermissionKind.VIEWS, topic.removeprefix(VIEW)) if is_view else (PermissionKind.READ, topic)
        )
        rules = [rule.rows for rule in self.scope.rules_for(kind, name)]
        faults: list[str] = []
        permits: list[Permit] = []
        for rule in rules:
            try:
                permit = self._permit_of_view(layout, rule) if is_view else self._permit(layout, rule)
            except OutsideScope as error:
                faults.append(str(error))
                continue
            if permit is not None:
                permits.append(permit)
        if not permits and (faults or not rules):
            raise OutsideScope(
                faults[0] if faults else f"no rule of the access policy permits {called(topic)}"
            )
        return TopicScope(layout, permits, self._decode, rules)

    def _permit(self, layout: Layout, rule: PermittedRows) -> Permit | None:
        """Return what a rule permits, None for nothing. Raises OutsideScope where the topic can't say it."""
        fields = {field.name: field for field in indexes_of(layout.options).fields}
        if missing := [name for name, _ in rule.where if name not in fields]:
            raise OutsideScope(
                f"a rule for this caller compares the field {missing[0]!r}, which {called(layout.topic)} does"
                " not have among its fields: nothing of it is shown"
            )
        where = tuple(PermittedValues.of(fields[name], values) for name, values in rule.where)
        spans = self._spans(layout, rule)
        if not spans or not all(each.forms for each in where):
            return None
        paths = None if rule.fields is None else tuple(tuple(each.split(".")) for each in rule.fields)
        return Permit(spans, where, paths)

    def _spans(self, layout: Layout, rule: PermittedRows) -> tuple[Span, ...]:
        if rule.key is None:
            return ALL_KEYS
        found = intervals_of(layout.topic, layout.options, rule.key, partial(self._keys_of, layout))
        return tuple(Span(*interval) for interval in found)

    def _permit_of_view(self, layout: Layout, rule: PermittedRows) -> Permit | None:
        """Return what a rule permits of a view: by its key alone, as windows have no fields of records."""
        if rule.key is None and rule.where:
            raise OutsideScope(
                f"a rule for this caller compares fields, and windows of {called(layout.topic)} have none: it"
                " needs a key"
            )
        spans = self._spans(layout, rule)
        return Permit(spans) if spans else None


class _Document:
    """The parsed value of a record, decoded when it is first asked for; None where it is not JSON."""

    __slots__ = ("_decode", "_found", "_is_read", "_layout", "_record")

    def __init__(self, layout: Layout, record: Record, decode: Decode) -> None:
        self._layout, self._record, self._decode = layout, record, decode
        self._found: Any = None
        self._is_read = False

    def __call__(self) -> Any:
        if not self._is_read:
            self._is_read = True
            try:
                decoded = self._decode(self._layout, self._record)
                self._found = parse_verbatim(decoded.value.decode())
            except (ValueError, ValueNotDecodable, NoJsonObject):
                self._found = None
        return self._found


def _text_of_rule(rule: PermittedRows) -> str:
    """Return what a rule permits as a text; the order of a claim's values makes no difference."""
    where = sorted((name, sorted(map(repr, values))) for name, values in rule.where)
    return repr((rule.key, where, None if rule.fields is None else sorted(rule.fields)))


def _text_of(field: Field, value: Value) -> str | None:
    """Return a value as a request would write it; None where it is not one of the field's type."""
    kind = type(value)
    if field.type.is_text:
        return value if isinstance(value, str) else None
    if field.kind == "boolean":
        return str(value).lower() if kind is bool else None
    if kind is int or kind is float:
        return repr(value)
    # A time may be a text; a text of digits is none of a number's values.
    return value if isinstance(value, str) and field.kind != "number" else None
