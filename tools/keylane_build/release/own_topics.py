"""The topics of the walk: four shapes of records, and what they should answer, computed from these alone."""

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from keylane_build.release.versions import NotReleasable

ORDERS, CUSTOMERS, STATIONS, VISITS = "orders.eu", "shop.public.customers", "stations", "visits"
_PARTITIONS = {ORDERS: 3, CUSTOMERS: 2, STATIONS: 2, VISITS: 2}
STATES, _CITIES, _PAGES = ("open", "paid", "sent"), ("Bern", "Rome", "Oslo"), ("/", "/help", "/shop")
_NOON_MS, _HOUR_MS, SCHEMA_ID = 1_763_812_800_000, 3_600_000, 7
SCHEMA = (
    '{"type": "record", "name": "Station", "fields":'
    ' [{"name": "name", "type": "string"}, {"name": "docks", "type": "long"}]}'
)
_ACCEPTED_S = 60.0


@dataclass
class Written:
    """What the topics should answer, by the keys as they are asked for; None for a key that was deleted."""

    topics: dict[str, dict[str, Any]] = field(default_factory=lambda: {name: {} for name in _PARTITIONS})
    visits: list[dict[str, Any]] = field(default_factory=list)

    def rows(self, topic: str) -> dict[str, Any]:
        """Return the records that are there, in the order of their keys."""
        return {key: value for key, value in sorted(self.topics[topic].items()) if value is not None}

    def views(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return the windows of each view: key, start, and the columns."""
        orders, customers = self.rows(ORDERS).values(), self.rows(CUSTOMERS).values()
        worth, visits, took = Counter[str](), Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        for each in orders:
            worth[each["state"]] += each["amount"]
        for each in self.visits:
            at_ms = round(datetime.fromisoformat(each["at"]).timestamp() * 1000)
            window = each["page"], at_ms - at_ms % _HOUR_MS
            visits[window] += 1
            took[window] += each["ms"]
        states = Counter(each["state"] for each in orders)
        cities = Counter(each["city"] for each in customers)
        return {
            "orders_by_state": [
                (state, None, {"orders": states[state], "worth": worth[state]}) for state in sorted(states)
            ],
            "customers_by_city": [(city, None, {"customers": cities[city]}) for city in sorted(cities)],
            "visits_by_page": [
                (*window, {"visits": visits[window], "took": took[window]}) for window in sorted(visits)
            ],
        }


def write_topics(bootstrap: str) -> Written:
    """Write topics of four shapes as librdkafka's own clients do; return what they should answer."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, count, 1) for name, count in _PARTITIONS.items()])
    for each in made.values():
        each.result(_ACCEPTED_S)
    # Else a retry changes the order of records.
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True}
    producer, written, chance = Producer(settings), Written(), random.Random(49)  # noqa: S311

    def produce(topic: str, key: str | None, value: object) -> None:
        data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, key=key, value=data)
        producer.poll(0)

    for number in range(6_000):
        key, row = f"A-{chance.randrange(1_000):04}", None
        if number % 23:
            row = {"state": chance.choice(STATES), "amount": chance.randrange(100), "note": f"no. {number}"}
        written.topics[ORDERS][key] = row
        produce(ORDERS, key, row)
    for _ in range(2_000):
        _write_customer(produce, written.topics[CUSTOMERS], chance)
    for number in range(600):
        key, row = f"S-{number % 400}", {"name": f"Station {number}", "docks": chance.randrange(5_000)}
        written.topics[STATIONS][key] = row
        produce(STATIONS, key, _avro(row))
    for number in range(4_000):
        at = datetime.fromtimestamp((_NOON_MS + chance.randrange(24 * _HOUR_MS)) / 1000, UTC)
        visit = {
            "at": at.isoformat(timespec="milliseconds"),
            "page": chance.choice(_PAGES),
            "ms": number % 97,
        }
        written.visits.append(visit)
        produce(VISITS, None, visit)
    if producer.flush(_ACCEPTED_S):
        raise NotReleasable("the broker did not accept all records")
    return written


def _write_customer(produce: Any, rows: dict[str, Any], chance: random.Random) -> None:
    """Write a change as Debezium does: a new row, an update, or a deletion and its tombstone."""
    number = chance.randrange(500)
    before, key = rows.get(str(number)), f'{{"id":{number}}}'
    after: dict[str, Any] | None
    after = {"id": number, "name": f"Ann {chance.randrange(10**6)}", "city": chance.choice(_CITIES)}
    kind = "c" if before is None else chance.choice("uud")
    after = None if kind == "d" else after
    produce(CUSTOMERS, key, {"before": before, "after": after, "op": kind, "ts_ms": _NOON_MS, "source": {}})
    if after is None:
        produce(CUSTOMERS, key, None)
    rows[str(number)] = after


def _avro(row: Mapping[str, Any]) -> bytes:
    """Encode a row by `SCHEMA`, framed as Confluent's serializers do."""
    name: bytes = row["name"].encode()
    return b"\0" + SCHEMA_ID.to_bytes(4, "big") + _avro_long(len(name)) + name + _avro_long(row["docks"])


def _avro_long(number: int) -> bytes:
    left, data = number << 1, bytearray()
    while left > 0x7F:  # noqa: PLR2004 - seven bits a byte
        data.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*data, left])
