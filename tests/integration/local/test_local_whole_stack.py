from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid

import pytest
from tests.servers.own import wait_writable


@pytest.fixture
def call(stack):
    """Give a caller of the stack's server: (status, body, position of the answer)."""

    def request(method, key, body=None, position=None):
        # A job that has just started takes seconds for its first batch on a busy machine.
        headers = {"Keylane-Min-Position": position, "Prefer": "wait=20"} if position else {}
        address = f"{stack.http_url}/topics/flights/keys/{key}"
        made = urllib.request.Request(address, data=body, method=method, headers=headers)  # noqa: S310
        try:
            with urllib.request.urlopen(made, timeout=30) as got:  # noqa: S310
                return got.status, got.read(), got.headers["Keylane-Position"]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), error.headers["Keylane-Position"]

    return request


def test_a_write_over_http_is_read_back_and_its_deletion_too(call):
    key = uuid.uuid4().hex
    status, _, position = call("PUT", key, b"value")
    assert status == 201
    assert call("GET", key, position=position) == (200, b"value", position)
    status, _, position = call("DELETE", key)
    assert status == 200
    assert call("GET", key, position=position)[0] == 404


@pytest.mark.parametrize("name", ["job", "server", "kafka"])
def test_after_a_crash_and_restart_of_a_part_writes_are_read_again(stack, call, name):
    part = getattr(stack, name)
    key = uuid.uuid4().hex
    _, _, position = call("PUT", key, b"before")
    assert call("GET", key, position=position)[:2] == (200, b"before")
    part.kill()
    assert not part.running
    part.start()
    part.wait_ready()
    wait_writable(stack.kafka)
    status, body, position = call("PUT", key, b"after")
    assert (status, sorted(json.loads(body))) == (201, ["offset", "partition", "position"])
    assert call("GET", key, position=position)[:2] == (200, b"after")


def test_all_keys_stay_readable_after_the_crash_of_a_primary(stack, call):
    keys = [uuid.uuid4().hex for _ in range(12)]
    positions = [call("PUT", key, b"value")[2] for key in keys]
    for key, position in zip(keys, positions, strict=True):
        assert call("GET", key, position=position)[:2] == (200, b"value")
    victim = stack.redis.primaries()[0]
    victim.kill()
    assert [call("GET", key)[:2] for key in keys] == [(200, b"value")] * 12
    victim.start()
    stack.redis.wait_ready()
    assert [call("GET", key)[:2] for key in keys] == [(200, b"value")] * 12
