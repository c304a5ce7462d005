"""The positions that a session has written, so that its reads can wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane_client.encoding import Key, encode_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from keylane_client.answers import Position


class Ledger:
    """The last position of each key that a session wrote: one entry for each key, for the session's life."""

    def __init__(self) -> None:
        self._positions: dict[str, dict[bytes, Position]] = {}

    def note(self, topic: str, key: Key, position: Position) -> None:
        """Remember a write. A later one in the same partition replaces it, and so does one in another."""
        written = self._positions.setdefault(topic, {})
        data = encode_key(key)
        known = written.get(data)
        if known is None or known.partition != position.partition or known.offset < position.offset:
            written[data] = position

    def position_of(self, topic: str, key: Key) -> Position | None:
        """Return the position that a read of the key must wait for."""
        return self._positions.get(topic, {}).get(encode_key(key))

    def missing(
        self, topic: str, is_wanted: Callable[[bytes], bool], watermarks: Mapping[int, int]
    ) -> list[tuple[bytes, Position]]:
        """Return the writes of wanted keys that an answer with these watermarks lacks, or may lack.

        One for each partition, the last: a read that waits for it has waited for those before it.
        """
        last: dict[int, tuple[bytes, Position]] = {}
        for key, position in self._wanted(topic, is_wanted):
            is_later = position.partition not in last or last[position.partition][1] < position
            if is_later and watermarks.get(position.partition, 0) <= position.offset:
                last[position.partition] = key, position
        return list(last.values())

    def _wanted(self, topic: str, is_wanted: Callable[[bytes], bool]) -> Iterable[tuple[bytes, Position]]:
        return (each for each in self._positions.get(topic, {}).items() if is_wanted(each[0]))
