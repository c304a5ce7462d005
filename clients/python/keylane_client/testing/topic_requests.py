"""The fake's routes of a topic."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import httpx

from keylane_client.testing.finding import PARAMETERS, BadQuestion, parse_find
from keylane_client.testing.log import KEY_LIMIT_BYTES, FakeRecord, FakeTopic
from keylane_client.testing.streaming import ChangesBody, IsChosen, snapshot_lines

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = 100
_TYPES = {"json": "application/json", "text": "text/plain; charset=utf-8"}


@dataclass(slots=True)
class FakeFailure(Exception):
    """An answer that is a problem."""

    status: int
    kind: str
    detail: str

    def response(self) -> httpx.Response:
        """Return it as a problem document."""
        document = {
            "type": f"urn:keylane:problem:{self.kind}",
            "title": self.kind,
            "status": self.status,
            "detail": self.detail,
            "instance": f"urn:uuid:{uuid.uuid4()}",
        }
        return httpx.Response(self.status, json=document)


class TopicRequest:
    """A request about a topic."""

    def __init__(self, topic: FakeTopic, request: httpx.Request, *, is_last: bool) -> None:
        self.topic = topic
        self.request = request
        self.query = request.url.params
        self.is_last = is_last

    def answer(self, names: list[str], parts: list[bytes]) -> httpx.Response | None:
        """Return the answer to what comes after the topic's name; None while it is waited for."""
        kind, named = "/".join(names[:1]), len(names) > 1
        key = key_of(parts[1], self.query) if kind == "keys" and named else b""
        number = int(names[1]) if kind == "partitions" and named and names[1].isdecimal() else 0
        routes: dict[str, Callable[[], httpx.Response | None]] = {
            "GET ": self._layout,
            "POST ": self._push,
            "GET count": lambda: self._json(count=len(list(self.topic.latest_of_all()))),
            "GET keys": self._range,
            "GET find": self._find,
            "GET snapshot": lambda: snapshot_lines(self.topic, self._row, self._choice()),
            "GET changes": self._changes,
            "POST keys:read": self._read_many,
            "GET keys/_": lambda: self._read(key),
            "HEAD keys/_": lambda: self._read(key),
            "PUT keys/_": lambda: self._write(key, self.request.content),
            "DELETE keys/_": lambda: self._write(key, None),
            "GET keys/_/history": lambda: self._history(key),
            "GET partitions": self._partitions,
            "GET partitions/_/offsets": lambda: self._offset(number),
            "GET partitions/_/records": lambda: self._log(number),
        }
        shape = "/".join([kind, *("_" for _ in names[1:2]), *names[2:]])
        route = routes.get(f"{self.request.method} {shape}")
        if route is None:
            is_stream = names[-1:] == ["changes"]  # of a key: those are polled
            raise FakeFailure(501, "not-streamed" if is_stream else "not-faked", f"the fake has no {shape}")
        return route()

    def _partitions(self) -> httpx.Response:
        rows = [{"partition": number} for number in range(self.topic.partitions)]
        return httpx.Response(200, json={"partitions": rows})

    def _json(self, **document: Any) -> httpx.Response:
        return httpx.Response(200, json={**document, "watermarks": self.topic.ends(), "age_ms": 0})

    def _write(self, key: bytes, value: bytes | None) -> httpx.Response:
        if len(key) > KEY_LIMIT_BYTES:
            raise FakeFailure(413, "record-too-large", "the key is too long")
        record = self.topic.append(key, value)
        position = {"partition": record.partition, "offset": record.offset}
        return httpx.Response(201, json={**position, "position": f"{record.partition}:{record.offset}"})

    def _push(self) -> httpx.Response:
        results: list[dict[str, Any]] = []
        for each in json.loads(self.request.content)["records"]:
            key, value = (_data(each.get(name)) for name in ("key", "value"))
            if key and len(key) > KEY_LIMIT_BYTES:
                fault = {"error_code": 50002, "error": "the key is too long", "code": "MESSAGE_TOO_LARGE"}
                results.append({"partition": None, "offset": None, **fault, "retriable": False})
                continue
            headers = [(header["name"], _data(header["value"])) for header in each.get("headers", ())]
            record = self.topic.append(key, value, headers, each)
            results.append({"partition": record.partition, "offset": record.offset, "error_code": None})
        return httpx.Response(200, json={"offsets": results})

    def _read(self, key: bytes) -> httpx.Response | None:
        headers, partition = self.request.headers, self.topic.partition_of(key)
        if not self._has_position():
            return None
        found = self.topic.latest(key, _to_ms(self.query.get("as_of", "")))
        fresh = {"Keylane-Watermark": f"{partition}:{self.topic.end(partition)}", "Keylane-Age-Ms": "0"}
        if found is None:
            answer = FakeFailure(404, "key-absent", "there is no record under the key").response()
            answer.headers.update(fresh)
            return answer
        tag = f'"{found.partition}-{found.offset}"'
        if headers.get("if-match", tag) != tag:
            raise FakeFailure(412, "precondition-failed", f"the record is {tag}")
        if headers.get("if-none-match") == tag:
            waits = "prefer" in headers and not self.is_last
            return None if waits else httpx.Response(304, headers={**fresh, "ETag": tag})
        if self.query.get("envelope") == "true":
            return httpx.Response(200, headers=fresh, json=self._row(found))
        row = self._row(found)
        picked = "fields" in self.query and row["value_format"] == "json"
        assert found.value is not None  # noqa: S101 - for the type checker: it is not a tombstone
        named = {
            "ETag": tag,
            "Keylane-Position": row["position"],
            "Keylane-Timestamp": str(found.timestamp_ms),
            "Content-Type": _TYPES.get(row["value_format"], "application/octet-stream"),
        }
        body = json.dumps(row["value"]).encode() if picked else found.value
        return httpx.Response(200, headers={**fresh, **named}, content=body)

    def _has_position(self) -> bool:
        """Return whether the state has the position that the request demands; it is waited for."""
        wanted = self.request.headers.get("keylane-min-position")
        if not wanted:
            return True
        number, offset = map(int, wanted.split(":"))
        if self.topic.end(number) <= offset and self.is_last:
            raise FakeFailure(412, "position-not-reached", f"position {wanted} is not in the state")
        return self.topic.end(number) > offset

    def _row(self, record: FakeRecord) -> dict[str, Any]:
        row = record.document(self.topic)
        if "fields" in self.query and isinstance(row["value"], dict):
            wanted = self.query["fields"].split(",")
            row["value"] = {name: row["value"][name] for name in wanted if name in row["value"]}
        return row

    def _read_many(self) -> httpx.Response:
        asked = json.loads(self.request.content)
        is_base64 = asked.get("key_format") == "base64"
        keys = [base64.b64decode(each) if is_base64 else each.encode() for each in asked["keys"]]
        found = [self.topic.latest(key) for key in keys]
        return self._json(records=[self._row(each) if each else {"absent": True} for each in found])

    def _range(self) -> httpx.Response:
        bounds = {name: _bound(self.query, name) for name in ("prefix", "from", "to")}
        after = base64.b64decode(self.query.get("cursor", ""))
        found = [
            each
            for each in self.topic.latest_of_all(_to_ms(self.query.get("as_of", "")))
            if each.key is not None
            and each.key.startswith(bounds["prefix"])
            and each.key >= bounds["from"]
            and (not bounds["to"] or each.key < bounds["to"])
            and (not after or each.key > after)
        ]
        return self._page([self._row(each) for each in found], [each.key or b"" for each in found])

    def _find(self) -> httpx.Response | None:
        if not self.topic.fields:
            raise FakeFailure(409, "no-fields", "the topic has no fields to find records by")
        try:
            asked = parse_find(self.topic.fields, self.query.multi_items())
        except BadQuestion as error:
            raise FakeFailure(400, "bad-request", str(error)) from error
        if not self._has_position():
            return None
        prefix = _bound(self.query, "prefix")
        records = (each for each in self.topic.latest_of_all() if (each.key or b"").startswith(prefix))
        rows, cursor = asked.rows(records), base64.b64decode(self.query.get("cursor", ""))
        if self.query.get("count") == "true":
            return self._json(count=len(rows), scanned=0)
        rows = [row for row in rows if not cursor or asked.is_behind(row[0], cursor)]
        return self._page([self._row(each) for each, _ in rows], [end for _, end in rows], scanned=len(rows))

    def _choice(self) -> IsChosen:
        """Return which records the prefix and the conditions choose."""
        prefix, query = _bound(self.query, "prefix"), self.query.multi_items()
        try:
            asked = parse_find(self.topic.fields, query) if _has_conditions(query) else None
        except BadQuestion as error:
            raise FakeFailure(400, "bad-request", str(error)) from error
        return lambda each: (
            each.key is not None
            and each.key.startswith(prefix)
            and (asked is None or bool(asked.rows(iter([each]))))
        )

    def _changes(self) -> httpx.Response:
        prefix, since = _bound(self.query, "prefix"), self.request.headers.get("last-event-id", "")

        def is_wanted(key: bytes) -> bool:
            return key.startswith(prefix)

        return ChangesBody(self.topic, since, self._row, is_wanted, self._choice()).response()

    def _history(self, key: bytes) -> httpx.Response:
        entries = self.topic.history(key)
        skipped = int(base64.b64decode(self.query.get("cursor", "MA==")))
        since, until = (_to_ms(self.query.get(name, "")) for name in ("from", "to"))
        kept = [
            each
            for each in entries
            if (not since or each.timestamp_ms >= int(since))
            and (not until or each.timestamp_ms < int(until))
        ]
        cursors = [str(skipped + index + 1).encode() for index in range(len(kept))]
        return self._page([self._row(each) for each in kept[skipped:]], cursors)

    def _page(self, rows: list[dict[str, Any]], cursors: list[bytes], **more: int) -> httpx.Response:
        size = int(self.query.get("limit", PAGE))
        following = {"next": base64.b64encode(cursors[size - 1]).decode()} if len(rows) > size else {}
        return self._json(records=rows[:size], **more, **following)

    def _offset(self, number: int) -> httpx.Response:
        at, records = self.query["at"], self._of(number)
        if at in ("latest", "earliest"):
            return httpx.Response(200, json={"offset": len(records) if at == "latest" else 0})
        later = (each.offset for each in records if each.timestamp_ms >= int(_to_ms(at)))
        return httpx.Response(200, json={"offset": next(later, None)})

    def _log(self, number: int) -> httpx.Response:
        records, given = self._of(number), self.query["offset"]
        start = {"earliest": 0, "latest": len(records)}.get(given)
        start = int(given) if start is None else start
        found = records[start : start + int(self.query.get("limit", PAGE))]
        rows = [each.document(self.topic) for each in found]
        watermarks = {"low": 0, "high": len(records)}
        document = {"records": rows, "next_offset": start + len(found), "watermarks": watermarks}
        return httpx.Response(200, json=document)

    def _of(self, partition: int) -> list[FakeRecord]:
        return [each for each in self.topic.records if each.partition == partition]

    def _layout(self) -> httpx.Response:
        ends = self.topic.ends()
        lanes = [
            {
                "partition": number,
                "stripe": 0,
                "slot": number,
                "shard": "fake:0",
                "next_offset": ends[str(number)],
                "log_end": ends[str(number)],
                "lag": 0,
                "building": False,
                "incomplete": False,
                "has_strays": False,
                "age_ms": 0,
            }
            for number in range(self.topic.partitions)
        ]
        counts = {"partitions": self.topic.partitions, "stripes": 1, "lag": 0}
        return httpx.Response(200, json={"topic": self.topic.name, **counts, "lanes": lanes, "age_ms": 0})


def _has_conditions(query: Sequence[tuple[str, str]]) -> bool:
    return any(name not in PARAMETERS for name, _ in query)


def key_of(data: bytes, query: Mapping[str, str]) -> bytes:
    """Return a key of a path or a query, which may be base64."""
    if query.get("key_format") == "base64":
        return base64.urlsafe_b64decode(data + b"=" * (-len(data) % 4))
    return data


def _bound(query: Mapping[str, str], name: str) -> bytes:
    return key_of(query.get(name, "").encode(), query)


def _data(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _to_ms(moment: str) -> str:
    """Return a time as milliseconds since 1970; a position, and "", stay as they are."""
    if "T" not in moment:
        return moment
    return str(round(datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp() * 1000))
