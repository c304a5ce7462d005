"""The fake's snapshots, and its streams of a topic's changes."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import httpx

from keylane_client.answers import TopicVector
from keylane_client.testing.log import FakeRecord, FakeTopic

_POLL_S = 0.005
Row = Callable[[FakeRecord], dict[str, Any]]
IsChosen = Callable[[FakeRecord], bool]


def snapshot_lines(topic: FakeTopic, render: Row, is_chosen: IsChosen) -> httpx.Response:
    """Return all chosen records of the topic as a snapshot: a lane for each partition."""
    at = _position(topic)
    lines: list[dict[str, Any]] = [
        {"begin": {"topic": topic.name, "lanes": topic.partitions, "at": at, "cursor": "0"}}
    ]
    for number in range(topic.partitions):
        own = (each for each in topic.latest_of_all() if each.partition == number and is_chosen(each))
        lines += [render(each) for each in own]
        lane = {"lane": f"{number}.0", "partition": number, "next_offset": topic.end(number), "as_of_ms": 0}
        lines.append({"lane": {**lane, "cursor": str(number)}})
    lines.append({"end": {"at": at}})
    content = "".join(f"{json.dumps(each)}\n" for each in lines).encode()
    return httpx.Response(200, headers={"Content-Type": "application/x-ndjson"}, content=content)


class ChangesBody(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A stream of events that stays open: the changes since a position, then each new one.

    `is_wanted`: whether changes of a key are sent; `is_chosen`: of these a record that is not has `left`.
    """

    def __init__(
        self,
        topic: FakeTopic,
        since: str,
        render: Row,
        is_wanted: Callable[[bytes], bool],
        is_chosen: IsChosen,
    ) -> None:
        self._topic = topic
        self._since = TopicVector.parse(since or _position(topic))
        self._render = render
        self._is_wanted = is_wanted
        self._is_chosen = is_chosen
        self._has_begun = False

    def response(self) -> httpx.Response:
        """Return the response that has this body."""
        return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=self)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self._next()
            time.sleep(_POLL_S)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield self._next()
            await anyio.sleep(_POLL_S)

    def _next(self) -> bytes:
        """Return the events of what was written meanwhile, a comment if nothing was."""
        records = list(self._topic.records)
        changed = {
            each.key: None
            for each in records
            if each.key
            and self._is_wanted(each.key)
            and each.offset >= self._since.next_offsets[each.partition]
        }
        if len(records) == sum(self._since.next_offsets.values()) and self._has_begun:
            return b":\n\n"
        self._has_begun = True
        self._since = TopicVector.parse(_position(self._topic, records))
        events = "".join(self._event(key) for key in changed)
        return f"{events}id: {self._since}\n\n".encode()

    def _event(self, key: bytes) -> str:
        found = self._topic.latest(key)
        if found is None:
            written = self._topic.history(key)[0]
            name, document = "absent", {**written.document(self._topic), "absent": True}
        else:
            name, document = "record" if self._is_chosen(found) else "left", self._render(found)
        return f"event: {name}\ndata: {json.dumps(document)}\n\n"


def _position(topic: FakeTopic, records: list[FakeRecord] | None = None) -> str:
    records = list(topic.records) if records is None else records
    counts = dict.fromkeys(range(topic.partitions), 0)
    for each in records:
        counts[each.partition] += 1
    return ",".join(f"{number}:{end}" for number, end in counts.items())
