"""`keylane up --host`: the stack on an address that containers reach, and back on loopback."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import psutil
import pytest
import redis
from confluent_kafka.admin import AdminClient

from keylane_local.process.guard import guarded
from keylane_local.process.ports import HOST, is_free
from keylane_local.stack.plan import StackOptions
from keylane_local.stack.stack import Stack

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def address() -> str:
    """An address of this machine that is not loopback: as a container would use it."""
    for addresses in psutil.net_if_addrs().values():
        for each in addresses:
            if each.family == socket.AF_INET and not each.address.startswith("127."):
                return str(each.address)
    raise AssertionError("this machine has no address but loopback")


def announced(stack: Stack, host: str) -> set[str]:
    """The hosts that Kafka and Redis name to their clients."""
    admin = AdminClient({"bootstrap.servers": f"{host}:{stack.kafka.port}"})
    brokers = {each.host for each in admin.list_topics(timeout=20).brokers.values()}
    port = stack.redis.nodes[0].port
    with redis.RedisCluster(host=host, port=port) as client:
        nodes = {node.host for node in client.get_nodes()}
    return brokers | nodes


def keylane(data: Path, *arguments: str) -> str:
    """What a command prints that ends well."""
    command = [sys.executable, "-m", "keylane_client.cli", *arguments, "--data-dir", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_containers_reach_kafka_and_redis_and_the_data_stays_when_they_are_hidden_again(
    tmp_path: Path, address: str
):
    with guarded(tmp_path / "data") as data:
        printed = keylane(data, "up", "--no-job", "--host", address)
        stack = Stack(data, options=StackOptions(job=False))
        assert f"listen on {address} without passwords" in printed
        assert str(data / "sam-local.json") in printed
        variables = json.loads((data / "sam-local.json").read_text())["Parameters"]
        assert variables["KEYLANE_KAFKA_BOOTSTRAP"].startswith(f"{address}:")
        assert all(each.startswith(f"{address}:") for each in variables["KEYLANE_REDIS_NODES"].split(","))
        try:
            assert announced(stack, address) == {address}
            assert is_free(stack.kafka.port, HOST)
            assert is_free(stack.redis.nodes[0].port, HOST)
            with redis.RedisCluster(host=address, port=stack.redis.nodes[0].port) as client:
                client.set("kept", "1")
            with urllib.request.urlopen(f"{stack.http_url}/health", timeout=30) as answer:  # noqa: S310
                assert json.load(answer)["ready"]
            assert stack.up() == []
            assert stack.state
            assert stack.state.host == address
        finally:
            keylane(data, "down")
        hidden = Stack(data, options=StackOptions(job=False, host=HOST))
        hidden.up()
        try:
            assert announced(hidden, HOST) == {HOST}
            with redis.RedisCluster(host=HOST, port=hidden.redis.nodes[0].port) as client:
                assert client.get("kept") == b"1"
        finally:
            hidden.down()
