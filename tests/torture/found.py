"""Values with fields, questions that are asked of them, and what their answers must be by the log.

What a value has in its fields is worked out here from its JSON alone.
"""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from keylane.query.conditions import EQUAL, PREFIX, RANGE, Asked, Order
from keylane.query.span import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.torture.oracle import KeyLog, Logged
    from tests.torture.reading import Seen

FIELDS = (("n", "number"), ("owner.id", "text"), ("placed", "time"), ("status", "text"), ("tags", "texts"))
INDEXES = (("by_status", ("status", "n")),)
_KINDS = dict(FIELDS)
_STATES, _TAGS, _OWNERS = ("open", "paid", "void"), ("gift", "new", "old", "out"), ("a", "ab", "b", "x" * 70)
_NUMBERS = 100
_PER_RUN = 1_000
"""The numbers of a schedule begin at so many times its seed."""
_BACK_MS = 3_000
_DIGITS = 120
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_ODD = 0.25
"""How many values have something odd."""


def document_with_fields(text: bytes, serial: int, at_ms: int) -> bytes:
    """A value: mostly an object with all fields, at times with one that is missing, or no value of its type.

    `text`: begins with what names the schedule, and so do the values of fields: no other schedule has them.
    """
    source = random.Random(serial)
    run = text.partition(b"-")[0].decode()
    fields: dict[str, Any] = {
        "n": _first_number(run) + source.randrange(_NUMBERS) / 2,
        "owner": {"id": f"{run}-{source.choice(_OWNERS)}{source.choice('cd')}"},
        "placed": at_ms - source.randrange(_BACK_MS),
        "status": f"{run}-{source.choice(_STATES)}",
        "tags": [f"{run}-{tag}" for tag in source.sample(_TAGS, source.randrange(4))],
        "p": text.decode(),
    }
    if source.random() < _ODD:
        name, value = source.choice(_oddities(fields))
        fields |= {name: value}
        if name == "p":
            return text
        if value is ...:
            del fields[name]
    return json.dumps(fields).encode()


def _oddities(fields: dict[str, Any]) -> list[tuple[str, Any]]:
    """What may be odd; `...`: it is missing. That of `p`: the value is not JSON."""
    placed = datetime.fromtimestamp(fields["placed"] / 1000, UTC)
    return [
        *(
            ("n", str(fields["n"])),
            ("n", "many"),
            ("n", 10**400),
            ("n", 10**400 + 1),
            ("n", None),
            ("n", ...),
        ),
        *(("owner", fields["owner"]["id"]), ("owner", {"id": 7}), ("owner", [fields["owner"]])),
        *(("placed", placed.isoformat()), ("placed", "soon"), ("placed", str(fields["placed"]))),
        *(("status", ...), ("status", 1), ("status", [fields["status"]]), ("status", {"is": "open"})),
        *(("tags", "".join(fields["tags"][:1])), ("tags", [1, *fields["tags"]]), ("tags", [fields["tags"]])),
        ("p", ...),
    ]


def _first_number(run: str) -> int:
    return int(run.partition(".")[0]) * _PER_RUN


class Question(NamedTuple):
    """Conditions, all of which a record must meet, and an order; of keys that begin with `prefix`.

    `permitted`: the values of `status` that the caller's rules permit; None for any record.
    """

    asked: tuple[Asked, ...]
    order: Order | None = None
    prefix: str = ""
    permitted: tuple[str, ...] | None = None

    @property
    def span(self) -> Span:
        """The keys that are asked for."""
        return Span.of_prefix(self.prefix.encode())

    def query(self) -> list[tuple[str, str]]:
        """The parameters of a request."""
        found = [(each.name, _written(each)) for each in self.asked]
        if self.prefix:
            found.append(("prefix", self.prefix))
        if self.order is not None:
            found.append(("order", f"{'-' if self.order.is_descending else ''}{self.order.name}"))
        return found

    def is_met(self, logged: Logged) -> bool:
        """Whether the conditions find a record. With an order it must have a value for that."""
        values = _values(logged.value)
        if self.permitted is not None and not set(self.permitted).intersection(values["status"]):
            return False
        named = [each.name for each in self.asked] + ([self.order.name] if self.order else [])
        return all(values[name] for name in named) and all(
            any(_is_in(value, each) for value in values[each.name]) for each in self.asked
        )

    def place(self, logged: Logged) -> Any:
        """Where the order puts a record that is found."""
        return _values(logged.value)[self.order.name][0] if self.order else 0


def _written(asked: Asked) -> str:
    if asked.kind == RANGE:
        return f"{asked.low or ''}..{'<' if asked.below else ''}{asked.high or ''}"
    return f"{asked.low}*" if asked.kind == PREFIX else str(asked.low)


def _is_in(value: Any, asked: Asked) -> bool:
    low, high = (_typed(_KINDS[asked.name], each) for each in (asked.low, asked.high))
    if asked.kind == EQUAL:
        return bool(value == low)
    if asked.kind == PREFIX:
        return bool(value.startswith(low))
    is_below = high is None or (value < high if asked.below else value <= high)
    return is_below and (low is None or low <= value)


@lru_cache(maxsize=100_000)
def _values(value: bytes | None) -> dict[str, list[Any]]:
    """The values of each field: none, one, or those of `texts`."""
    try:
        document = json.loads(value or b"", parse_int=Decimal, parse_float=Decimal)
    except ValueError:
        document = None
    found: dict[str, list[Any]] = {}
    for name, kind in FIELDS:
        of_name = document
        for part in name.split("."):
            of_name = of_name.get(part) if isinstance(of_name, dict) else None
        several = of_name if kind == "texts" and isinstance(of_name, list) else [of_name]
        typed = (_typed(kind, each) for each in several)
        found[name] = [each for each in typed if each is not None]
    return found


def _typed(kind: str, found: Any) -> Any:
    """A value of this kind; None where it is none."""
    if kind in {"text", "texts"}:
        return found if isinstance(found, str) else None
    if isinstance(found, str) and kind == "time" and not _NUMBER.fullmatch(found):
        try:
            when = datetime.fromisoformat(found)
        except ValueError:
            return None
        return Decimal((when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)) / 1000
    if isinstance(found, str) and _NUMBER.fullmatch(found):
        found = Decimal(found)
    if not isinstance(found, Decimal):
        return None
    digits = "".join(map(str, found.as_tuple().digits)).strip("0")
    return found if len(digits) <= _DIGITS else None


def draw_question(source: random.Random, run: str, now_ms: int) -> Question:
    """Any question about the records of a schedule; `run`: what the values of its fields begin with."""
    status = Asked("status", EQUAL, f"{run}-{source.choice(_STATES)}")
    low = _first_number(run) + source.randrange(_NUMBERS // 4)
    numbers = Asked(
        "n", RANGE, str(low), str(low + source.randrange(1, _NUMBERS // 2)), source.random() < 0.5
    )
    placed = Asked("placed", RANGE, str(now_ms - 2 * _BACK_MS), None)
    tag = Asked("tags", EQUAL, f"{run}-{source.choice(_TAGS)}")
    owner = Asked("owner.id", PREFIX, f"{run}-{source.choice(('a', 'ab', 'x' * 70))}")
    number, is_descending = Order("n", source.random() < 0.5), source.random() < 0.5
    return source.choice(
        (
            *(Question((status,)), Question((numbers,), number), Question((status, numbers), number)),
            *(Question((status,), number), Question((status, tag)), Question((owner,))),
            Question((Asked("tags", PREFIX, f"{run}-"), tag)),
            Question((status, placed), Order("placed", is_descending)),
        )
    )


def all_questions(run: str) -> list[Question]:
    """The questions whose answers are compared when everything is at rest."""
    first = _first_number(run)
    numbers = Asked("n", RANGE, str(first), str(first + _NUMBERS))
    return [
        *(Question((Asked("status", EQUAL, f"{run}-{state}"),)) for state in _STATES),
        *(Question((numbers,), Order("n", is_descending)) for is_descending in (True, False)),
        Question((Asked("status", PREFIX, f"{run}-"), numbers), Order("n", is_descending=True)),
        *(Question((Asked("tags", EQUAL, f"{run}-{tag}"),)) for tag in _TAGS[:2]),
        Question((Asked("tags", PREFIX, f"{run}-"), Asked("tags", EQUAL, f"{run}-{_TAGS[2]}"))),
        Question((Asked("owner.id", EQUAL, f"{run}-{'x' * 70}c"), Asked("placed", RANGE))),
        Question((numbers,), Order("n", is_descending=True), f"{run}-3_"),
        Question((Asked("status", EQUAL, f"{run}-{_STATES[0]}"),), prefix=f"{run}-3_"),
    ]


class Scan(NamedTuple):
    """What all pages of a question had, in order, and what of the keys that no page had.

    `rows`: reads of keys. `absent`: for each key that was known a read without a record, by the first page.
    `is_whole`: the pages go to the end.
    """

    question: Question
    rows: Sequence[Seen]
    absent: Sequence[Seen]
    is_whole: bool


def check_order(scan: Scan, found: Sequence[Logged]) -> Iterator[str]:
    """Rows come in order, and none twice. `found`: their records by the log."""
    places = [scan.question.place(each) for each in found]
    is_descending = bool(scan.question.order and scan.question.order.is_descending)
    if places != sorted(places, reverse=is_descending):
        yield f"{show(scan.question)} gives {[str(each) for each in places]}"
    at = [(row.key, each.partition, each.offset) for row, each in zip(scan.rows, found, strict=True)]
    if len(set(at)) < len(at):
        yield f"{show(scan.question)} has a row twice: {at}"


def may_be_unfound(question: Question, key_log: KeyLog, floor: Logged, ended_ms: int) -> bool:
    """Whether a key may be in no page whose lane has certainly reached a record of it.

    That record, or one that may have replaced it meanwhile, does not meet the conditions, or is gone; or its
    row may have moved behind what was read.
    """
    rank = key_log.rank(floor)
    candidates = (each for own in key_log.records.values() for each in own if key_log.rank(each) >= rank)
    values = _values(floor.value)
    return any(
        key_log.is_gone(each, ended_ms) or not question.is_met(each) or _values(each.value) != values
        for each in candidates
    )


def show(question: Question) -> str:
    """The question as a fault names it."""
    text = "find?" + "&".join(f"{name}={value}" for name, value in question.query())
    if question.permitted is None:
        return text
    return f"a caller who may see {' or '.join(question.permitted) or 'none of it'}, by {text},"
