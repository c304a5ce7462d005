"""Reads over HTTP from the standing server, whose requests share their connections to Redis.

An answer does not say by which layout it was read, nor the epoch of its lane. Its watermark is complete as of
its age before the request was sent: that is at most what the lane claims.
"""

from __future__ import annotations

import base64
import json
import random
import time
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from tests.servers.own import CLOCK
from tests.torture.answers import ABSENT, Row, age_in_ms, entry_of, raise_unless_absent, row_at, rows_of
from tests.torture.sources import SERVER, WAIT_MS, Counts, Found, FoundPage, NoAnswer, Page

from keylane.errors import KeylaneError, LaneBuilding, PositionNotReached
from keylane.model.records import Answer, HistoryEntry, Layout, Position, Record, Watermark
from keylane.query.span import Span
from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.torture.found import Question
    from tests.torture.schedule import Shape


TIMEOUT_S = 60
"""Of a request: the server answers each sooner, so one that takes longer is a fault."""
_PREFERRED_S = 20
"""The longest wait that the server grants."""
_PAUSE_S = 0.01
_PLAIN: tuple[str, dict[str, str]] = "", {}
_LATEST = (
    *(_PLAIN,) * 5,
    ("", {"Accept": "application/octet-stream"}),
    ("", {"Prefer": "wait=1"}),
    ("?partial=false", {}),
    ("?envelope=true", {}),
)
"""Queries and headers of reads of one key: most are plain, the others take the server's general way."""


class Reply(NamedTuple):
    """An answer. `began_ms`: the time when its request was sent."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    began_ms: int


class ServerSource:
    """One connection to the server. `shapes`: the topics by name. A problem is raised as its error."""

    name = SERVER

    def __init__(self, port: int, shapes: Mapping[str, Shape], seed: str) -> None:
        self._port = port
        self._shapes = shapes
        self._source = random.Random(seed)
        self._connection: HTTPConnection | None = None

    def latest(self, topic: str, key: bytes, position: Position | None) -> Found:
        """See `Source.latest`. A read that waits asks again while a client would."""
        if position is None:
            query, headers = self._source.choice(_LATEST)
            return self._one(topic, key, query, headers)
        until_s = time.monotonic() + WAIT_MS / 1000
        headers = {"Keylane-Min-Position": str(position), "Prefer": f"wait={_PREFERRED_S}"}
        while True:
            try:
                return self._one(topic, key, "", headers)
            except (LaneBuilding, PositionNotReached):
                if time.monotonic() > until_s:
                    raise
                time.sleep(_PAUSE_S)

    def many(self, topic: str, keys: Sequence[bytes]) -> Mapping[bytes, Found]:
        """See `Source.many`."""
        body = json.dumps({"keys": [key.decode() for key in keys]}).encode()
        reply = self._ask("POST", f"/topics/{topic}/keys:read", topic, body=body)
        rows = rows_of(reply.body, '"records": [')
        if len(rows) != len(keys):
            raise KeylaneError(f"{len(rows)} records of {len(keys)} keys")
        return dict(zip(keys, self._of_rows(topic, keys, rows, reply), strict=True))

    def joined(self, topics: Sequence[str], key: bytes) -> Sequence[Found]:
        """See `Source.joined`."""
        if len(topics) == 1:
            return [self.latest(topics[0], key, None)]
        reply = self._ask("GET", f"/join/{_quote(key)}?topics={','.join(topics)}", topics[0])
        document, text = json.loads(reply.body), reply.body.decode()
        found = []
        for topic in topics:
            name = f'"{topic}": '
            row, _ = row_at(text, text.index(name, text.index('"records": {')) + len(name))
            of_row = self._of_row(topic, key, row, reply, document["watermarks"][topic], document)
            found.append(of_row._replace(is_exact=True, is_of_lane=True))
        return found

    def page(
        self, topic: str, prefix: bytes, after: bytes | None, known: Sequence[bytes], limit: int
    ) -> Page:
        """See `Source.page`."""
        bounds = {"prefix": prefix}
        if after is not None:
            bounds = {"from": after + b"\0", "to": Span.of_prefix(prefix).high or b""}
        asked = {name: base64.urlsafe_b64encode(each).decode() for name, each in bounds.items()}
        query = urlencode({**asked, "key_format": "base64", "limit": limit})
        reply = self._ask("GET", f"/topics/{topic}/keys?{query}", topic)
        document = json.loads(reply.body)
        rows = rows_of(reply.body, '"records": [')
        keys = [row[0]["key"].encode() for row in rows]
        absent = self._of_rows(topic, known, [ABSENT] * len(known), reply)
        found = dict(zip(known, absent, strict=True))
        found |= zip(keys, self._of_rows(topic, keys, rows, reply), strict=True)
        end = None
        if "next" in document:
            # A page may reach further than its last key; what lies between is not known here.
            end = keys[-1] if keys else b""
        return Page({key: each._replace(is_exact=False) for key, each in found.items()}, end)

    def history(self, topic: str, key: bytes) -> tuple[Found, Sequence[HistoryEntry]]:
        """See `Source.history`. Pages claim what the oldest of them does."""
        entries: list[HistoryEntry] = []
        least: Answer | None = None
        cursor: dict[str, str] = {}
        while True:
            query = urlencode({"limit": 1_000, **cursor})
            reply = self._ask("GET", f"/topics/{topic}/keys/{_quote(key)}/history?{query}", topic)
            document = json.loads(reply.body)
            entries += [entry_of(key, *row) for row in rows_of(reply.body, '"records": [')]
            found = self._of_row(topic, key, ABSENT, reply, document["watermarks"], document)
            answer = found.answer
            if least is not None:
                answer = answer._replace(watermark=answer.watermark.least(least.watermark))
            least = answer
            if "next" not in document:
                return found._replace(answer=answer, is_of_lane=True), entries
            cursor = {"cursor": document["next"]}

    def as_of(self, topic: str, key: bytes, at_ms: int) -> Found:
        """See `Source.as_of`."""
        return self._one(topic, key, f"?as_of={at_ms}", {})._replace(is_exact=False)

    def windows(self, view: str, key: bytes) -> Counts:
        """See `Source.windows`."""
        reply = self._ask("GET", f"/views/{view}/keys/{_quote(key)}?limit=1000", view)
        windows = json.loads(reply.body)["windows"]
        return {(each.get("start"), each.get("end")): each["values"]["n"] for each in windows}

    def find(
        self, topic: str, question: Question, known: Sequence[bytes], limit: int, after: Any
    ) -> FoundPage:
        """See `Source.find`."""
        more = [("cursor", after)] if after else []
        query = urlencode([*question.query(), ("limit", limit), *more])
        reply = self._ask("GET", f"/topics/{topic}/find?{query}", topic)
        rows = rows_of(reply.body, '"records": [')
        keys = [row[0]["key"].encode() for row in rows]
        absent = self._of_rows(topic, known, [ABSENT] * len(known), reply)
        found = [each._replace(is_exact=False) for each in self._of_rows(topic, keys, rows, reply)]
        pages = list(zip(keys, found, strict=True)), dict(zip(known, absent, strict=True))
        return FoundPage(*pages, json.loads(reply.body).get("next"))

    def _connect(self) -> HTTPConnection:
        return HTTPConnection(HOST, self._port, timeout=TIMEOUT_S)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _one(self, topic: str, key: bytes, query: str, headers: Mapping[str, str]) -> Found:
        reply = self._ask("GET", f"/topics/{topic}/keys/{_quote(key)}{query}", topic, headers)
        if "envelope" in query and reply.status == 200:
            row = row_at(reply.body.decode(), 0)[0]
            return self._of_row(topic, key, row, reply, {}, row[0])
        at, record = reply.headers.get("keylane-position"), None
        if reply.status == 200 and at:
            position, time_ms = Position.parse(at), int(reply.headers["keylane-timestamp"])
            record = Record(key, reply.body, position.partition, position.offset, time_ms)
        partition, _, next_offset = reply.headers["keylane-watermark"].partition(":")
        age_ms = age_in_ms(reply.headers.get("keylane-age-ms"))
        return Found(self._answer(topic, int(partition), record, int(next_offset), reply.began_ms - age_ms))

    def _of_rows(self, topic: str, keys: Sequence[bytes], rows: Sequence[Row], reply: Reply) -> list[Found]:
        document = json.loads(reply.body)
        return [
            self._of_row(topic, key, row, reply, document["watermarks"], document)
            for key, row in zip(keys, rows, strict=True)
        ]

    def _of_row(
        self,
        topic: str,
        key: bytes,
        row: Row,
        reply: Reply,
        watermarks: Mapping[str, int],
        document: Mapping[str, Any],
    ) -> Found:
        """What a row of a document says of a key. An absent one has the least watermark of its partition."""
        fields, value = row
        shape = self._shapes[topic]
        if not fields.get("absent"):
            if fields["key"] != key.decode():
                raise KeylaneError(f"the answer for {key!r} is of {fields['key']!r}")
            watermark = Position.parse(fields["watermark"])
            record = Record(key, value, fields["partition"], fields["offset"], fields["timestamp"])
            complete_ms = reply.began_ms - age_in_ms(fields.get("age_ms"))
            return Found(self._answer(topic, watermark.partition, record, watermark.offset, complete_ms))
        partition = shape.partition_of(key)
        complete_ms = reply.began_ms - age_in_ms(document.get("age_ms"))
        answer = self._answer(topic, partition, None, watermarks[str(partition)], complete_ms)
        return Found(answer, is_exact=False, is_of_lane=False)

    def _answer(
        self, topic: str, partition: int, record: Record | None, next_offset: int, complete_ms: int
    ) -> Answer:
        shape = self._shapes[topic]
        layout = Layout(topic, shape.partitions, shape.stripes, generation=0, partition_by=shape.partition_by)
        return Answer(layout, partition, record, Watermark(next_offset, 0, complete_as_of_ms=complete_ms))

    def _ask(
        self,
        method: str,
        path: str,
        what: str,
        headers: Mapping[str, str] | None = None,
        *,
        body: bytes | None = None,
    ) -> Reply:
        """Send one request; `what`: its topic or view. An absent key is an answer too."""
        connection = self._connection = self._connection or HTTPConnection(
            HOST, self._port, timeout=TIMEOUT_S
        )
        began_ms = CLOCK.now_ms()
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            data = answer.read()
        except TimeoutError as error:
            self.close()
            raise KeylaneError(f"{method} {path}: no answer within {TIMEOUT_S} s") from error
        except (HTTPException, OSError) as error:
            self.close()
            raise NoAnswer(f"{method} {path}: {error!r}") from error
        names = {name.lower(): value for name, value in answer.getheaders()}
        reply = Reply(answer.status, names, data, began_ms)
        if reply.status != 200:
            raise_unless_absent(reply.body, reply.status, what)
        return reply


def _quote(key: bytes) -> str:
    return quote(key, safe="")
