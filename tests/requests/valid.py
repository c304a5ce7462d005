"""Valid requests of every route; and bodies changed at random, as bytes, and as the JSON that they are."""

from __future__ import annotations

import contextlib
import json
import re
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote_to_bytes

from tests.compat.cases import fill, load_cases, names_of
from tests.compat.targets import SCHEMA_TOPICS, Registrar
from tests.e2e.client import path_of
from tests.e2e.examples import EXAMPLES, NO_CLUSTER
from tests.requests.wire import FuzzRequest
from tests.requests.words import NAMES, NUMBERS, SCALARS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from tests.e2e.client import Client


VERBATIM = "\x02{}\x03"
"""A string that is written as it is, without quotes: numbers that Python would write otherwise."""
MOST_NODES, DROPPED = 3_000, 0.15


def changed_bytes(data: bytes, chance: random.Random) -> bytes:
    """Return bytes a little changed."""
    at, kind = chance.randrange(len(data) + 1), chance.random()
    if kind < 0.35 and data:
        at = min(at, len(data) - 1)
        return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
    if kind < 0.5:
        return data[:at]
    if kind < 0.7:
        return data[:at] + data[at + chance.choice((1, 2, 9)) :]
    if kind < 0.9:
        return (
            data[:at]
            + chance.choice((b"\0", b"\xff", b'"', b"{", b"[", b",", chance.randbytes(4)))
            + data[at:]
        )
    other = chance.randrange(len(data) + 1)
    return data[:at] + data[other : other + 40] + data[at:]


def _places(holder: list[Any]) -> list[tuple[Any, Any]]:
    """Return each part of a document as its container and its key there."""
    places: list[tuple[Any, Any]] = [(holder, 0)]
    for container, key in places:
        found = container[key]
        if isinstance(found, dict):
            places += [(found, each) for each in found]
        elif isinstance(found, list):
            places += [(found, number) for number in range(min(len(found), 50))]
        if len(places) > MOST_NODES:
            break
    return places


class JsonChanges:
    """Changes documents. `changed_text`: for their strings."""

    def __init__(self, chance: random.Random, changed_text: Callable[[str], str]) -> None:
        self._chance, self._changed_text = chance, changed_text

    def changed_json(self, document: Any) -> bytes:
        """Return a document changed in one place or some, as JSON."""
        for _ in range(self._chance.choice((1, 1, 1, 2, 3))):
            document = self._node(document)
        text = json.dumps(document, ensure_ascii=self._chance.random() < 0.7)
        text = re.sub(r'"(?:\\u0002|\x02)(.*?)(?:\\u0003|\x03)"', r"\1", text)
        if self._chance.random() < 0.05 and "," in text:  # a member twice
            text = re.sub(r"\{([^{},]*),", r"{\1,\1,", text, count=1)
        return text.encode("utf-8", "surrogatepass")

    def _node(self, document: Any) -> Any:
        """Return the document with another part in one place."""
        holder: list[Any] = [document]
        places = _places(holder)
        container, key = self._chance.choice(places)
        if container is not holder and self._chance.random() < DROPPED:
            del container[key]
        else:
            container[key] = self._part(container[key], places)
        try:
            found: Any = json.loads(json.dumps(holder))
        except (ValueError, RecursionError):  # it has itself in it
            return None
        return found[0]

    def _part(self, found: Any, places: list[tuple[Any, Any]]) -> Any:
        """Return what stands in place of a part of a document."""
        chance = self._chance
        if isinstance(found, str) and chance.random() < 0.7:
            return self._string(found)
        ways: list[Callable[[], Any]] = [
            *[lambda: chance.choice(SCALARS)] * 6,
            *[lambda: VERBATIM.format(chance.choice(NUMBERS))] * 3,
            *[lambda: [found] * chance.choice((1, 2, 40, 1_000)), lambda: {"a": found}, lambda: str(found)],
            *[lambda: (place := chance.choice(places))[0][place[1]]] * 3,
            lambda: VERBATIM.format("[" * (depth := chance.choice((20, 500, 5_000))) + "]" * depth),
        ]
        if isinstance(found, dict):
            more = (*SCALARS, *found.values())
            ways += [lambda: found | {chance.choice(NAMES): chance.choice(more)}] * 6
        return chance.choice(ways)()

    def _string(self, text: str) -> Any:
        """Return a string changed: also the JSON that it may be, such as a schema."""
        chance = self._chance
        if text[:1] in {"{", "["} and chance.random() < 0.8:
            with contextlib.suppress(ValueError, RecursionError):
                return self.changed_json(json.loads(text)).decode("utf-8", "replace")
        if "{" in text and chance.random() < 0.8:
            words = re.findall(r"\w+|\s+|.", text)
            at, other = chance.randrange(len(words)), chance.randrange(len(words))
            words[at] = chance.choice(
                (
                    words[other],
                    "",
                    words[at] * 2,
                    *NUMBERS,
                    "optional",
                    "repeated",
                    "map<string, X>",
                    "oneof",
                    "import",
                )
            )
            return "".join(words)
        if chance.random() < 0.3:
            return chance.choice(SCALARS)
        with contextlib.suppress(UnicodeDecodeError):
            return unquote_to_bytes(self._changed_text(text)).decode()
        return text[: chance.randrange(len(text) + 1)]


DOCUMENT = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text(encoding="utf-8"))
KEYS = ("object", "text", "bytes", "gone", "large", "a/b", "flüge", " ", "%", "\0")
VALUES = (b'{"a": {"b": 1.50}, "n": null}', b"a text", b"\xff\x00", None, b"x" * 900)
WRITTEN = ("anything", "something", "flights", "joined", "rows", "trips")
BOOKINGS = [
    json.dumps(
        {
            "to": to,
            "fare": number * 10,
            "leaves": f"2026-11-{number % 20 + 1:02}",
            "paid": number % 2 == 0,
            "stops": ["Olten", to],
            "rider": {"country": "CH"},
        }
    ).encode()
    for number, to in enumerate(("Bern", "Basel", "Biel", "Chur") * 10)
]
SECRET_TOPIC, SECRET = "delayed", "what-only-one-caller-may-read"
KNOWN: dict[str, tuple[str, ...]] = {
    "topic": (*WRITTEN, "bookings", "typed", "registered", "registered-found", "schema-keys", SECRET_TOPIC),
    "topics": ("anything,something", "something,anything", "flights,joined"),
    "view": ("puts",),
    "key": (*KEYS, "N14228", "ann|2026-11-09", "compat-record", "1"),
    "partition": ("0", "1", "2"),
    "broker": ("1",),
    "name": ("retention.ms", "cleanup.policy", "log.retention.ms"),
    "group": ("billing",),
    "as_of": ("0", "2100-01-01", "2026-11-21T10:00:00+01:00", "0:1"),
    "from": ("0", "2013-01-01", "a"),
    "to": ("2100-01-01", "4102444800000", "z"),
    "key_from": ("", "N"),
    "key_to": ("z",),
    "prefix": ("", "o", "fl", "b"),
    "after": ("a", "flights"),
    "fields": ("a", "a.b,n", "to,fare"),
    "offset": ("earliest", "latest", "0", "1"),
    "at": ("earliest", "latest", "max", "0", "2026-11-21T10:00:00Z"),
    "order": ("to", "-fare", "leaves"),
    "limit": ("1", "2", "10"),
    "max_bytes": ("1", "1000"),
    "max_age_ms": ("600000", "1000000000000"),
    "min_offset": ("0",),
    "conditions": ("",),
    "cursor": (),
}
CONDITIONS = (
    ("to", "B*"),
    ("to", "Bern"),
    ("fare", "10..90"),
    ("paid", "true"),
    ("stops", "Olten"),
    ("leaves", "2026-11-02.."),
    ("rider.country", "CH"),
    ("fare", ".."),
    ("note", '"x"'),
)


def parameters() -> list[str]:
    """Return the names of all parameters of queries."""
    found = {each["name"] for _, _, each in _parameters() if each["in"] == "query"}
    return sorted(found | {name for name, _ in CONDITIONS})


def _resolved(part: Any) -> Any:
    while "$ref" in part:
        found = DOCUMENT
        for name in part["$ref"].split("/")[1:]:
            found = found[name]
        part = found
    return part


def _parameters() -> list[tuple[str, str, Any]]:
    """Return method, path and each parameter of all operations."""
    return [
        (method, path, _resolved(each))
        for path, operations in DOCUMENT["paths"].items()
        for method, operation in operations.items()
        if method != "parameters"
        for each in (*operations.get("parameters", ()), *operation.get("parameters", ()))
    ]


class ValidRequests:
    """Makes valid requests. `cluster`: the id of the broker's."""

    def __init__(self, chance: random.Random, cluster: str, written: list[FuzzRequest]) -> None:
        self._chance, self._known = chance, KNOWN | {"cluster": (cluster,)}
        self._written = written
        self._reads: dict[str, list[Any]] = {
            path: [] for path, operations in DOCUMENT["paths"].items() if "get" in operations
        }
        for method, path, parameter in _parameters():
            if method == "get":
                self._reads[path].append(parameter)

    def next(self) -> FuzzRequest:
        """Return one of those that are written down, or a read."""
        kind = self._chance.random()
        if kind < 0.4:
            return self._chance.choice(self._written)
        return self._write() if kind < 0.5 else self._read()

    def _write(self) -> FuzzRequest:
        chance = self._chance
        path = f"/topics/{chance.choice(WRITTEN)}/keys/{quote(chance.choice(KEYS), safe='')}"
        value = chance.choice((*VALUES, *BOOKINGS[:4]))
        kind = (("Content-Type", "application/json"),)
        return FuzzRequest("PUT", path, headers=kind, body=value) if value else FuzzRequest("DELETE", path)

    def _read(self) -> FuzzRequest:
        chance = self._chance
        # Those with many parameters more often.
        path = chance.choices(list(self._reads), [1 + len(each) for each in self._reads.values()])[0]
        query: list[tuple[str, str]] = []
        made = path
        for each in self._reads[path]:
            name, place = each["name"], each["in"]
            if place == "path":
                made = made.replace(f"{{{name}}}", quote(self._value(each), safe=""))
            elif place == "query" and name == "conditions":
                query += chance.choices(CONDITIONS, k=chance.choice((0, 1, 1, 2)))
            elif place == "query" and (name == "topics" or chance.random() < 0.25) and name != "cursor":
                query.append((name, quote(self._value(each), safe=",:*")))
        if path.endswith("/find"):
            made = chance.choice((made, "/topics/bookings/find", "/topics/bookings/find"))
        elif path.endswith("/keys") and chance.random() < 0.7:
            query.append(("limit", "2"))
        headers = [("Prefer", "wait=0.05")] if chance.random() < 0.1 else []
        return FuzzRequest("HEAD" if chance.random() < 0.05 else "GET", made, tuple(query), tuple(headers))

    def _value(self, parameter: Any) -> str:
        schema = _resolved(parameter.get("schema", {}))
        if known := self._known.get(parameter["name"]):
            return self._chance.choice(known)
        if schema.get("type") == "boolean":
            return self._chance.choice(("true", "false"))
        return str(self._chance.choice(schema.get("enum") or schema.get("examples") or ["1"]))


def of_text(method: str, path: str, headers: Mapping[str, str], body: bytes) -> FuzzRequest:
    """Return a request whose path has its query."""
    path, _, query = path.partition("?")
    pairs = [each.partition("=") for each in query.split("&")] if query else []
    sent = tuple((name, value) for name, _, value in pairs)
    return FuzzRequest(method, path, sent, tuple(headers.items()), body)


def written_requests(cluster: str, registry: Registrar) -> list[FuzzRequest]:
    """Return the requests that are written down: examples, and REST Proxy's and kprf's."""
    found = [
        of_text(each.method, each.path.replace(NO_CLUSTER, cluster), each.headers, each.body.encode())
        for each in EXAMPLES.values()
    ]
    known = {
        "topic": "flights",
        **SCHEMA_TOPICS,
        "cluster": cluster,
        "record": "compat-record",
        "etag": '"0:0"',
        "long": "x" * 8_000,
        "limited": "flights",
        "unknown": "nowhere",
        "large": "x" * 10_000,
    }
    for case in (
        *load_cases("rest_proxy").values(),
        *load_cases("http").values(),
        *load_cases("kprf").values(),
    ):
        names = names_of(case, known, registry.register)
        sent = case.request_body(names) if case.method not in {"GET", "HEAD"} else b""
        found.append(of_text(case.method, str(fill(case.path, names)), fill(case.headers, names), sent))
    return found


def write_records(client: Client) -> None:
    """Write what the reads look for."""
    for topic in WRITTEN:
        for number, key in enumerate(map(str.encode, KEYS)):
            value = VALUES[number % len(VALUES)]
            if value is not None and (topic != "anything" or len(value) < 1_000):
                # Readers of one of the topics could not read these values.
                answer = client.request("PUT", path_of(topic, key) + "?raw=true", value)
                assert answer.status == HTTPStatus.CREATED, answer.body
    for number, value in enumerate(BOOKINGS):
        client.put("bookings", b"ann|2026-11-%02d" % number, value)
    client.put(SECRET_TOPIC, b"1", json.dumps({"origin": SECRET}).encode())
    client.put("joined", b"N14228", b'{"amount": 1}')
    client.put("flights", b"compat-record", b'{"dest": "SFO"}')
