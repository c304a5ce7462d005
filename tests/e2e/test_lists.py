"""Several records over HTTP, on the whole stack."""

from __future__ import annotations

import json
import threading

from confluent_kafka import Producer
from tests.e2e.client import Client, path_of
from tests.servers.own import eventually

from keylane import routing

TOPIC = "flights"


def post(client: Client, topic: str, keys: list[bytes], query: str = ""):
    body = json.dumps({"keys": [key.decode() for key in keys]}).encode()
    return client.request("POST", f"/topics/{topic}/keys:read{query}", body, Content_Type="application/json")


def seen(client: Client, topic: str, key: bytes, position: str) -> None:
    """Wait until the state has the position, even in the first batch on a busy machine."""
    answer = client.get_at(topic, key, position)
    assert answer.status in {200, 404}, answer.body


def test_many_keys_of_all_shards_are_read_at_once(client, key):
    for topic in ("flights", "striped"):
        keys = [b"%b-%d" % (key, number) for number in range(40)]
        positions = [client.put(topic, each, b'{"n": "%b"}' % each) for each in keys]
        for each, position in zip(keys, positions, strict=True):
            seen(client, topic, each, position)
        answer = post(client, topic, [*keys, key + b"-never"], "?fields=n&max_age_ms=60000")
        assert answer.status == 200
        *records, absent = answer.json["records"]
        assert [record["value"]["n"] for record in records] == [each.decode() for each in keys]
        assert [record["position"] for record in records] == positions
        assert absent["absent"]
        assert {position.split(":")[0] for position in positions} <= set(answer.json["watermarks"])
        assert 0 <= answer.json["age_ms"] < 60_000


def test_one_key_of_two_topics_is_read_at_one_moment(client, key):
    for topic in ("flights", "joined"):
        position = client.put(topic, key, topic.encode())
        seen(client, topic, key, position)
    answer = client.request("GET", f"/join/{key.decode()}?topics=joined,flights")
    assert answer.status == 200
    assert {name: record["value"] for name, record in answer.json["records"].items()} == {
        "flights": "flights",
        "joined": "joined",
    }


def test_a_read_that_waits_for_a_change_returns_it(client, key, stack):
    position = client.put(TOPIC, key, b"1")
    etag = client.get(TOPIC, key, Keylane_Min_Position=position).headers["ETag"]

    def write() -> None:
        other = Client(stack.http_url)
        other.put(TOPIC, key, b"2")
        other.close()

    writer = threading.Timer(0.3, write)
    writer.start()
    answer = client.get(TOPIC, key, If_None_Match=etag, Prefer="wait=15")
    writer.join()
    assert (answer.status, answer.body) == (200, b"2")
    assert answer.headers["Preference-Applied"] == "wait=15"
    etag = answer.headers["ETag"]
    assert client.get(TOPIC, key, If_None_Match=etag, Prefer="wait=0.2").status == 304


def test_keys_of_all_lanes_are_listed_in_order_page_by_page(client, key):
    names = [b"%b|%03d" % (key, number) for number in range(30)]
    for name in names:
        last = client.put("bookings", name, b"%d" % len(name))
        seen(client, "bookings", name, last)
    path = f"/topics/bookings/keys?prefix={key.decode()}%7C&limit=8"
    pages = [client.request("GET", path).json]
    client.put("bookings", key + b"|007a", b"between")
    while "next" in pages[-1]:
        pages.append(client.request("GET", f"{path}&cursor={pages[-1]['next']}").json)
    assert [len(page["records"]) for page in pages][:2] == [8, 8]
    found = [record["key"].encode() for page in pages for record in page["records"]]
    assert [name for name in found if name in names] == names


def test_a_customers_trips_in_a_period_are_in_one_lane(client, key, stack):
    """Keys customer|time, partitioned by the customer: 9 partitions, of which a range asks one."""
    customers = [b"%b-%d" % (key, number) for number in range(6)]
    names = [b"%b|2026-11-%02d" % (customer, day) for customer in customers for day in range(1, 8)]
    positions = [client.put("trips", name, b'{"day": "%b"}' % name[-2:]) for name in names]
    for customer in customers:
        own = {
            at.split(":")[0] for name, at in zip(names, positions, strict=True) if name.startswith(customer)
        }
        assert own == {str(routing.partition_for(customer, 9))}
    # A producer that looks at the whole key puts it elsewhere: it is found all the same.
    elsewhere = Producer({"bootstrap.servers": stack.kafka_bootstrap, "partitioner": "murmur2_random"})
    strays = [b"%b|2026-11-%02d" % (customers[2], day) for day in range(8, 14)]
    placed = []
    for name in strays:
        elsewhere.produce("trips", b"{}", name, on_delivery=lambda _, message: placed.append(message))
    assert elsewhere.flush(30) == 0
    positions += [f"{message.partition()}:{message.offset()}" for message in placed]
    for name, position in zip([*names, *strays], positions, strict=True):
        seen(client, "trips", name, position)

    customer, partition = customers[2].decode(), str(routing.partition_for(customers[2], 9))
    asked = f"/topics/trips/keys?from={customer}%7C2026-11-03&to={customer}%7C2026-11-10"
    answer = client.request("GET", asked).json
    days = [f"{customer}|2026-11-{day:02}" for day in range(3, 10)]
    assert [record["key"] for record in answer["records"]] == days
    assert list(answer["watermarks"]) == [partition]
    first = client.request("GET", asked + "&limit=4").json
    rest = client.request("GET", f"{asked}&limit=4&cursor={first['next']}").json
    assert [record["key"] for page in (first, rest) for record in page["records"]] == days
    assert list(rest["watermarks"]) == [partition]

    every = client.request("GET", f"/topics/trips/keys?prefix={key.decode()}-&limit=100").json
    assert [record["key"].encode() for record in every["records"]] == sorted([*names, *strays])
    assert len(every["watermarks"]) == 9
    together = post(
        client, "trips", [name for name in names if name.startswith(customers[4])], "?atomic=true"
    )
    assert [record["value"]["day"] for record in together.json["records"]] == [
        f"{day:02}" for day in range(1, 8)
    ]
    count = sum(str(message.partition()) != partition for message in placed)

    def are_counted() -> bool:
        topic = client.request("GET", "/topics/trips").json
        assert topic["partition_by"] == "prefix:|"
        return min(topic["strays"].get(name, 0) for name in ("strays", "whole_key")) >= count

    eventually(are_counted)


def test_a_history_and_the_value_as_of_a_time_are_read(client, key):
    positions = [client.put("bookings", key, b"%d" % number) for number in range(3)]
    deleted = client.request("DELETE", path_of("bookings", key)).json["position"]
    seen(client, "bookings", key, deleted)
    history = client.request("GET", path_of("bookings", key) + "/history").json["records"]
    assert [record["position"] for record in history] == [deleted, *positions[::-1]]
    assert history[0]["deleted"]
    assert [record["value"] for record in history[1:]] == [2, 1, 0]
    assert client.get("bookings", key, f"?as_of={positions[1]}").body == b"1"
    assert client.get("bookings", key, f"?as_of={history[1]['timestamp']}").status in {200, 404}
    assert client.get("bookings", key, "?as_of=2100-01-01").status == 404
    assert client.get("bookings", key, "?as_of=2013-01-01").status == 404


def test_a_topic_reports_its_layout_and_its_lanes(client, key):
    position = client.put("striped", key, b"1")
    seen(client, "striped", key, position)
    topic = client.request("GET", "/topics/striped").json
    assert (topic["partitions"], topic["stripes"], topic["partitioner"]) == (3, 4, "murmur2")
    assert len(topic["lanes"]) == 12
    assert len({lane["shard"] for lane in topic["lanes"]}) == 3
    partition, offset = map(int, position.split(":"))
    assert all(lane["next_offset"] > offset for lane in topic["lanes"] if lane["partition"] == partition)
    hosts = client.request("GET", "/metadata/partitions?topic=flights").json
    assert sorted(number for numbers in hosts.values() for number in numbers) == list(range(9))
