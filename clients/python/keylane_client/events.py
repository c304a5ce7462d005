"""Server-Sent Events from the bytes of a response (WHATWG HTML, 9.2)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event. `id` may be empty."""

    name: str
    id: str
    data: str


class EventParser:
    """Takes bytes as they come; returns the events that they complete. Comments are left out."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, list[str]] = {}

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that end in this chunk."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = []
        for line in lines:
            text = line.decode(errors="replace").rstrip("\r")
            if text:
                name, _, value = text.partition(":")
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
                continue
            if "data" in self._fields:
                found = self._fields
                name, last_id = found.get("event", ["message"])[-1], found.get("id", [""])[-1]
                events.append(ServerEvent(name, last_id, "\n".join(found["data"])))
            self._fields = {}
        return events
