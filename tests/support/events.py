"""Server-Sent Events, as a client of a test reads them."""

from __future__ import annotations

import contextlib
import http.client
import json
from dataclasses import dataclass
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
        fields: dict[str, list[str]] = {}
        while line := self.answer.readline():
            text = line.decode().rstrip("\n")
            if text:
                name, _, value = text.partition(":")
                fields.setdefault(name, []).append(value.removeprefix(" "))
                continue
            if {"event", "id"} & fields.keys():
                self.id = fields.get("id", [self.id])[-1]
                return ReceivedEvent(
                    fields.get("event", [""])[-1], self.id, "\n".join(fields.get("data", []))
                )
            fields = {}
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
