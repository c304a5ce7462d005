"""Conditions on fields: what a request asks for, as intervals of the indexes that a topic has.

A condition is a test of one record: it holds where one of the field's values is in its interval. Texts that
are cut in the index are compared on the record, where the cut form does not decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from keylane.errors import BadRequest, NoFields, ask_meant
from keylane.formats.json_text import parse_verbatim
from keylane.query.span import Span
from keylane.state import ordered
from keylane.state.field_index import KEYS, Field, FieldIndex, FieldIndexes, indexes_of, values_at
from keylane.state.ordered import Interval, NotOrdered

if TYPE_CHECKING:
    from keylane.model.records import Layout, Record

EQUAL, RANGE, PREFIX = "equal", "range", "prefix"


class Asked(NamedTuple):
    """A condition as a request has it. `kind`: EQUAL, RANGE or PREFIX.

    `low`, `high`: texts of values, None where a range is open; the others have `low` alone. `below`: the
    range's `high` is not in it.
    """

    name: str
    kind: str
    low: str | None = None
    high: str | None = None
    below: bool = False


class Order(NamedTuple):
    """The field whose values order the rows, and whether from the highest on."""

    name: str
    is_descending: bool = False


class Condition(NamedTuple):
    """A condition on one of a topic's fields.

    `on_text`: of a cut text, what decides on the record's own text; None where the interval decides.
    """

    field: Field
    interval: Interval
    is_equality: bool = False
    on_text: Callable[[str], bool] | None = None

    def is_met(self, entries: bytes) -> bool:
        """Return whether a record with these entries may meet it: surely without `on_text`."""
        low, high = self.interval
        for value in values_at(entries, self.field.number):
            if low <= value and (high is None or value < high):
                return True
        return False

    def is_met_by(self, document: Any) -> bool:
        """Return whether a document meets it, by its texts."""
        found = document
        for name in self.field.path:
            found = found.get(name) if isinstance(found, dict) else None
        texts = found if isinstance(found, list) else [found]
        return self.on_text is None or any(type(each) is str and self.on_text(each) for each in texts)


@dataclass(frozen=True, slots=True)
class Drive:
    """An index that can lead to the rows, and the interval of it in which they are.

    `prefix`: what its members have before the values of its last field. `is_exact`: its members are the rows
    that are wanted, one for each. `number`: of the condition on its last field whose interval it is.
    `among`: of a caller's rules, the values of which a row has one: intervals of the index in their order,
    which are read one after the other.
    """

    index: FieldIndex
    interval: Interval
    prefix: bytes
    is_exact: bool
    number: int = 0
    among: tuple[Interval, ...] = ()

    @classmethod
    def of_values(cls, field: Field, forms: Iterable[bytes]) -> Drive:
        """Return a field's index, which leads to the records that have one of some values; at least one."""
        among = tuple(map(ordered.equal_to, sorted(forms)))
        index = FieldIndex(field.number, field.name, (field,))
        return cls(index, Interval(among[0].low, among[-1].high), b"", False, among=among)

    @property
    def name(self) -> str:
        """What a cursor calls it: a record with several values has its row at the first in this interval."""
        if self.index is KEYS:
            return "\0"  # a field may be called as it is
        if self.among:
            return f"{self.index.name}\0\0"
        return f"{self.index.name}\0{self.number}" if self.number else self.index.name

    def has(self, value: bytes) -> bool:
        """Return whether a value of the index is one that leads to rows."""
        return any(each.has(value) for each in self.among or (self.interval,))

    def all_bounds(self, *, is_descending: bool, after: bytes | None) -> list[tuple[bytes, bytes]]:
        """Return `bounds` of all intervals with something after this position, in the order of reading."""
        if not self.among:
            return [self.bounds(is_descending=is_descending, after=after)]
        found = []
        for low, high in reversed(self.among) if is_descending else self.among:
            is_begun = after is not None and (high is None or after < high if is_descending else low <= after)
            if after is not None and is_begun and not Interval(low, high).has(after):
                continue  # the position is behind all of it
            own = Drive(self.index, Interval(low, high), self.prefix, self.is_exact)
            found.append(own.bounds(is_descending=is_descending, after=after if is_begun else None))
        return found

    def bounds(self, *, is_descending: bool, after: bytes | None) -> tuple[bytes, bytes]:
        """Return the bounds of ZRANGEBYLEX, or of ZREVRANGEBYLEX, for what comes after this position.

        `after`: a member without `prefix`.
        """
        low = b"[" + self.interval.low if self.interval.low else b"-"
        high = b"+" if self.interval.high is None else b"(" + self.interval.high
        if after is not None and is_descending:
            high = b"(" + self.prefix + after
        elif after is not None:
            low = b"(" + self.prefix + after
        return (high, low) if is_descending else (low, high)


class FieldQuestion(NamedTuple):
    """What a request asks of a topic: rows that meet all conditions, ordered by a field's values."""

    conditions: tuple[Condition, ...]
    order: Field | None
    is_descending: bool
    indexes: FieldIndexes
    of_rules: tuple[Drive, ...] = ()
    """What leads to the records that a caller's rules may permit."""

    def drives(self, span: Span) -> Iterator[Drive]:
        """Yield the indexes that can lead to rows of a span: that of keys, where not all of them are wanted.

        Then those of several fields, and those of one, and at last those of a caller's rules.
        """
        is_of_all_keys = span == Span()
        if not is_of_all_keys:
            yield Drive(KEYS, Interval(span.low, span.high), b"", is_exact=False)
        by_field: dict[int, list[Condition]] = {}
        for condition in self.conditions:
            by_field.setdefault(condition.field.number, []).append(condition)
        count = len(self.conditions)
        for index in reversed(self.indexes.indexes):
            own = [by_field.get(field.number, []) for field in index.fields]
            if not all(own):
                continue  # a record without a value for one of its fields is not in it
            prefix, is_exact = b"", is_of_all_keys
            for before in own[:-1]:
                fixed = next((each for each in before if each.is_equality and each.on_text is None), None)
                if fixed is None:
                    break
                prefix += fixed.interval.low + ordered.END
                is_exact = is_exact and len(before) == 1
            else:
                for number, last in enumerate(own[-1]):
                    is_one = last.is_equality or not index.fields[-1].type.is_many
                    exact = is_exact and is_one and last.on_text is None and count == len(index.fields)
                    exact = exact and len(own[-1]) == 1
                    yield Drive(index, _behind(prefix, last.interval), prefix, exact, number)
        yield from self.of_rules

    def is_met_by(self, record: Record, decode: Callable[[], Record]) -> bool:
        """Return whether a record meets all conditions. `decode` returns it with its value decoded."""
        if not all(condition.is_met(record.entries) for condition in self.conditions):
            return False
        return not any(condition.on_text for condition in self.conditions) or self.has_texts(decode())

    def has_texts(self, record: Record) -> bool:
        """Return whether the texts of a decoded record meet the conditions that no index decides."""
        try:
            document = parse_verbatim(record.value.decode())
        except ValueError:
            return False
        return all(condition.is_met_by(document) for condition in self.conditions)

    def is_in_order(self, drive: Drive) -> bool:
        """Return whether the index's members come in the order that is asked for."""
        return self.order is None or drive.index.fields[-1:] == (self.order,)


def _behind(prefix: bytes, interval: Interval) -> Interval:
    if not prefix:
        return interval
    high = ordered.up_to(prefix[:-1]) if interval.high is None else prefix + interval.high
    return Interval(prefix + interval.low, high)


def question_of(layout: Layout, asked: Sequence[Asked], order: Order | None) -> FieldQuestion:
    """Return what is asked of a topic with this layout.

    Raises NoFields, and BadRequest, which names the topic's fields.
    """
    options = layout.options
    if not options.fields:
        raise NoFields(layout.topic)
    indexes = indexes_of(options)
    conditions = [_condition(indexes, each) for each in asked]
    ordered_by = None
    if order is not None:
        ordered_by = _field(indexes, order.name, "order")
        if ordered_by.type.is_many:
            raise BadRequest(f"{order.name} has several values for a record: it can't be an order", "order")
        if not any(each.field == ordered_by for each in conditions):
            conditions.append(Condition(ordered_by, ordered.ALL))
    if not conditions:
        raise BadRequest(f"give a condition or an order: {_described(indexes)}")
    return FieldQuestion(tuple(conditions), ordered_by, bool(order and order.is_descending), indexes)


def _field(indexes: FieldIndexes, name: str, parameter: str) -> Field:
    found = next((field for field in indexes.fields if field.name == name), None)
    if found is None:
        names = [field.name for field in indexes.fields]
        meant = ask_meant(name, names).removeprefix(": ")
        fault = f"{name[:50]!r} is neither a field nor a parameter;{' ' + meant if meant else ''}"
        raise BadRequest(f"{fault} {_described(indexes)}", parameter)
    return found


def _described(indexes: FieldIndexes) -> str:
    return "the topic has the fields " + ", ".join(f"{field.name} ({field.kind})" for field in indexes.fields)


def _condition(indexes: FieldIndexes, asked: Asked) -> Condition:
    field = _field(indexes, asked.name, asked.name[:50])
    try:
        if asked.kind == PREFIX:
            return _of_prefix(field, asked.low or "")
        if asked.kind == EQUAL:
            return _of_equality(field, asked.low or "")
        return Condition(field, _interval(field, asked))
    except NotOrdered as error:
        raise BadRequest(
            f"{asked.name} is a field of the type {field.kind}: what was given {error}", asked.name
        ) from error


def _of_equality(field: Field, text: str) -> Condition:
    value = field.type.encode(text)
    is_cut = field.type.is_text and ordered.is_cut(value)
    return Condition(field, ordered.equal_to(value), True, text.__eq__ if is_cut else None)


def _of_prefix(field: Field, text: str) -> Condition:
    if not field.type.is_text:
        raise NotOrdered("type", "is a prefix, which only texts have; a range is written 10..20")
    value = ordered.encode_text(text)
    if not ordered.is_cut(value):
        return Condition(field, ordered.beginning_with(value))
    return Condition(field, ordered.equal_to(value), False, lambda found: found.startswith(text))


def _interval(field: Field, asked: Asked) -> Interval:
    encode = field.type.encode
    low, high = b"" if asked.low is None else encode(asked.low), None
    if asked.high is not None:
        last = encode(asked.high)
        high = last if asked.below else ordered.up_to(last)
    if field.type.is_text and any(each and ordered.is_cut(each.removesuffix(b"\1")) for each in (low, high)):
        raise NotOrdered("long", f"is a bound of more than {ordered.TEXT_BYTES} bytes")
    if high is not None and high < low:
        raise NotOrdered("type", "is a range that ends before it begins")
    return Interval(low, high)
