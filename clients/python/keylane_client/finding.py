"""Records by the fields of their values: what is asked, page by page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from keylane_client.answers import FoundPage, Position, Record
from keylane_client.errors import InvalidArgument
from keylane_client.parsing import (
    expect_keylane,
    parse_age,
    parse_document,
    parse_record,
    parse_watermarks,
)
from keylane_client.reads import position_headers, read_own_writes
from keylane_client.wire import ApiRequest, Conversation, Items, Stream, key_bounds, segment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from keylane_client.context import TopicScope
    from keylane_client.wire import Key

MOST_ON_A_PAGE = 1000


@dataclass(frozen=True, slots=True)
class FindCalls:
    """Records of a topic that meet all conditions. `conditions`: of each field, as the API spells them."""

    topic: TopicScope
    conditions: Mapping[str, Sequence[str]]
    key_prefix: Key | None = None
    order: str | None = None
    most: int | None = None
    records_of_page: int | None = None
    position: Position | None = None
    wait_s: float | None = None

    @property
    def name(self) -> str:
        """Return the topic's name."""
        return self.topic.name

    def order_by(self, field: str) -> FindCalls:
        """Return it ordered by a field, from its highest value on as in `-placed`.

        Records without a value for the field are not found.
        """
        return replace(self, order=field)

    def prefix(self, key: Key) -> FindCalls:
        """Return it for keys that begin with this. With `partition_by`, one lane may have all of them."""
        return replace(self, key_prefix=key)

    def limit(self, most: int) -> FindCalls:
        """Return it with so many records at most; `count` counts all."""
        return replace(self, most=_at_least_one(most))

    def page_size(self, records: int) -> FindCalls:
        """Return it with so many records in a page, 1,000 at most; else 100, or as many as `limit` says."""
        return replace(self, records_of_page=_at_least_one(records))

    def min_position(self, position: Position, *, wait_s: float | None = None) -> FindCalls:
        """Return it for a state that has this position: it is waited for `wait_s` seconds (5, 20 at most)."""
        return replace(self, position=position, wait_s=wait_s)

    def records(self) -> Stream[Record]:
        """Read the records, a page when it is needed.

        A record that is written meanwhile may come again, or not at all, if its place in the order changes.
        """
        left, cursor = self.most, None
        while left is None or left > 0:
            page = yield from self._read_page(cursor, left)
            found = page.records if left is None else page.records[:left]
            yield Items(found)
            if page.next is None:
                return
            left, cursor = None if left is None else left - len(found), page.next

    def page(self, cursor: str | None = None) -> Conversation[FoundPage]:
        """Read one page: the first one, or the one after the page whose `next` is the cursor.

        It may have fewer records than its size, or none, and a `next`: one request looks at 5,000 entries.
        """
        return (yield from self._read_page(cursor, self.most))

    def count(self) -> Conversation[int]:
        """Count the records, in as many requests as it takes."""
        total, cursor = 0, None
        while True:
            document = yield from self._ask({"count": "true"}, cursor)
            with expect_keylane():
                total += int(document["count"])
                cursor = document.get("next")
            if cursor is None:
                return total

    def _read_page(self, cursor: str | None, left: int | None) -> Conversation[FoundPage]:
        sizes = [each for each in (self.records_of_page, left) if each is not None]
        size = {"limit": str(min(*sizes, MOST_ON_A_PAGE))} if sizes else {}
        document = yield from self._ask(size, cursor)
        with expect_keylane():
            records = tuple(self._parse_row(row) for row in document["records"])
            scanned, watermarks = int(document["scanned"]), parse_watermarks(document)
            return FoundPage(records, document.get("next"), scanned, watermarks, parse_age(document))

    def _parse_row(self, row: dict[str, Any]) -> Record:
        record = parse_record(row, self.topic.name)
        if record is None:
            raise TypeError("an absent key among what was found")
        return self.topic.shaped(record)

    def _ask(self, query: dict[str, str], cursor: str | None) -> Conversation[dict[str, Any]]:
        # With its dot a name is that of a field, whatever parameters there are.
        asked = {f".{name}": texts for name, texts in self.conditions.items()}
        query |= self.topic.terms.query() | key_bounds(prefix=self.key_prefix)
        query |= {} if self.order is None else {"order": self.order}
        query |= {} if cursor is None else {"cursor": cursor}
        headers = position_headers(self.position, self.wait_s)
        path = f"/topics/{segment(self.topic.name)}/find"
        # Any write may make a record one that is found, or one that is not.
        response = yield from read_own_writes(
            self.topic, ApiRequest("GET", path, {**asked, **query}, headers), lambda _: True
        )
        return parse_document(response, self.topic.context.loads)


def _at_least_one(number: int) -> int:
    if number < 1:
        raise InvalidArgument(f"{number} records are none: 1 at least")
    return number
