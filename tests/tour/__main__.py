"""`make tour`: docs/tour.md, every kind of read with the answer that a real stack gave to it.

Starts a stack of its own with tour.toml, and a Schema Registry, writes a few records over HTTP, asks.
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

HEADERS = ("ETag", "Keylane-", "Preference-Applied", "Retry-After", "Content-Type", "Last-Modified", "Vary")
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
    """Asks a stack, and keeps what it is told as Markdown."""

    url: str
    http: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(timeout=60, retries=False))
    parts: list[str] = field(default_factory=list)

    def chapter(self, title: str, text: str = "") -> None:
        self.parts.append(f"## {title}\n")
        if text:
            self.parts.append(f"{text}\n")

    def ask(
        self, what: str, method: str, path: str, body: str = "", **headers: str
    ) -> urllib3.BaseHTTPResponse:
        """Ask, and show question and answer."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.request(method, path, body, **headers)
        words = ["curl", "-I" if method == "HEAD" else "-i"]
        words += ["-X", method] if method not in {"GET", "HEAD", "POST"} else []
        words.append(f"'localhost:8080{path}'")
        words += [f"-H '{name}: {value}'" for name, value in names.items()]
        words += [f"-d '{body}'"] if body else []
        shown = [f"$ {' '.join(words)}", f"HTTP/1.1 {answer.status} {answer.reason}"]
        shown += [f"{name}: {value}" for name, value in answer.headers.items() if name.startswith(HEADERS)]
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
        path = f"/topics/{topic}/keys/{key.replace('|', '%7C')}"
        answer = self.request("PUT", path, json.dumps(value))
        if answer.status != 201:
            raise RuntimeError(f"PUT {path}: {answer.status} {answer.data!r}")
        position: str = answer.json()["position"]
        self.request("GET", path, Keylane_Min_Position=position, **WAIT)
        return position

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
    yield "# Every way to ask a topic\n"
    yield (
        textwrap.dedent(
            """\
        What a stack answered (`make tour` writes this page anew), with this `keylane.toml`:

        ```toml
        """
        )
        + config.partition("\n")[2]
        + "```\n"
    )
    for customer, day, to, price in TRIPS:
        trip = {"customer": customer, "day": day, "to": to, "price": price}
        tour.put("bookings", f"{customer}|{day}", trip)
    between_ms = time.time_ns() // 1_000_000
    time.sleep(0.01)
    changed = {"customer": "ann", "day": "2026-11-09", "to": "Thun", "price": 25.5}
    position = tour.put("bookings", "ann|2026-11-09", changed)
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
    etag = tour.ask("The latest record, its position, and how fresh the answer is:", "GET", path).headers[
        "ETag"
    ]
    tour.ask("Without the value:", "HEAD", path)
    tour.ask("Some fields alone:", "GET", f"{path}?fields=to,price")
    tour.ask("As one document:", "GET", f"{path}?envelope=true")
    written = tour.ask("A write tells its position ...", "PUT", "/topics/counters/keys/ann", '{"n": 1}')
    tour.ask(
        "... and a read waits for it:",
        *("GET", "/topics/counters/keys/ann"),
        Keylane_Min_Position=written.json()["position"],
    )
    far = f"{position.split(':', maxsplit=1)[0]}:999999"
    tour.ask("One that does not come in time:", "GET", path, Keylane_Min_Position=far, Prefer="wait=1")
    tour.ask("Is it still that record?", "GET", path, If_None_Match=etag)
    tour.ask("Tell me when it changes, within a second:", "GET", path, If_None_Match=etag, Prefer="wait=1")
    tour.ask("A state that is older than 0 ms is none:", "GET", f"{path}?max_age_ms=0")
    tour.ask("A key that is not there:", "GET", "/topics/bookings/keys/nobody")


def several(tour: Tour) -> None:
    tour.chapter("Many keys, joins, ranges")
    keys = json.dumps({"keys": ["ann|2026-11-02", "cid|2026-11-03", "nobody"]})
    read = "/topics/bookings/keys:read"
    tour.ask(
        "Many keys, one command a lane:", "POST", f"{read}?fields=to", keys, Content_Type="application/json"
    )
    tour.ask("At one moment they must share a lane:", "POST", f"{read}?atomic=true", keys)
    own = json.dumps({"keys": ["ann|2026-11-02", "ann|2026-11-09"]})
    tour.ask("One customer's do, by `partition_by`:", "POST", f"{read}?atomic=true&fields=to", own)
    tour.put("customers", "ann", {"name": "Ann"})
    tour.ask("One key of two topics, at one moment:", "GET", "/join/ann?topics=customers,counters")
    page = tour.ask("A prefix, page by page:", "GET", "/topics/bookings/keys?prefix=ann%7C&limit=2&fields=to")
    tour.ask(
        "The next page:",
        *("GET", f"/topics/bookings/keys?prefix=ann%7C&limit=2&fields=to&cursor={page.json()['next']}"),
    )
    tour.ask(
        "A range of the second part is one lane's:",
        *("GET", "/topics/bookings/keys?from=ann%7C2026-11-05&to=ann%7C2026-11-10&keys_only=true"),
    )
    tour.ask("A range over all lanes:", "GET", "/topics/bookings/keys?from=b&to=d&keys_only=true")
    tour.ask("A cursor of other bounds:", "GET", f"/topics/bookings/keys?cursor={page.json()['next']}")


def past(tour: Tour, between_ms: int) -> None:
    tour.chapter("The past")
    path = "/topics/bookings/keys/ann%7C2026-11-09"
    tour.request("DELETE", path)
    tour.until(f"{path}/history", lambda found: found["records"][0].get("deleted"))
    tour.ask("A key's records, newest first:", "GET", f"{path}/history")
    tour.ask("What held then:", "GET", f"{path}?as_of={between_ms}")
    tour.ask(
        "Over a range, deleted keys too:",
        "GET",
        f"/topics/bookings/keys?prefix=ann&as_of={between_ms}&fields=to",
    )


def windows(tour: Tour) -> None:
    tour.chapter("Views")
    # The change and the deletion of one booking are events of the topic too.
    whole = "/views/spent/keys/ann?from=2026-11-08&to=2026-11-10"
    tour.until(whole, lambda found: sum(row["values"]["trips"] for row in found["windows"]) >= 6)
    tour.ask("Windows of 7 days that begin every day, of one key:", "GET", whole)
    tour.ask(
        "Of many keys, those that begin in a time:",
        "GET",
        "/views/spent/keys?key_from=b&from=2026-11-03&limit=2",
    )
    tour.until("/views/visits/keys/ann", lambda found: found["windows"])
    tour.ask("Sessions:", "GET", "/views/visits/keys/ann")
    tour.ask("None of them is final yet:", "GET", "/views/visits/keys/ann?final=true")
    tour.ask("The view itself:", "GET", "/views/visits")


def formats(tour: Tour, stack: Stack, registry: schema_registry.Registry) -> None:
    tour.chapter("Values of a Schema Registry", "Written by confluent-kafka's AvroSerializer.")
    reading = {"celsius": 21.5, "at": 1_795_000_000_000}
    value = schema_registry.avro(registry.client, "readings", json.dumps(SENSOR), reading)
    producer = Producer({"bootstrap.servers": stack.kafka_bootstrap, "partitioner": "murmur2_random"})
    producer.produce("readings", value, b"kitchen")
    producer.flush(20)
    path = "/topics/readings/keys/kitchen"
    tour.until(path, lambda found: found)
    tour.ask("Decoded to JSON:", "GET", path)
    tour.ask("The envelope names the schema:", "GET", f"{path}?envelope=true&fields=celsius")
    tour.ask("As it is:", "GET", path, Accept="application/octet-stream")


def about(tour: Tour) -> None:
    tour.chapter("What is known of a topic")
    tour.ask("Layout, lanes, shards, lag:", "GET", "/topics/customers")
    tour.ask("Which node has which partitions:", "GET", "/metadata/partitions?topic=customers")
    tour.ask("A parameter out of bounds is named:", "GET", "/topics/bookings/keys?limit=5000")
    tour.ask("A topic that nobody serves:", "GET", "/topics/nothing/keys/k")


if __name__ == "__main__":
    sys.exit(main())
