"""State for the benchmarks of reads: a topic written with codec and routing; and functions that read it."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import redis
from redis.cluster import ClusterNode
from redis.cluster import RedisCluster as RedisClient
from tests.support.proxy_events import HttpRequest, build_proxy_event

from keylane import routing
from keylane.model.records import Layout, Watermark
from keylane.state import codec
from keylane.state import redis_keys as redis_keys_state

if TYPE_CHECKING:
    from collections.abc import Iterator


CONTEXT = SimpleNamespace(
    aws_request_id="bench", function_name="query", get_remaining_time_in_millis=lambda: 29_000
)
HEADERS = (("Host", "localhost"), ("Accept", "*/*"), ("User-Agent", "bench"))


def event_of(
    method: str, target: str, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()
) -> dict[str, Any]:
    return build_proxy_event(
        HttpRequest(method, target, HEADERS + headers, body, "127.0.0.1"), "bench-request"
    )


LAYOUT = Layout("flights", partition_count=9)


@contextlib.contextmanager
def node_clients(nodes: str) -> Iterator[list[redis.Redis]]:
    """Yield a client of each node alone."""
    addresses = (address.rpartition(":") for address in nodes.split(","))
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(redis.Redis(host, int(port))) for host, _, port in addresses]


def client(nodes: str) -> RedisClient:
    """Return redis-py's client for the cluster."""
    addresses = [address.rpartition(":") for address in nodes.split(",")]
    return RedisClient(startup_nodes=[ClusterNode(host, int(port)) for host, _, port in addresses])


def redis_keys(key: bytes) -> tuple[int, bytes, bytes]:
    """Return slot, value's Redis key and watermark's Redis key of a record's key."""
    partition = routing.partition_for(key, LAYOUT.partition_count, LAYOUT.partitioner)
    slot = routing.slot_for(partition, 0, LAYOUT.partition_count, LAYOUT.stripes)
    tag = routing.hash_tag(slot)
    return (
        slot,
        redis_keys_state.value_key(tag, LAYOUT.topic, LAYOUT.generation, key),
        redis_keys_state.watermark_key(tag, LAYOUT.topic, LAYOUT.generation, partition, 0),
    )


def fill(nodes: str, count: int, value_bytes: int) -> list[tuple[bytes, bytes]]:
    """Write `count` records in the job's format; return them as (key, value)."""
    now_ms = time.time_ns() // 1_000_000
    records = [(b"N%05dAA" % number, value_of(number, value_bytes)) for number in range(count)]
    watermark = codec.encode_watermark(Watermark(count, 1, now_ms, now_ms))
    with client(nodes) as filled:
        filled.set(redis_keys_state.layout_key(LAYOUT.topic), codec.encode_layout(LAYOUT))
        for start in range(0, count, 1000):
            with filled.pipeline() as pipe:
                for offset, (key, value) in enumerate(records[start : start + 1000], start):
                    _, value_key, watermark_key = redis_keys(key)
                    pipe.set(value_key, codec.encode_record(value, offset, now_ms))
                    pipe.set(watermark_key, watermark)
                pipe.execute()
    return records


def value_of(number: int, value_bytes: int) -> bytes:
    """Return a JSON object of this many bytes."""
    start = f'{{"flight":{number},"origin":"EWR","dest":"IAH","dep_delay":{number % 97},"note":"'
    return f'{start}{"x" * max(0, value_bytes - len(start) - 2)}"}}'.encode()


def get_event(key: bytes) -> dict[str, Any]:
    """Return the proxy event of a GET of the key."""
    return event_of("GET", f"/topics/{LAYOUT.topic}/keys/{key.decode()}")


def environment(nodes: str) -> dict[str, str]:
    """Return the variables of the query function."""
    return {"KEYLANE_REDIS_NODES": nodes, "KEYLANE_REDIS_TLS": "false"}


def check(answer: dict[str, Any], value: bytes) -> None:
    """Exit unless the function returned the record: its speed would be meaningless."""
    if answer["statusCode"] != 200 or json.loads(answer["body"]) != json.loads(value):
        sys.exit(f"the function did not answer with the record's value: {answer}")
