"""The fake's routes. It keeps every record, applies it at once, and answers as the service does."""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

import anyio
import httpx

from keylane_client.client import AsyncClient, Client
from keylane_client.errors import InvalidArgument
from keylane_client.testing.finding import FIELD_TYPES, PARAMETERS, BadQuestion, parse_find
from keylane_client.testing.log import KEY_LIMIT_BYTES, FakeRecord, FakeTopic
from keylane_client.testing.streaming import ChangesBody, IsChosen, snapshot_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane_client.context import ClientOptions

URL = "http://keylane.fake"
_POLL_S = 0.005
_PAGE = 100
_TYPES = {"json": "application/json", "text": "text/plain; charset=utf-8"}


@dataclass(slots=True)
class _Failure(Exception):
    """An answer that is a problem."""

    status: int
    kind: str
    detail: str

    def response(self) -> httpx.Response:
        document = {
            "type": f"urn:keylane:problem:{self.kind}",
            "title": self.kind,
            "status": self.status,
            "detail": self.detail,
            "instance": f"urn:uuid:{uuid.uuid4()}",
        }
        return httpx.Response(self.status, json=document)


class FakeKeylane:
    """A service in memory, for tests of what uses the client.

    `topics`: names, and how many partitions each has. `fields`: of a topic the fields that `find` knows, each
    with its type, as in `{"orders": {"amount": "number"}}`. Every topic has an index, a complete history and
    headers. A record can be read as soon as it is written. There are no views, no Schema Registry, no rights
    and no limits but that of a key's size. Changes of a key are polled.
    """

    def __init__(
        self, topics: Mapping[str, int], fields: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        fields = fields or {}
        wrong = [kind for each in fields.values() for kind in each.values() if kind not in FIELD_TYPES]
        if wrong or not fields.keys() <= topics.keys():
            raise InvalidArgument(f"fields are of topics that there are, and of {', '.join(FIELD_TYPES)}")
        self._topics = {
            name: FakeTopic(name, partitions, fields.get(name, {})) for name, partitions in topics.items()
        }
        self._failures: list[_Failure] = []

    def client(self, options: ClientOptions | None = None) -> Client:
        """Return a client of this service."""
        return Client(URL, options=options, transport=httpx.MockTransport(self._answer))

    def async_client(self, options: ClientOptions | None = None) -> AsyncClient:
        """Return an asynchronous client of this service."""
        return AsyncClient(URL, options=options, transport=httpx.MockTransport(self._answer_async))

    def fail_next(self, status: int = 503, kind: str = "kafka-unavailable", *, times: int = 1) -> None:
        """Let the next requests fail with this problem. A client repeats those that it may repeat."""
        self._failures += [_Failure(status, kind, "the fake was asked to fail")] * times

    def _answer(self, request: httpx.Request) -> httpx.Response:
        until_s = time.monotonic() + _wait_s(request)
        while (answer := self._try(request, is_last=time.monotonic() >= until_s)) is None:
            time.sleep(_POLL_S)
        return answer

    async def _answer_async(self, request: httpx.Request) -> httpx.Response:
        until_s = time.monotonic() + _wait_s(request)
        # Polls, as others may write from another thread.
        while (answer := self._try(request, is_last=time.monotonic() >= until_s)) is None:  # noqa: ASYNC110
            await anyio.sleep(_POLL_S)
        return answer

    def _try(self, request: httpx.Request, *, is_last: bool) -> httpx.Response | None:
        """Return the answer; None while it is waited for."""
        if self._failures:
            return self._failures.pop(0).response()
        try:
            answer = self._route(request, is_last=is_last)
        except _Failure as failure:
            answer = failure.response()
        if answer is not None and request.method == "HEAD":
            return httpx.Response(answer.status_code, headers=answer.headers)
        return answer

    def _route(self, request: httpx.Request, *, is_last: bool) -> httpx.Response | None:
        parts = [unquote_to_bytes(each) for each in request.url.raw_path.partition(b"?")[0].split(b"/")[1:]]
        names, query = [each.decode(errors="replace") for each in parts], request.url.params
        match names:
            case ["health"]:
                ready = {"ready": True, "took_ms": 0}
                return httpx.Response(
                    200, json={"live": True, "ready": True, "parts": {"kafka": ready, "redis": ready}}
                )
            case ["topics"]:
                return self._list_topics(query)
            case ["views"]:
                return httpx.Response(200, json={"views": []})
            case ["views", name, *_]:
                raise _Failure(404, "unknown-view", f"there is no view {name!r}")
            case ["join", _]:
                return self._join(_key(parts[1], query), query)
            case ["topics", name, *rest]:
                topic = self._topics.get(name)
                if topic is None:
                    raise _Failure(404, "unknown-topic", f"there is no topic {name!r}")
                return _TopicRequest(topic, request, is_last=is_last).answer(rest, parts[2:])
        raise _Failure(501, "not-faked", f"the fake has no {request.url.path}")

    def _list_topics(self, query: httpx.QueryParams) -> httpx.Response:
        names = sorted(each for each in self._topics if each.startswith(query.get("prefix", "")))
        rest = [each for each in names if each > query.get("after", "")]
        size = int(query.get("limit", _PAGE))
        rows = [{"topic": each, "partitions": self._topics[each].partitions} for each in rest[:size]]
        following = {"next": rest[size - 1]} if len(rest) > size else {}
        return httpx.Response(200, json={"topics": rows, **following})

    def _join(self, key: bytes, query: httpx.QueryParams) -> httpx.Response:
        records, marks = {}, {}
        for name in query["topics"].split(","):
            topic = self._topics.get(name)
            if topic is None:
                raise _Failure(404, "unknown-topic", f"there is no topic {name!r}")
            found = topic.latest(key)
            records[name] = {"absent": True} if found is None else found.document(topic)
            marks[name] = topic.ends()
        document = {"key": key.decode(), "records": records, "age_ms": 0, "watermarks": marks}
        return httpx.Response(200, json=document)


class _TopicRequest:
    """A request about a topic."""

    def __init__(self, topic: FakeTopic, request: httpx.Request, *, is_last: bool) -> None:
        self.topic = topic
        self.request = request
        self.query = request.url.params
        self.is_last = is_last

    def answer(self, names: list[str], parts: list[bytes]) -> httpx.Response | None:
        """Return the answer to what comes after the topic's name; None while it is waited for."""
        kind, named = "/".join(names[:1]), len(names) > 1
        key = _key(parts[1], self.query) if kind == "keys" and named else b""
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
            raise _Failure(501, "not-streamed" if is_stream else "not-faked", f"the fake has no {shape}")
        return route()

    def _partitions(self) -> httpx.Response:
        rows = [{"partition": number} for number in range(self.topic.partitions)]
        return httpx.Response(200, json={"partitions": rows})

    def _json(self, **document: Any) -> httpx.Response:
        return httpx.Response(200, json={**document, "watermarks": self.topic.ends(), "age_ms": 0})

    def _write(self, key: bytes, value: bytes | None) -> httpx.Response:
        if len(key) > KEY_LIMIT_BYTES:
            raise _Failure(413, "record-too-large", "the key is too long")
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
            answer = _Failure(404, "key-absent", "there is no record under the key").response()
            answer.headers.update(fresh)
            return answer
        tag = f'"{found.partition}-{found.offset}"'
        if headers.get("if-match", tag) != tag:
            raise _Failure(412, "precondition-failed", f"the record is {tag}")
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
            raise _Failure(412, "position-not-reached", f"position {wanted} is not in the state")
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
            raise _Failure(409, "no-fields", "the topic has no fields to find records by")
        try:
            asked = parse_find(self.topic.fields, self.query.multi_items())
        except BadQuestion as error:
            raise _Failure(400, "bad-request", str(error)) from error
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
            raise _Failure(400, "bad-request", str(error)) from error
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
        size = int(self.query.get("limit", _PAGE))
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
        found = records[start : start + int(self.query.get("limit", _PAGE))]
        rows = [each.document(self.topic) for each in found]
        marks = {"low": 0, "high": len(records)}
        document = {"records": rows, "next_offset": start + len(found), "watermarks": marks}
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


def _key(data: bytes, query: Mapping[str, str]) -> bytes:
    if query.get("key_format") == "base64":
        return base64.urlsafe_b64decode(data + b"=" * (-len(data) % 4))
    return data


def _bound(query: Mapping[str, str], name: str) -> bytes:
    return _key(query.get(name, "").encode(), query)


def _data(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _to_ms(moment: str) -> str:
    """Return a time as milliseconds since 1970; a position, and "", stay as they are."""
    if "T" not in moment:
        return moment
    return str(round(datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp() * 1000))


def _wait_s(request: httpx.Request) -> float:
    """How long the request may wait: as it says, else 5 s for a position, and not at all for a change."""
    _, separator, seconds = request.headers.get("prefer", "").partition("wait=")
    if separator:
        return float(seconds)
    return 5.0 if "keylane-min-position" in request.headers else 0.0
