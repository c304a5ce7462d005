"""`make tour` writes docs/tour.md: every kind of read, with the answer of a real stack.

Starts a stack of its own with tour.toml and a Schema Registry, writes a few records over HTTP, and reads.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import urllib3
from confluent_kafka import Producer
from tests.servers import schema_registry
from tests.servers.own import guarded, wait_writable

from keylane_local.process.ports import Ports
from keylane_local.stack.stack import Stack
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADERS = ("etag", "keylane-", "preference-applied", "retry-after", "content-type", "last-modified", "vary")
LONGEST = 1500
WAIT = {"Prefer": "wait=20"}
SENSOR = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "celsius", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
TRIPS = [
    ("ann", "2026-11-02", "Basel", 31.5),
    ("ann", "2026-11-09", "Bern", 22.25),
    ("ann", "2026-11-12", "Zug", 9.9),
    ("bob", "2026-11-03", "Zug", 14.0),
    ("cid", "2026-11-03", "Chur", 40.0),
]


@dataclass
class Tour:
    """Sends requests to a stack and keeps the answers as Markdown."""

    url: str
    http: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(timeout=60, retries=False))
    parts: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)

    def chapter(self, title: str, text: str = "") -> None:
        self.parts.append(f"## {title}\n")
        if text:
            self.parts.append(f"{text}\n")

    def ask(
        self, what: str, method: str, path: str, body: str = "", **headers: str
    ) -> urllib3.BaseHTTPResponse:
        """Send a request, and show it with its answer."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.request(method, path, body, **headers)
        words = ["curl", "-I" if method == "HEAD" else "-i"]
        words += ["-X", method] if method not in {"GET", "HEAD", "POST"} else []
        words.append(f"'localhost:8080{path}'")
        words += [f"-H '{name}: {value}'" for name, value in names.items()]
        words += [f"-d '{body}'"] if body else []
        shown = [f"$ {' '.join(words)}", f"HTTP/1.1 {answer.status} {answer.reason}"]
        found = answer.headers.items()
        shown += [f"{name}: {value}" for name, value in found if name.lower().startswith(HEADERS)]
        is_bytes = answer.headers.get("Content-Type") == "application/octet-stream"
        text = ascii(answer.data)[2:-1] if is_bytes else answer.data.decode()
        if text:
            shown.append(text if len(text) <= LONGEST else f"{text[:LONGEST]} ...")
        block = "\n".join(shown)
        self.parts.append(f"{what}\n\n```console\n{block}\n```\n")
        return answer

    def request(self, method: str, path: str, body: str = "", **headers: str) -> urllib3.BaseHTTPResponse:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.request(method, self.url + path, body=body or None, headers=names)

    def put(self, topic: str, key: str, value: object) -> str:
        """Write, wait until it is in the state, and give its position."""
        path, body = f"/topics/{topic}/keys/{key.replace('|', '%7C')}", json.dumps(value)
        answer = self.request("PUT", path, body)
        if answer.status != 201:
            raise RuntimeError(f"PUT {path}: {answer.status} {answer.data!r}")
        self.written += [f"$ curl -X PUT 'localhost:8080{path}' -d '{body}'", answer.data.decode()]
        position: str = answer.json()["position"]
        self.request("GET", path, Keylane_Min_Position=position, **WAIT)
        return position

    def show_written(self, what: str) -> None:
        """Show what was written since the last time."""
        block = "\n".join(self.written)
        self.parts.append(f"{what}\n\n```console\n{block}\n```\n")
        self.written.clear()

    def until(self, path: str, condition) -> None:
        """Ask again and again until the answer's document is as wanted."""
        end_s = time.monotonic() + 120
        while True:
            answer = self.request("GET", path)
            if answer.status == 200 and condition(answer.json()):
                return
            if time.monotonic() > end_s:
                raise TimeoutError(f"{path}: {answer.status} {answer.data[:500]!r}")
            time.sleep(0.2)


def main() -> int:
    port = Ports().any()
    os.environ["KEYLANE_SCHEMA_REGISTRY_URL"] = schema_registry.url_of(port)
    with tempfile.TemporaryDirectory() as folder, guarded(Path(folder)) as data:
        registry = schema_registry.Registry(data, port)
        registry.start()
        with Stack(data / "stack", project_root() / "tests" / "tour" / "tour.toml") as stack:
            wait_writable(stack.kafka)
            text = "\n".join(walk(Tour(stack.http_url), stack, registry))
        registry.close()
    path = project_root() / "docs" / "tour.md"
    path.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{path}: {len(text.splitlines())} lines\n")
    return 0


def walk(tour: Tour, stack: Stack, registry: schema_registry.Registry) -> Iterator[str]:
    """The whole tour as Markdown."""
    config = (project_root() / "tests" / "tour" / "tour.toml").read_text(encoding="utf-8")
    yield "# A tour of all reads\n"
    yield (
        textwrap.dedent(
            """\
        Every kind of read, with the answer of a real stack. `make tour` starts the stack, sends the
        requests and writes this page. [http/read.md](http/read.md) and [http/views.md](http/views.md)
        describe the parameters. Pasted in order, the commands work on new topics; ETags, cursors and
        times are those of the answers before. The stack has this `keylane.toml`:

        ```toml
        """
        )
        + config.partition("\n")[2]
        + "```\n"
    )
    tour.chapter("The records")
    for customer, day, to, price in TRIPS:
        trip = {"customer": customer, "day": day, "to": to, "price": price}
        tour.put("bookings", f"{customer}|{day}", trip)
    tour.show_written("Five bookings. A write returns its position, partition and offset:")
    between_ms = time.time_ns() // 1_000_000
    time.sleep(0.01)
    changed = {"customer": "ann", "day": "2026-11-09", "to": "Thun", "price": 25.5}
    position = tour.put("bookings", "ann|2026-11-09", changed)
    tour.show_written("One of them changes:")
    latest(tour, position)
    several(tour)
    past(tour, between_ms)
    windows(tour)
    formats(tour, stack, registry)
    about(tour)
    yield from tour.parts


def latest(tour: Tour, position: str) -> None:
    tour.chapter("One key")
    path = "/topics/bookings/keys/ann%7C2026-11-09"
    tour.ask(
        "A read waits until the state has a position. A job that has just started takes some seconds:",
        "GET",
        path,
        Keylane_Min_Position=position,
        **WAIT,
    )
    etag = tour.ask(
        "The latest record of a key. The headers have its position and the freshness of the answer:",
        "GET",
        path,
    ).headers["ETag"]
    tour.ask("`HEAD` returns the headers without the value:", "HEAD", path)
    tour.ask("Only some fields of a JSON object:", "GET", f"{path}?fields=to,price")
    tour.ask("Value and metadata in one document:", "GET", f"{path}?envelope=true")
    written = tour.ask("A write returns a position:", "PUT", "/topics/counters/keys/ann", '{"n": 1}')
    tour.ask(
        "A read waits for this position:",
        *("GET", "/topics/counters/keys/ann"),
        Keylane_Min_Position=written.json()["position"],
        **WAIT,
    )
    far = f"{position.split(':', maxsplit=1)[0]}:999999"
    tour.ask(
        "A position that does not arrive in time:", "GET", path, Keylane_Min_Position=far, Prefer="wait=1"
    )
    tour.ask("A conditional read: the client already has this record:", "GET", path, If_None_Match=etag)
    tour.ask(
        "A long poll: wait up to one second for a change. There is none:",
        "GET",
        path,
        If_None_Match=etag,
        Prefer="wait=1",
    )
    tour.ask("A bound on the age that no state can meet:", "GET", f"{path}?max_age_ms=0")
    tour.ask("A key without a record:", "GET", "/topics/bookings/keys/nobody")


def several(tour: Tour) -> None:
    tour.chapter("Many keys, joins, ranges")
    keys = json.dumps({"keys": ["ann|2026-11-02", "cid|2026-11-03", "nobody"]})
    read = "/topics/bookings/keys:read"
    tour.ask(
        "Many keys of a topic. The service sends one command to each lane:",
        "POST",
        f"{read}?fields=to",
        keys,
        Content_Type="application/json",
    )
    tour.ask(
        "An atomic read needs keys that share a lane. These do not:", "POST", f"{read}?atomic=true", keys
    )
    own = json.dumps({"keys": ["ann|2026-11-02", "ann|2026-11-09"]})
    tour.ask(
        "With `partition_by`, the keys of one customer share a lane:",
        "POST",
        f"{read}?atomic=true&fields=to",
        own,
    )
    customer = tour.put("customers", "ann", {"name": "Ann"})
    tour.show_written("A record of another topic, under a key that `counters` has, too:")
    tour.ask("It is there:", "GET", "/topics/customers/keys/ann", Keylane_Min_Position=customer, **WAIT)
    tour.ask("One key of two topics, read at one moment:", "GET", "/join/ann?topics=customers,counters")
    page = tour.ask(
        "A prefix, in pages of two records:", "GET", "/topics/bookings/keys?prefix=ann%7C&limit=2&fields=to"
    )
    tour.ask(
        "The next page, by the cursor of the first:",
        *("GET", f"/topics/bookings/keys?prefix=ann%7C&limit=2&fields=to&cursor={page.json()['next']}"),
    )
    tour.ask(
        "A range within one prefix reads a single lane:",
        *("GET", "/topics/bookings/keys?from=ann%7C2026-11-05&to=ann%7C2026-11-10&keys_only=true"),
    )
    tour.ask("A range over all lanes:", "GET", "/topics/bookings/keys?from=b&to=d&keys_only=true")
    tour.ask(
        "A cursor belongs to the bounds that it was made with:",
        "GET",
        f"/topics/bookings/keys?cursor={page.json()['next']}",
    )


def past(tour: Tour, between_ms: int) -> None:
    tour.chapter("History")
    path = "/topics/bookings/keys/ann%7C2026-11-09"
    deleted = tour.ask("A key is deleted. Its records stay in the history:", "DELETE", path).json()[
        "position"
    ]
    tour.ask("The state has the deletion:", "GET", path, Keylane_Min_Position=deleted, **WAIT)
    tour.ask("All records of a key, newest first. It was deleted last:", "GET", f"{path}/history")
    tour.ask("The record that was valid at an earlier time:", "GET", f"{path}?as_of={between_ms}")
    tour.ask(
        "A range as of that time. It includes keys that were deleted since:",
        "GET",
        f"/topics/bookings/keys?prefix=ann&as_of={between_ms}&fields=to",
    )


def windows(tour: Tour) -> None:
    tour.chapter(
        "Views",
        "Windows follow their records within seconds. Until a view has read its topic once, it answers 503.",
    )
    # The change and the deletion of one booking are events of the topic too.
    whole = "/views/spent/keys/ann?from=2026-11-08&to=2026-11-10"
    tour.until(whole, lambda found: sum(row["values"]["trips"] for row in found["windows"]) >= 6)
    tour.ask("Hopping windows of one key: 7 days each, one begins every day:", "GET", whole)
    tour.ask(
        "Windows of a range of keys that begin from a given time on:",
        "GET",
        "/views/spent/keys?key_from=b&from=2026-11-03&limit=2",
    )
    tour.until("/views/visits/keys/ann", lambda found: found["windows"])
    tour.ask("Session windows:", "GET", "/views/visits/keys/ann")
    tour.ask("Final windows only. There is none yet:", "GET", "/views/visits/keys/ann?final=true")
    tour.ask("The definition of a view, and the progress of its lanes:", "GET", "/views/visits")


def formats(tour: Tour, stack: Stack, registry: schema_registry.Registry) -> None:
    tour.chapter("Values of a Schema Registry", "confluent-kafka's `AvroSerializer` wrote this value.")
    reading = {"celsius": 21.5, "at": 1_795_000_000_000}
    value = schema_registry.avro(registry.client, "readings", json.dumps(SENSOR), reading)
    producer = Producer({"bootstrap.servers": stack.kafka_bootstrap, "partitioner": "murmur2_random"})
    producer.produce("readings", value, b"kitchen")
    producer.flush(20)
    path = "/topics/readings/keys/kitchen"
    tour.until(path, lambda found: found)
    tour.ask("Keylane decodes it to JSON:", "GET", path)
    tour.ask("The envelope names the schema:", "GET", f"{path}?envelope=true&fields=celsius")
    tour.ask(
        "`Accept: application/octet-stream` returns the bytes as they are in Kafka:",
        "GET",
        path,
        Accept="application/octet-stream",
    )


def about(tour: Tour) -> None:
    tour.chapter("Topics, nodes and errors")
    tour.ask("The layout of a topic, and where each lane is:", "GET", "/topics/customers")
    tour.ask("Which Redis node has which partitions:", "GET", "/metadata/partitions?topic=customers")
    tour.ask(
        "A parameter that is out of bounds. The problem names it:", "GET", "/topics/bookings/keys?limit=5000"
    )
    tour.ask("A topic that the job does not serve:", "GET", "/topics/nothing/keys/k")


if __name__ == "__main__":
    sys.exit(main())
