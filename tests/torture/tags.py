"""A reader with If-None-Match: where the answer is 304, the key must have the value that the reader has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.torture.sources import TERMS

from keylane.api.reads.key import KnownTags, ReadKeyRequest, render_record
from keylane.ports import WaitBudget
from keylane.query.decoding import ValueDecoder
from keylane.query.latest import NO_WAIT, Wait, read_latest

if TYPE_CHECKING:
    from keylane.query.store import Store

_NOT_MODIFIED = 304


class TagReads:
    """One reader that keeps each key's last value with its tag. `wrong`: a sentence for each false 304."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[tuple[str, bytes], tuple[str, bytes | None]] = {}
        self.wrong: list[str] = []
        self.confirmed = 0

    def read(self, topic: str, key: bytes) -> None:
        """Read a key unless it is as it was. Raises KeylaneError."""
        tag, value = self._held.get((topic, key), ("", None))
        known = KnownTags.parse(tag) if tag else None
        wait = Wait(is_known=known.has_answer) if known else NO_WAIT
        request = ReadKeyRequest(topic, key, TERMS, wait, known=known)
        answer = read_latest(self._store, topic, key, TERMS, wait)
        decoder = ValueDecoder(lambda: None, WaitBudget(0, self._store.clock))  # type: ignore[arg-type, return-value]
        response = render_record(answer, request, decoder, self._store.clock.now_ms())
        if answer.record is None:
            return
        new_tag = response.headers["ETag"]
        is_confirmed = response.status_code == _NOT_MODIFIED
        self.confirmed += is_confirmed
        if (is_confirmed or new_tag == tag) and answer.record.value != value:
            self.wrong.append(
                f"{topic}/{key.decode()}: {response.status_code} for {tag}, which was {value!r:.80}; the key "
                f"has {answer.record.value!r:.80} at {answer.record.position}, {new_tag}"
            )
        self._held[topic, key] = new_tag, answer.record.value
