"""Pages that follow cursors: ranges of keys, histories; and raw records up to a partition's end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from keylane_client.answers import HistoryEntry, LogRecord, Record
from keylane_client.context import TopicScope
from keylane_client.errors import HistoryTooShort
from keylane_client.parsing import (
    expect_keylane,
    parse_document,
    parse_history_entry,
    parse_key,
    parse_log_record,
    parse_record,
)
from keylane_client.reads import read_own_writes
from keylane_client.wire import (
    ApiRequest,
    ApiResponse,
    Conversation,
    Items,
    Key,
    Loads,
    Moment,
    Stream,
    encode_key,
    encode_time_bounds,
    key_bounds,
    key_path,
    segment,
)

T = TypeVar("T")
Page = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys that begin with `prefix`, or those from `start` on and below `stop`."""

    prefix: Key | None = None
    start: Key | None = None
    stop: Key | None = None

    def query(self) -> dict[str, str]:
        """Return the range as a query has it."""
        return key_bounds(**{"prefix": self.prefix, "from": self.start, "to": self.stop})

    def has_key(self, key: bytes) -> bool:
        """Return whether the key is in the range."""
        prefix, start, stop = (
            encode_key(each) if each else b"" for each in (self.prefix, self.start, self.stop)
        )
        return key.startswith(prefix) and key >= start and (not stop or key < stop)


def scan(topic: TopicScope, keys: KeyRange, page_size: int | None) -> Stream[Record]:
    """Read the records of a range."""

    def parse_row(row: Page, _: Page) -> Record:
        if row.get("history_too_short"):
            detail = f"the history of key {row['key']!r} is complete from since_ms on"
            problem = {"type": "history-too-short", "detail": detail, "since_ms": row.get("since_ms")}
            raise HistoryTooShort(410, problem, {})
        record = parse_record(row, topic.name)
        if record is None:
            raise TypeError("an absent key in a range")
        return record

    return _range_pages(topic, keys, page_size).stream(parse_row)


def scan_keys(topic: TopicScope, keys: KeyRange, page_size: int | None) -> Stream[str | bytes]:
    """Read the keys of a range."""
    return _range_pages(topic, keys, page_size, keys_only="true").stream(lambda row, _: parse_key(row))


def history(
    topic: TopicScope, key: Key, bounds: tuple[Moment | None, Moment | None], page_size: int | None
) -> Stream[HistoryEntry]:
    """Read a key's history."""
    path, query = key_path(topic.name, key)
    query |= topic.terms.query() | encode_time_bounds(*bounds) | limit_query(page_size)
    send = partial(read_own_writes, topic, is_wanted=encode_key(key).__eq__)
    return Pages(f"{path}/history", query, "records", topic.context.loads, send).stream(parse_history_entry)


def limit_query(page_size: int | None) -> dict[str, str]:
    """Return the size of a page as a query has it."""
    return {} if page_size is None else {"limit": str(page_size)}


def send_once(request: ApiRequest) -> Conversation[ApiResponse]:
    """Send a request for a page as it is."""
    return (yield request)


@dataclass(frozen=True, slots=True)
class Pages:
    """What the pages of a stream have in common. `rows`: the member of a page that has them.

    `cursor`: the parameter that a page's `next` goes into. `send`: how a request for a page is sent.
    """

    path: str
    query: Mapping[str, str]
    rows: str
    loads: Loads
    send: Callable[[ApiRequest], Conversation[ApiResponse]] = send_once
    cursor: str = "cursor"

    def stream(self, parse_row: Callable[[Page, Page], T]) -> Stream[T]:
        """Read pages until one has no `next`; `parse_row` gets a row and its page."""
        query = self.query
        while True:
            page = parse_document((yield from self.send(ApiRequest("GET", self.path, query))), self.loads)
            with expect_keylane():
                rows = [parse_row(row, page) for row in page[self.rows]]
                following = page.get("next")
            yield Items(rows)
            if following is None:
                return
            query = {**self.query, self.cursor: following}


def _range_pages(topic: TopicScope, keys: KeyRange, page_size: int | None, **query: str) -> Pages:
    query |= keys.query() | topic.terms.query_as_of() | limit_query(page_size)
    send = partial(read_own_writes, topic, is_wanted=keys.has_key)
    return Pages(f"/topics/{segment(topic.name)}/keys", query, "records", topic.context.loads, send)


def log(topic: TopicScope, partition: int, offset: int | str, page_size: int | None) -> Stream[LogRecord]:
    """Read raw records up to the partition's present end."""
    while True:
        page, records = yield from read_log(topic, partition, offset, page_size)
        with expect_keylane():
            offset, end = page["next_offset"], page["watermarks"]["high"]
            is_end = offset >= end
        yield Items(records)
        if is_end:
            return


def read_log(
    topic: TopicScope, partition: int, offset: int | str, page_size: int | None
) -> Conversation[tuple[Page, list[LogRecord]]]:
    """Read one page of raw records; return the page, too."""
    path = f"/topics/{segment(topic.name)}/partitions/{partition}/records"
    response = yield ApiRequest("GET", path, {"offset": str(offset)} | limit_query(page_size))
    page = parse_document(response, topic.context.loads)
    with expect_keylane():
        return page, [parse_log_record(each, topic.name) for each in page["records"]]
