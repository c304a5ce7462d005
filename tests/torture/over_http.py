"""Reads over HTTP from the standing server, whose requests share their connections to Redis."""

from __future__ import annotations

import base64
import json
import random
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from tests.servers.own import CLOCK
from tests.support.replies import Reply
from tests.torture.answers import Answers, raise_unless_absent
from tests.torture.sources import SERVER, Counts, Found, FoundPage, NoAnswer, Page, awaited

from keylane.errors import KeylaneError
from keylane.query.span import Span
from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.torture.found import Question
    from tests.torture.schedule import Shape

    from keylane.model.records import HistoryEntry, Position


T = TypeVar("T")
TIMEOUT_S = 60
"""Of a request: the server answers each sooner, so one that takes longer is a fault."""
_PREFERRED_S = 20
"""The longest wait that the server grants."""
_PLAIN: tuple[str, dict[str, str]] = "", {}
_LATEST = (
    *(_PLAIN,) * 5,
    ("", {"Accept": "application/octet-stream"}),
    ("", {"Prefer": "wait=1"}),
    ("?partial=false", {}),
    ("?envelope=true", {}),
)
"""Queries and headers of reads of one key: most are plain, the others take the server's general way."""


class ServerConnection:
    """One kept connection to the server. After it broke, the next request opens another.

    `token`: of the caller, where the server asks for one.
    """

    def __init__(self, port: int, token: str = "") -> None:
        self._port = port
        self._own = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection: HTTPConnection | None = None

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Reply:
        """Send one request. Raises NoAnswer, and KeylaneError where there is none in time."""
        connection = self._connection = self._connection or HTTPConnection(
            HOST, self._port, timeout=TIMEOUT_S
        )
        began_ms = CLOCK.now_ms()
        try:
            connection.request(method, path, body, {**self._own, **(headers or {})})
            answer = connection.getresponse()
            data = answer.read()
        except TimeoutError as error:
            self.close()
            raise KeylaneError(f"{method} {path}: no answer within {TIMEOUT_S} s") from error
        except (HTTPException, OSError) as error:
            self.close()
            raise NoAnswer(f"{method} {path}: {error!r}") from error
        names = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, names, data, began_ms, CLOCK.now_ms())

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class ServerSource:
    """One connection to the server. `shapes`: the topics by name. A problem is raised as its error.

    `token`: as of `ServerConnection`.
    """

    name = SERVER

    def __init__(self, port: int, shapes: Mapping[str, Shape], seed: str, token: str = "") -> None:
        self._answers = Answers(shapes)
        self._source = random.Random(seed)
        self._connection = ServerConnection(port, token)

    def latest(self, topic: str, key: bytes, position: Position | None) -> Found:
        """See `Source.latest`. A read that waits asks again while a client would."""
        if position is None:
            query, headers = self._source.choice(_LATEST)
            return self._one(topic, key, query, headers)
        return self._awaited(position, lambda headers: self._one(topic, key, "", headers))

    def many(self, topic: str, keys: Sequence[bytes]) -> Mapping[bytes, Found]:
        body = json.dumps({"keys": [key.decode() for key in keys]}).encode()
        reply = self._ask("POST", f"/topics/{topic}/keys:read", topic, body=body)
        return dict(self._answers.many(topic, keys, reply))

    def joined(self, topics: Sequence[str], key: bytes) -> Sequence[Found]:
        if len(topics) == 1:
            return [self.latest(topics[0], key, None)]
        reply = self._ask("GET", f"/join/{_quote(key)}?topics={','.join(topics)}", topics[0])
        return self._answers.joined(topics, key, reply)

    def page(
        self, topic: str, prefix: bytes, after: bytes | None, known: Sequence[bytes], limit: int
    ) -> Page:
        bounds = {"prefix": prefix}
        if after is not None:
            bounds = {"from": after + b"\0", "to": Span.of_prefix(prefix).high or b""}
        asked = {name: base64.urlsafe_b64encode(each).decode() for name, each in bounds.items()}
        query = urlencode({**asked, "key_format": "base64", "limit": limit})
        reply = self._ask("GET", f"/topics/{topic}/keys?{query}", topic)
        rows = self._answers.page(topic, reply)
        absent = self._answers.absent(topic, known, reply)
        end = None
        if "next" in reply.document:
            # A page may reach further than its last key; what lies between is not known here.
            end = rows[-1][0] if rows else b""
        return Page(absent | dict(rows), end)

    def history(self, topic: str, key: bytes) -> tuple[Found, Sequence[HistoryEntry]]:
        """See `Source.history`. Pages claim what the oldest of them does."""
        entries: list[HistoryEntry] = []
        least: Found | None = None
        cursor: dict[str, str] = {}
        while True:
            query = urlencode({"limit": 1_000, **cursor})
            reply = self._ask("GET", f"/topics/{topic}/keys/{_quote(key)}/history?{query}", topic)
            found, more = self._answers.history(topic, key, reply)
            entries += more
            if least is not None:
                watermark = found.answer.watermark.least(least.answer.watermark)
                found = found._replace(answer=found.answer._replace(watermark=watermark))
            least = found
            if "next" not in reply.document:
                return found, entries
            cursor = {"cursor": reply.document["next"]}

    def as_of(self, topic: str, key: bytes, at_ms: int) -> Found:
        return self._one(topic, key, f"?as_of={at_ms}", {})._replace(is_exact=False)

    def windows(self, view: str, key: bytes) -> Counts:
        windows = self._ask("GET", f"/views/{view}/keys/{_quote(key)}?limit=1000", view).document["windows"]
        return {(each.get("start"), each.get("end")): each["values"]["n"] for each in windows}

    def find(
        self,
        topic: str,
        question: Question,
        known: Sequence[bytes],
        limit: int,
        after: Any,
        position: Position | None = None,
    ) -> FoundPage:
        more = [("cursor", after)] if after else []
        query = urlencode([*question.query(), ("limit", limit), *more])
        path = f"/topics/{topic}/find?{query}"
        reply = self._awaited(position, lambda headers: self._ask("GET", path, topic, headers))
        absent = self._answers.absent(topic, known, reply)
        return FoundPage(self._answers.page(topic, reply), absent, reply.document.get("next"))

    def count(self, topic: str, known: Sequence[bytes]) -> tuple[int, Mapping[bytes, Found]]:
        """The number of keys that have a record, and what else the answer says of keys: how fresh it is."""
        reply = self._ask("GET", f"/topics/{topic}/count", topic)
        return int(reply.document["count"]), self._answers.absent(topic, known, reply)

    def close(self) -> None:
        self._connection.close()

    def _awaited(self, position: Position | None, ask: Callable[[Mapping[str, str]], T]) -> T:
        headers = (
            {"Keylane-Min-Position": str(position), "Prefer": f"wait={_PREFERRED_S}"} if position else {}
        )
        return awaited(position, lambda: ask(headers))

    def _one(self, topic: str, key: bytes, query: str, headers: Mapping[str, str]) -> Found:
        reply = self._ask("GET", f"/topics/{topic}/keys/{_quote(key)}{query}", topic, headers)
        if "envelope" in query and reply.status == 200:
            return self._answers.envelope(topic, key, reply)
        return self._answers.latest(topic, key, reply)

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
        reply = self._connection.ask(method, path, headers, body)
        if reply.status != 200:
            raise_unless_absent(reply, what)
        return reply


def _quote(key: bytes) -> str:
    return quote(key, safe="")
