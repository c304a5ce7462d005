"""Valid requests changed at random: paths, queries, headers, bodies, cursors, callers, lines."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import re
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING
from urllib.parse import quote

from tests.requests.valid import JsonChanges, changed_bytes
from tests.requests.wire import HTTP_1, HTTP_2, RAW, FuzzRequest
from tests.requests.words import HEADERS, METHODS, TEXTS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

MOST_BYTES = 3_000_000
BODYLESS = {"GET", "HEAD"}


@dataclass
class Harvest:
    """What answers had that other requests may use. `pages`: requests of next pages, with their cursors."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    pages: list[FuzzRequest] = field(default_factory=list)
    most: int = 300

    def add(self, name: str, text: str, chance: random.Random) -> None:
        found = self.texts.setdefault(name, [])
        if len(found) < self.most:
            found.append(text)
        else:
            found[chance.randrange(self.most)] = text

    def note(self, request: FuzzRequest, headers: dict[str, str], body: bytes, chance: random.Random) -> None:
        """Keep what an answer has: cursors, tags, positions, ids of events."""
        if tag := headers.get("etag"):
            self.add("tag", tag, chance)
        for name, pattern in _HARVESTED.items():
            for found in pattern.findall(body[:20_000])[:5]:
                self.add(name, found.decode("latin-1"), chance)
        if (found := _NEXT.search(body[-95_000:])) is not None:
            cursor = found[1].decode("latin-1")
            self.add("cursor", cursor, chance)
            query = (*(pair for pair in request.query if pair[0] != "cursor"), ("cursor", cursor))
            page = replace(request, query=query)
            if len(self.pages) < self.most:
                self.pages.append(page)
            else:
                self.pages[chance.randrange(self.most)] = page


_NEXT = re.compile(rb'"next": ?"([A-Za-z0-9_-]{22,90000})"')
_HARVESTED = {
    "position": re.compile(rb'"position": ?"(\d+:\d+)"'),
    "event": re.compile(rb"^id: ?(.*)$", re.MULTILINE),
    "schema id": re.compile(rb'"(?:value_)?schema_id": ?(\d+)'),
}
_HARVEST_OF = {
    "last-event-id": "event",
    "keylane-min-position": "position",
    "if-none-match": "tag",
    "if-match": "tag",
}


class Mutator:
    """Changes requests. `valid` makes one; `tokens`: of callers, as values of Authorization."""

    def __init__(
        self,
        chance: random.Random,
        valid: Callable[[], FuzzRequest],
        parameters: Sequence[str],
        tokens: Sequence[str],
        harvest: Harvest,
    ) -> None:
        self._chance, self._valid, self._parameters, self._tokens = chance, valid, parameters, tokens
        self._harvest = harvest
        self._json = JsonChanges(chance, self._changed)
        self._ways: tuple[tuple[Callable[[FuzzRequest], FuzzRequest], int], ...] = (
            (self._path, 4),
            (self._query, 6),
            (self._headers, 5),
            (self._method, 1),
            (self._caller, 1),
            (self._harvested, 3),
            (self._body, 9),
        )

    def next(self) -> FuzzRequest:
        """Return the next request: one in ten is valid."""
        chance = self._chance
        pages = self._harvest.pages
        request = chance.choice(pages) if pages and chance.random() < 0.2 else self._valid()
        request = self._as(request)
        if pages and request in pages and chance.random() < 0.8:
            request = self._cursor(request)
        ways, weights = zip(*self._ways, strict=True)
        for _ in range(chance.choice((0, 1, 1, 1, 1, 1, 1, 2, 2, 3, 5))):
            request = chance.choices(ways, weights)[0](request)
        over = chance.random()
        if over < 0.25 and len(request.body) < 60_000:
            return replace(request, over=HTTP_2)
        if over < 0.3:
            return self._raw(request)
        if over < 0.4 and request.method not in BODYLESS:
            return replace(request, parts=chance.choice((1, 2, 7)))
        return replace(request, over=HTTP_1)

    def _as(self, request: FuzzRequest) -> FuzzRequest:
        """Give the request a host, and mostly a caller."""
        request = (
            request.without_header("authorization").without_header("host").with_header("Host", "localhost")
        )
        token = self._chance.choice((*self._tokens, *self._tokens[:1] * 5, ""))
        return request.with_header("Authorization", token) if token else request

    def text(self) -> str:
        """Return a text that a path or query may have."""
        chance = self._chance
        kind = chance.random()
        if kind < 0.75:
            return chance.choice(TEXTS)
        if kind < 0.85:
            return quote(chance.randbytes(chance.choice((1, 3, 20))), safe="")
        return "".join(
            chance.choices([chr(each) for each in range(0x21, 0x100)], k=chance.choice((1, 3, 20)))
        )

    def _changed(self, text: str) -> str:
        """Return a text a little changed."""
        chance = self._chance
        at, kind = chance.randrange(len(text) + 1), chance.random()
        if kind < 0.2:
            return self.text()
        if kind < 0.4:
            return text[:at] + self.text()[:50] + text[at:]
        if kind < 0.55:
            return text[:at] + text[at + 1 :]
        if kind < 0.65:
            return text * chance.choice((2, 2, 300))
        if kind < 0.8 and text:
            at = min(at, len(text) - 1)
            return (
                text[:at]
                + quote(text[at], safe="").replace(text[at], f"%{ord(text[at]) % 256:02x}")
                + text[at + 1 :]
            )
        return text[:at]

    def _path(self, request: FuzzRequest) -> FuzzRequest:
        chance, segments = self._chance, request.path.split("/")
        at, kind = chance.randrange(1, max(2, len(segments))), chance.random()
        at = min(at, len(segments) - 1)
        if kind < 0.5:
            segments[at] = self._changed(segments[at])
        elif kind < 0.6:
            segments.insert(at, self.text())
        elif kind < 0.7:
            del segments[at]
        elif kind < 0.85:
            segments[at] = chance.choice(self._valid().path.split("/"))
        elif kind < 0.95:
            segments.insert(at, chance.choice(("", ".", "..", "%2e%2e", "%2e")))
        else:
            return replace(request, path=self._changed(request.path))
        return replace(request, path="/".join(segments))

    def _query(self, request: FuzzRequest) -> FuzzRequest:
        chance, query = self._chance, list(request.query)
        kind = chance.random()
        if not query or kind < 0.35:
            query.insert(chance.randrange(len(query) + 1), self._pair())
        elif kind < 0.8:
            at = chance.randrange(len(query))
            name, value = query[at]
            query[at] = (
                (name, self._changed(value)) if chance.random() < 0.9 else (self._changed(name), value)
            )
        elif kind < 0.87:
            del query[chance.randrange(len(query))]
        elif kind < 0.95:
            query.append(chance.choice(query))
        elif kind < 0.99:
            query += self._valid().query
        else:
            query += [("a", "1")] * chance.choice((200, 1_999, 2_001))
        return replace(request, query=tuple(query))

    def _pair(self) -> tuple[str, str]:
        chance = self._chance
        name = chance.choice(self._parameters)
        if name == "cursor" and (found := self._harvest.texts.get("cursor")):
            return name, chance.choice(found)
        return name, self.text() if chance.random() < 0.6 else dict(self._valid().query).get(
            name, self.text()
        )

    def _headers(self, request: FuzzRequest) -> FuzzRequest:
        chance, headers = self._chance, list(request.headers)
        kind = chance.random()
        name, value = chance.choice(HEADERS)
        if kind < 0.5 or not headers:
            request = request.without_header(name) if chance.random() < 0.8 else request
            return request.with_header(name, value)
        at = chance.randrange(len(headers))
        if kind < 0.75:
            headers[at] = (headers[at][0], self._changed(headers[at][1]).replace("\n", ""))
        elif kind < 0.85:
            del headers[at]
        elif kind < 0.9:
            headers += [headers[at]] * chance.choice((1, 1, 90))
        else:
            headers += self._valid().headers
        return replace(request, headers=tuple(headers))

    def _method(self, request: FuzzRequest) -> FuzzRequest:
        return replace(request, method=self._chance.choice(METHODS))

    def _caller(self, request: FuzzRequest) -> FuzzRequest:
        token = self._chance.choice(self._tokens)
        if self._chance.random() < 0.3:
            token = self._changed(token).replace("\n", "")
        return request.without_header("authorization").with_header("Authorization", token)

    def _harvested(self, request: FuzzRequest) -> FuzzRequest:
        """Use what another answer had."""
        chance, texts = self._chance, self._harvest.texts
        header = chance.choice(
            ("Last-Event-ID", "Keylane-Min-Position", "If-None-Match", "If-Match", "cursor")
        )
        found = texts.get(_HARVEST_OF.get(header.lower(), "cursor"))
        if not found:
            return self._query(request)
        text = chance.choice(found)
        if header == "cursor":
            return self._cursor(replace(request, query=(*request.query, ("cursor", text))))
        if chance.random() < 0.5:
            text = self._changed(text).replace("\n", "")
        return request.without_header(header).with_header(header, text)

    def _cursor(self, request: FuzzRequest) -> FuzzRequest:
        chance = self._chance
        given = dict(request.query).get("cursor", "")
        known = self._harvest.texts.get("cursor", [given])
        changed = chance.choice(
            (self._changed, self._forged, self._forged, self._forged, lambda _: chance.choice(known))
        )(given)
        query = tuple((name, changed if name == "cursor" else value) for name, value in request.query)
        return replace(request, query=query)

    def _forged(self, cursor: str) -> str:
        """Return the cursor with other bytes, and the checksum that belongs to them."""
        chance = self._chance
        try:
            data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))[:-8]
        except ValueError:
            return cursor
        end = min(len(data), 10 + (data[1] if len(data) > 1 else 0))
        fixed, position = data[:end], data[end:]
        if chance.random() < 0.15:
            fixed = changed_bytes(fixed, self._chance)
        position = chance.choice(
            (
                changed_bytes(position, self._chance),
                position[: chance.randrange(len(position) + 1)],
                chance.randbytes(chance.choice((1, 8, 30))),
                position + chance.randbytes(chance.choice((1, 8))),
                b"",
                changed_bytes(changed_bytes(position, chance), chance),
            )
        )
        data = fixed + position
        found = base64.urlsafe_b64encode(data + blake2b(data, digest_size=8).digest())
        return (found if chance.random() < 0.05 else found.rstrip(b"=")).decode()

    def _raw(self, request: FuzzRequest) -> FuzzRequest:
        """Change bytes of the whole: lines, lengths and chunks may not be those of a request any more."""
        sent = request.rendered()
        head, end, body = sent.partition(b"\r\n\r\n")
        for _ in range(self._chance.choice((1, 2, 5))):
            head = changed_bytes(head, self._chance)
        if self._chance.random() < 0.2:
            head += self._chance.choice(
                (
                    b"\r\nContent-Length: 5",
                    b"\r\nTransfer-Encoding: gzip, chunked",
                    b"\nX: y",
                    b"\r\n x",
                    b"\r\nContent-Length: -1",
                )
            )
        return replace(request, over=RAW, raw=head + end + body)

    def _body(self, request: FuzzRequest) -> FuzzRequest:
        chance = self._chance
        if not request.body and (request.method in BODYLESS or chance.random() < 0.8):
            return self._query(request)
        body, kind = request.body, chance.random()
        if kind < 0.75:
            with contextlib.suppress(ValueError, RecursionError):
                body = self._json.changed_json(json.loads(body))
        elif kind < 0.88:
            body = changed_bytes(body, self._chance)
        elif kind < 0.91:
            body = self._valid().body
        elif kind < 0.94:
            body = gzip.compress(body, mtime=0)
            if chance.random() < 0.5:
                body = changed_bytes(body, self._chance)
            return (
                replace(request, body=body)
                .without_header("content-encoding")
                .with_header("Content-Encoding", "gzip")
            )
        elif kind < 0.97:
            body = chance.choice(
                (
                    b"",
                    b"[" * 9_000,
                    b'{"a":' * 9_000,
                    b"null",
                    b"\xef\xbb\xbf{}",
                    b"{}" * 2,
                    b" " * 70_000 + body,
                    b"\0",
                )
            )
        else:
            body = body * (1 + chance.choice((10_000, 70_000, MOST_BYTES)) // (len(body) + 1))
        return replace(request, body=body[:MOST_BYTES])
