"""Valid requests of every route: examples, REST Proxy's and kprf's, and reads as the OpenAPI document has."""

from __future__ import annotations

import json
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tests.compat.cases import fill, load_cases, names_of
from tests.compat.targets import SCHEMA_TOPICS, Registrar
from tests.e2e.client import path_of
from tests.e2e.examples import EXAMPLES, NO_CLUSTER
from tests.requests.wire import FuzzRequest

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from tests.e2e.client import Client

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
        """Return a write of a key."""
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
