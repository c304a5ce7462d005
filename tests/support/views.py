"""Views in tests: events, their windows computed by plain code, and the windows that are read."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tests.servers import own
from tests.support.builders import an_event, load_handler

from keylane.query.span import Span
from keylane.query.views import Window, WindowScan, read_windows
from keylane.state.codec import decode_layout
from keylane.state.lanes import lane_at
from keylane.state.redis_keys import layout_key
from keylane.state.windows import state_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pytest

    from keylane.query.store import ReadTerms, Store


Name = tuple[str, int | None, int | None]
"""Key, start and end of a window."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event. Amounts are in cents, so that sums are exact."""

    user: str
    at_ms: int
    cents: int | None
    state: str
    version: int
    partition: int
    offset: int = -1

    @property
    def value(self) -> bytes:
        fields = {"user": self.user, "at": self.at_ms, "state": self.state, "version": self.version}
        pay = {} if self.cents is None else {"pay": {"amount": self.cents / 100}}
        return json.dumps(fields | pay).encode()


COLUMNS = """
n = "count()"
paid = "count(pay.amount)"
total = "sum(pay.amount)"
least = "min(pay.amount)"
most = "max(pay.amount)"
mean = "avg(pay.amount)"
last = "latest(state)"
highest = "latest(state, by version)"
"""


def columns_of(events: list[Event]) -> dict[str, Any]:
    """The columns of `COLUMNS` over these events."""
    cents = [event.cents for event in events if event.cents is not None]
    mean = None if not cents else round(Decimal(sum(cents)) / 100 / len(cents), 9)
    newest = max(events, key=lambda e: (e.at_ms, e.partition, e.offset))
    highest = max(events, key=lambda e: (e.version, e.partition, e.offset))
    return {
        "n": len(events),
        "paid": len(cents),
        "total": Decimal(sum(cents)) / 100 if cents else None,
        "least": Decimal(min(cents)) / 100 if cents else None,
        "most": Decimal(max(cents)) / 100 if cents else None,
        "mean": mean,
        "last": newest.state,
        "highest": highest.state,
    }


def fixed(events: Iterable[Event], size_ms: int, every_ms: int) -> dict[Name, dict[str, Any]]:
    """Tumbling or hopping windows, by trying every start."""
    found: dict[Name, list[Event]] = {}
    for event in events:
        start = event.at_ms - event.at_ms % every_ms
        while start + size_ms > event.at_ms:
            found.setdefault((event.user, start, start + size_ms), []).append(event)
            start -= every_ms
    return {name: columns_of(those) for name, those in found.items()}


def sessions(events: Iterable[Event], gap_ms: int) -> dict[Name, dict[str, Any]]:
    by_user: dict[str, list[Event]] = {}
    for event in events:
        by_user.setdefault(event.user, []).append(event)
    found = {}
    for user, those in by_user.items():
        those.sort(key=lambda event: event.at_ms)
        current: list[Event] = []
        for event in [*those, None]:
            if current and (event is None or event.at_ms >= current[-1].at_ms + gap_ms):
                found[user, current[0].at_ms, current[-1].at_ms + gap_ms] = columns_of(current)
                current = []
            if event is not None:
                current.append(event)
    return found


def produce(
    kafka: str, topic: str, events: Iterable[Event | tuple[bytes | None, bytes | None]]
) -> list[Event]:
    """Write events, or plain keys and values; returns the events with their offsets."""
    given = list(events)
    messages = own.produce(
        kafka,
        topic,
        (
            (each.user.encode(), each.value, each.partition, each.at_ms)
            if isinstance(each, Event)
            else (*each, 0)
            for each in given
        ),
    )
    return [
        replace(each, partition=message.partition(), offset=message.offset())
        for each, message in zip(given, messages, strict=True)
        if isinstance(each, Event)
    ]


class Query:
    """A warm query function."""

    def __init__(self, nodes: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KEYLANE_REDIS_NODES", nodes)
        monkeypatch.setenv("KEYLANE_LAYOUT_TTL_S", "0")
        monkeypatch.setenv("KEYLANE_STATE_TIMEOUT_MS", "10000")
        self._function = load_handler("query")

    def answer(self, path: str, **query: str) -> dict[str, Any]:
        found: dict[str, Any] = self._function.lambda_handler(
            an_event("GET", path, query=query or None), None
        )
        return found

    def ask(self, path: str, **query: str) -> tuple[int, Any]:
        """Status and document."""
        answer = self.answer(path, **query)
        document = json.loads(answer["body"], parse_float=Decimal, parse_int=_integer)
        return answer["statusCode"], document

    def pages(self, path: str, **query: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        while True:
            status, document = self.ask(path, **query)
            assert status == 200, document
            rows += document["windows"]
            if "next" not in document:
                return rows
            query["cursor"] = document["next"]

    def windows(self, view: str, **query: str) -> dict[Name, dict[str, Any]]:
        rows = self.pages(f"/views/{view}/keys", **{"limit": "1000"} | query)
        return {(row["key"], row.get("start"), row.get("end")): row["values"] for row in rows}

    def whole(self, view: str) -> dict[Name, dict[str, Any]] | None:
        """All windows of a view, once it is there and whole."""
        status, document = self.ask(f"/views/{view}/keys")
        if status != 200:
            # A machine that is too busy for an answer in time is asked again, too.
            passing = {"unknown-view", "lane-building", "state-unavailable"}
            assert document["type"].rsplit(":", 1)[1] in passing, document
            return None
        return self.windows(view)

    def groups(self, view: str) -> dict[str, dict[str, Any]] | None:
        """The columns of each key of a view without windows, once it is whole."""
        found = self.whole(view)
        return found if found is None else {key: columns for (key, _, _), columns in found.items()}

    def counted(self, view: str) -> tuple[int, int, int]:
        """How many records of a view are in windows, by its column `n`, invalid and failed."""
        windows = self.whole(view)
        if windows is None:
            return 0, 0, 0
        _, state = self.ask(f"/views/{view}")
        return (
            sum(int(columns["n"]) for columns in windows.values()),
            state.get("invalid", -1),
            state.get("failed", -1),
        )


def _integer(text: str) -> int | Decimal:
    """Python makes an int of up to 4,300 digits."""
    return int(text) if len(text) < 4_000 else Decimal(text)


class StoredLane:
    """Lane 0 of a view as it was: `restore` takes the lane back to it, as a replica that was behind does."""

    def __init__(self, client: Any, view: str) -> None:
        self._client = client
        layout = decode_layout(client.get(layout_key(state_name(view))))
        self._pattern = f"{{{lane_at(layout, 0, 0).tag.decode()}}}:~{view}:*"
        self._before = {key: client.dump(key) for key in self._keys()}

    def restore(self) -> None:
        for key in self._keys():
            self._client.delete(key)
        for key, data in self._before.items():
            self._client.restore(key, 0, data, replace=True)

    def _keys(self) -> list[bytes]:
        return list(self._client.scan_iter(match=self._pattern, count=1000, target_nodes="primaries"))


def eventually_equal(read: Callable[[], Any], wanted: Any) -> None:
    """Poll until `read` returns what is wanted; otherwise fail with the difference."""
    until = time.monotonic() + own.PATIENCE_S
    while (found := read()) != wanted:
        if time.monotonic() > until:
            assert found == wanted, "see above"
        time.sleep(0.2)


WHOLE = Span()


def all_windows(
    store: Store, view: str, terms: ReadTerms, span: Span = WHOLE, limit: int = 1000
) -> Iterator[Window]:
    """The windows of the keys in a span, `limit` in a page. Raises KeylaneError."""
    after = None
    while True:
        page = read_windows(store, WindowScan(view, span, limit=limit, after=after), terms)
        yield from page.rows
        after = page.next_after
        if after is None:
            return
