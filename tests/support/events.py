"""Server-Sent Events, as a client of a test reads them."""

from __future__ import annotations

import contextlib
import http.client
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

READ_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """An event; its name is empty if it has only an id."""

    name: str
    id: str
    data: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class EventLines:
    """Events from the lines of a stream (WHATWG HTML, 9.2)."""

    def __init__(self) -> None:
        self._fields: dict[str, list[str]] = {}

    def take(self, line: bytes) -> ReceivedEvent | None:
        """Take a line; return the event that ends with it. One without an id has "" there."""
        if text := line.decode().rstrip("\r\n"):
            name, _, value = text.partition(":")
            self._fields.setdefault(name, []).append(value.removeprefix(" "))
            return None
        found, self._fields = self._fields, {}
        if not {"event", "id", "data"} & found.keys():
            return None
        name, id_ = (found.get(field, [""])[-1] for field in ("event", "id"))
        return ReceivedEvent(name, id_, "\n".join(found.get("data", [])))


class EventReader:
    """One stream. `id` is the last one that came, as an EventSource would send it."""

    def __init__(self, url: str, path: str, **headers: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=READ_TIMEOUT_S)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request("GET", path, headers={"Accept": "text/event-stream", **names})
        self.answer = self._connection.getresponse()
        self.id = ""

    def next_any(self) -> ReceivedEvent | None:
        """Return the next event, also one without a name; None at the end of the stream."""
        lines = EventLines()
        while line := self.answer.readline():
            if event := lines.take(line):
                self.id = event.id or self.id
                return replace(event, id=self.id)
        return None

    def next(self) -> ReceivedEvent | None:
        """Return the next event that has a name."""
        while (event := self.next_any()) is not None:
            if event.name:
                return event
        return None

    def close(self) -> None:
        self._connection.close()
        self.answer.close()


@contextlib.contextmanager
def listening(url: str, path: str, **headers: str) -> Iterator[EventReader]:
    """Yield a stream that has begun."""
    reader = EventReader(url, path, **headers)
    try:
        assert reader.answer.status == 200, reader.answer.read()
        yield reader
    finally:
        reader.close()
