"""What a listener of changes must have received, by the writes that Kafka has acknowledged.

Each key's records are in its own partition, so offsets are the order of a key's records.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ChangeBook:
    """What a listener has received of each key, and what it still has to. `only`: the key it listens to."""

    name: str
    only: str | None = None
    latest: dict[str, int] = field(default_factory=dict)
    pending: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """By key: offsets, each with the time at which it was acknowledged."""
    received: int = 0

    def acknowledge(self, key: str, offset: int, at_ms: float) -> None:
        """Expect an event of the key that has this record or a newer one."""
        if self.only in (None, key) and self.latest.get(key, -1) < offset:
            self.pending.setdefault(key, []).append((offset, at_ms))

    def receive(self, key: str, offset: int) -> str | None:
        """Note an event that has all records of the key up to an offset; return what is wrong with it."""
        self.received += 1
        before = self.latest.get(key, -1)
        self.latest[key] = max(before, offset)
        left = [each for each in self.pending.pop(key, ()) if each[0] > offset]
        if left:
            self.pending[key] = left
        return f"{self.name}: {key} went back from {before} to {offset}" if offset < before else None

    def overdue(self, before_ms: float) -> list[str]:
        """Return the changes, acknowledged before a time, that were not received; they are not awaited on."""
        late = {
            key: min(offsets)
            for key, waited in self.pending.items()
            if (offsets := [offset for offset, at_ms in waited if at_ms < before_ms])
        }
        for key in late:
            del self.pending[key]
        return [f"{self.name}: {key} at {offset} was not received" for key, offset in late.items()]
