"""The pictures of docs/use/console.md, into docs/images: `python -m tests.e2e.console_pictures`.

They are of a stack of their own: some of the demo's flights with two consumer groups, and bookings, which are
written meanwhile. Look at each before you commit it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import expect
from tests.e2e.client import Client
from tests.servers.own import eventually
from tests.support.browser import TIMEOUT_MS, ConsoleTab, chromium

from keylane_local.demo import flights, steps
from keylane_local.process.guard import guarded
from keylane_local.stack.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
BOOKINGS, KEY = "bookings", b"ann|2026-11-12"
CONFIG = f"""
[topics.{BOOKINGS}]
partitions = 12
index = true
history_count = 10
[topics.seats]
partitions = 3
index = true
[topics.payments]
partitions = 6
"""
BOOKED: tuple[dict[str, Any] | None, ...] = (
    {"customer": "ann", "to": "Zug", "price": 12.5, "seat": {"car": 3, "row": 7}},
    {"customer": "ann", "to": "Chur", "price": 31.0, "seat": {"car": 3, "row": 9}, "via": ["Sargans"]},
    None,
    {"customer": "ann", "to": "Chur", "price": 31.0, "seat": {"car": 3, "row": 9}},
    {"customer": "ann", "to": "Chur", "price": 28.5, "seat": {"car": 3, "row": 10}},
)
EACH = 8
"""Which flights are written: every eighth."""
BEHIND = {"billing": 1_833, "nightly-export": 16_837}
"""The consumer groups of the flights, and how many records each has not read."""
PAUSE_S, SHOWN_MS = 0.02, 15_000


@contextlib.contextmanager
def filled_stack() -> Iterator[Stack]:
    """Yield a stack with all that the pictures show."""
    with tempfile.TemporaryDirectory(prefix="keylane-pictures-") as folder:
        config = Path(folder) / "keylane.toml"
        config.write_text((ROOT / "keylane.toml").read_text("utf-8") + CONFIG, encoding="utf-8")
        with (
            guarded(Path(folder) / "data") as data,
            Stack(data, config) as stack,
            contextlib.closing(Client(stack.http_url)) as client,
        ):
            fly(stack, client)
            for group, lag in BEHIND.items():
                commit(stack, group, lag)
            book(client)
            with booking(stack):
                yield stack


def producer_of(stack: Stack) -> Producer:
    return Producer({"bootstrap.servers": stack.kafka_bootstrap, "partitioner": "murmur2_random"})


def fly(stack: Stack, client: Client) -> None:
    """Write flights, and wait until the view has all of them."""
    producer, written = producer_of(stack), 0
    for key, value in itertools.islice(flights.records(), None, None, EACH):
        producer.produce(steps.TOPIC, key=key, value=value)
        producer.poll(0)
        written += 1
    assert producer.flush(120) == 0
    eventually(lambda: view_offset(client) >= written, 600)


def view_offset(client: Client) -> int:
    """How many records each lane of the view has; 0 while it is built."""
    view = client.request("GET", f"/views/{steps.VIEW}").json
    return 0 if view.get("building", True) else min(sum(lane["offsets"]) for lane in view["lanes"])


def commit(stack: Stack, group: str, lag: int) -> None:
    """Commit offsets of the flights for a group that has not read the last records, evenly."""
    consumer = Consumer({"bootstrap.servers": stack.kafka_bootstrap, "group.id": group})
    parts = [TopicPartition(steps.TOPIC, partition) for partition in range(9)]
    for part in parts:
        part.offset = consumer.get_watermark_offsets(part)[1] - lag // len(parts)
    consumer.commit(offsets=parts, asynchronous=False)
    consumer.close()


def book(client: Client) -> None:
    for value in BOOKED:
        if value is None:
            client.request("DELETE", f"/topics/{BOOKINGS}/keys/{KEY.decode()}")
        else:
            client.put(BOOKINGS, KEY, json.dumps(value).encode())


@contextlib.contextmanager
def booking(stack: Stack) -> Iterator[None]:
    """Write bookings of others, some fifty a second."""
    ended, producer = threading.Event(), producer_of(stack)

    def write() -> None:
        number = 0
        while not ended.wait(PAUSE_S):
            number += 1
            row = {"customer": f"c-{number % 997}", "to": "Bern", "price": number % 50}
            producer.produce(BOOKINGS, key=f"c-{number % 997}|2026-11-12", value=json.dumps(row))
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        producer.flush()


def take(browser: Browser, stack: Stack) -> None:
    """Take all pictures."""
    light: dict[str, Any] = {"viewport": {"width": 1240, "height": 510}}
    tab = ConsoleTab(browser, stack.http_url, **light)
    page = tab.open("topics")
    page.wait_for_timeout(SHOWN_MS)  # for the lines of rates and lags
    page.screenshot(path=IMAGES / "console-topics.png")
    page.set_viewport_size({"width": 1240, "height": 900})
    page = tab.open("lanes", topic=BOOKINGS)
    page.wait_for_timeout(SHOWN_MS)
    page.screenshot(path=IMAGES / "console-lanes.png")
    page.set_viewport_size({"width": 1240, "height": 730})
    page = tab.open("groups", topic=steps.TOPIC)
    page.get_by_text("billing by partition").click()
    page.screenshot(path=IMAGES / "console-groups.png")
    page.set_viewport_size({"width": 1240, "height": 1240})
    page = tab.open("key", topic=BOOKINGS, key=KEY.decode())
    expect(page.locator("#value")).to_contain_text("28.5", timeout=TIMEOUT_MS)
    expect(page.get_by_text("deleted")).to_be_visible(timeout=TIMEOUT_MS)
    page.screenshot(path=IMAGES / "console-key.png")
    tab.close()
    tab = ConsoleTab(browser, stack.http_url, color_scheme="dark", viewport={"width": 1240, "height": 790})
    page = tab.open("view", view=steps.VIEW, key="JFK", column="mean_delay")
    expect(page.locator("svg rect").last).to_be_visible(timeout=TIMEOUT_MS)
    page.screenshot(path=IMAGES / "console-view.png")
    tab.close()


if __name__ == "__main__":
    with filled_stack() as running, chromium() as browser:
        take(browser, running)
