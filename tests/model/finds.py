"""Records found by their fields, in a state of the world: a row is found if and only if its record meets the
conditions.

Pages of one row are read with their cursors, by the application's own code and script, on the real Redis.
What must be found is searched among the values of all keys.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.model.job import Broken
from tests.model.log import TOPIC
from tests.model.shards import is_of, kind_of
from tests.support.compressed import value_of

from keylane.errors import LaneBuilding, UnknownTopic
from keylane.query.conditions import EQUAL, RANGE, Asked, Order
from keylane.query.find import count_found, find
from keylane.query.finder import FindScan
from keylane.query.store import ReadTerms
from keylane.state import codec
from keylane.state.field_index import split_entries
from keylane.state.lanes import decode_value, lane_of_key
from keylane.state.ordered import END

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.model.shards import Contents

    from keylane.model.records import Layout
    from keylane.query.store import Store

FIELDS = {"n": "number", "parity": "text", "tags": "texts"}
INDEXES = {"by_parity": ("parity", "n")}
_TERMS = ReadTerms(timeout_ms=60_000)
_MOST_PAGES = 9
_REMEMBERED = 50_000

Document = dict[str, Any]


class _Question(NamedTuple):
    """Conditions and an order, and whether a value meets them."""

    asked: tuple[Asked, ...]
    order: Order | None
    is_met: Callable[[Document], bool]


QUESTIONS = (
    _Question((), Order("n", is_descending=True), lambda _: True),
    _Question((Asked("tags", EQUAL, "all"),), None, lambda _: True),
    _Question((Asked("parity", EQUAL, "even"),), Order("n"), lambda found: found.get("parity") == "even"),
    _Question(
        (Asked("tags", EQUAL, "odd"), Asked("n", RANGE, "1", "3", below=True)),
        None,
        lambda found: "odd" in found["tags"] and 1 <= found["n"] < 3,
    ),
)


@dataclass(slots=True)
class Finds:
    """What was found in states that were looked at: most states have the records of one of them."""

    _known: set[int] = field(default_factory=set)

    def check(self, store: Store, layout: Layout, contents: Contents, keys: list[bytes]) -> None:
        """Raise Broken where a reader that begins with this layout finds anything but what it should."""
        seen = hash((layout, repr(sorted(_what_decides(contents)))))
        if seen in self._known:
            return
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        self._known.add(seen)
        try:
            for question in QUESTIONS:
                _check_question(store, question, contents, keys)
        except (LaneBuilding, UnknownTopic):
            return  # the reader has to wait


def _what_decides(contents: Contents) -> Iterator[tuple[bytes, Any]]:
    for key, (value, _) in contents.items():
        if is_of(key, b"w"):
            watermark = codec.decode_watermark(value)
            yield key, (watermark.superseded, watermark.complete_as_of_ms > 0)
        elif is_of(key, b"vf") or b":layout:" in key:
            yield key, value


def _check_question(store: Store, question: _Question, contents: Contents, keys: list[bytes]) -> None:
    rows, after = [], None
    for _ in range(_MOST_PAGES):
        page = find(
            store, TOPIC, FindScan(question.asked, question.order, 1, after), _TERMS, lambda _, record: record
        )
        rows += page.rows
        after = page.next_after
        if after is None:
            break
    found = [key for key, _ in rows]
    wanted = _search(page.watermarks.layout, question, contents, keys)
    if sorted(found) != sorted(wanted):
        raise Broken(f"by {_show(question)} the keys {found} are found, and not {sorted(wanted)}")
    if question.order is not None:
        numbers = [json.loads(answer.record.value)["n"] for _, answer in rows if answer.record]
        if numbers != sorted(numbers, reverse=question.order.is_descending):
            raise Broken(f"by {_show(question)} the numbers come as {numbers}")
    scan = FindScan(question.asked, question.order, 1)
    count = count_found(store, TOPIC, scan, _TERMS, lambda _, record: record).count
    if count != len(wanted):
        raise Broken(f"by {_show(question)} {count} are counted, and there are {len(wanted)}")


def _search(layout: Layout, question: _Question, contents: Contents, keys: list[bytes]) -> list[bytes]:
    """The keys whose records meet the question."""
    found = []
    for key in keys:
        lane = lane_of_key(layout, key)
        record = decode_value(lane, key, contents.get(lane.value_prefix + key, (None, False))[0], value_of)
        if record is not None and question.is_met(json.loads(record.value)):
            found.append(key)
    return found


def _show(question: _Question) -> str:
    return f"{[each[:4] for each in question.asked]}, {question.order}"


def check_entries(contents: Contents, overdue: set[tuple[bytes, int, bytes]], *, are_kept: bool) -> None:
    """Raise Broken where indexes of fields have not exactly what the envelopes of the records say.

    `overdue`: tag, generation and key of what has expired; the next call removes it from indexes. `are_kept`:
    lanes keep the entries, for the time when their records are gone.
    """
    held: dict[tuple[bytes, int], set[tuple[int, bytes]]] = defaultdict(set)
    said: dict[tuple[bytes, int], set[tuple[int, bytes]]] = defaultdict(set)
    kept: dict[tuple[bytes, int, bytes], bytes] = {}
    live: dict[tuple[bytes, int, bytes], bytes] = {}
    for key, (value, _) in contents.items():
        generation, kind, name = kind_of(key) or (0, b"", b"")
        slot = key[: key.index(b"}")], generation
        if kind == b"v" and (entries := codec.fields_of(value)):
            live[*slot, name] = entries
            said[slot] |= {(number, each + END + name) for number, each in split_entries(entries)}
        elif kind == b"f":
            held[slot] |= {(int(name.split(b".")[2]), member) for member in value}
        elif kind == b"b":
            kept |= {(*slot, each): of for each, of in zip(value[::2], value[1::2], strict=True)}
    for slot in held.keys() | said.keys():
        more = {
            each for each in held[slot] - said[slot] if (*slot, each[1].rpartition(END)[2]) not in overdue
        }
        if more or said[slot] - held[slot]:
            raise Broken(f"indexes of fields have {more}, and lack {said[slot] - held[slot]}")
    wanted = live if are_kept else {}
    if {each: of for each, of in kept.items() if each not in overdue or each in wanted} != wanted:
        raise Broken(f"the entries {kept} are kept, and those of the records are {live}")
