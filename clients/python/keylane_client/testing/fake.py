"""The fake's routes. It keeps every record, applies it at once, and answers as the service does."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

import anyio
import httpx

from keylane_client.client import AsyncClient, Client
from keylane_client.errors import InvalidArgument
from keylane_client.testing.finding import FIELD_TYPES
from keylane_client.testing.log import FakeTopic

if TYPE_CHECKING:
    from keylane_client.context import ClientOptions

from keylane_client.testing.topic_requests import PAGE, FakeFailure, TopicRequest, key_of

URL = "http://keylane.fake"
_POLL_S = 0.005


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
        self._failures: list[FakeFailure] = []

    def client(self, options: ClientOptions | None = None) -> Client:
        """Return a client of this service."""
        return Client(URL, options=options, transport=httpx.MockTransport(self._answer))

    def async_client(self, options: ClientOptions | None = None) -> AsyncClient:
        """Return an asynchronous client of this service."""
        return AsyncClient(URL, options=options, transport=httpx.MockTransport(self._answer_async))

    def fail_next(self, status: int = 503, kind: str = "kafka-unavailable", *, times: int = 1) -> None:
        """Let the next requests fail with this problem. A client repeats those that it may repeat."""
        self._failures += [FakeFailure(status, kind, "the fake was asked to fail")] * times

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
        except FakeFailure as failure:
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
                raise FakeFailure(404, "unknown-view", f"there is no view {name!r}")
            case ["join", _]:
                return self._join(key_of(parts[1], query), query)
            case ["topics", name, *rest]:
                topic = self._topics.get(name)
                if topic is None:
                    raise FakeFailure(404, "unknown-topic", f"there is no topic {name!r}")
                return TopicRequest(topic, request, is_last=is_last).answer(rest, parts[2:])
        raise FakeFailure(501, "not-faked", f"the fake has no {request.url.path}")

    def _list_topics(self, query: httpx.QueryParams) -> httpx.Response:
        names = sorted(each for each in self._topics if each.startswith(query.get("prefix", "")))
        rest = [each for each in names if each > query.get("after", "")]
        size = int(query.get("limit", PAGE))
        rows = [{"topic": each, "partitions": self._topics[each].partitions} for each in rest[:size]]
        following = {"next": rest[size - 1]} if len(rest) > size else {}
        return httpx.Response(200, json={"topics": rows, **following})

    def _join(self, key: bytes, query: httpx.QueryParams) -> httpx.Response:
        records, watermarks = {}, {}
        for name in query["topics"].split(","):
            topic = self._topics.get(name)
            if topic is None:
                raise FakeFailure(404, "unknown-topic", f"there is no topic {name!r}")
            found = topic.latest(key)
            records[name] = {"absent": True} if found is None else found.document(topic)
            watermarks[name] = topic.ends()
        document = {"key": key.decode(), "records": records, "age_ms": 0, "watermarks": watermarks}
        return httpx.Response(200, json=document)


def _wait_s(request: httpx.Request) -> float:
    """How long the request may wait: as it says, else 5 s for a position, and not at all for a change."""
    _, separator, seconds = request.headers.get("prefer", "").partition("wait=")
    if separator:
        return float(seconds)
    return 5.0 if "keylane-min-position" in request.headers else 0.0
