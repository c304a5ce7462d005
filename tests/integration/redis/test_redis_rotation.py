"""A password of Redis that is rotated while requests and the job go on."""

from __future__ import annotations

import json
import threading
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import redis
from tests.servers.own import PATIENCE_S, deadline, fill, own_cluster
from tests.support import lanes as t
from tests.support.builders import a_layout, a_topic, an_event, layout_entry, load_handler

from keylane.adapters.aws import references
from keylane.adapters.redis.cluster import Cluster, RedisSettings
from keylane.adapters.redis.resp import encode_command
from keylane.adapters.redis.state import RedisState
from keylane.errors import SettingsUnavailable, StateUnavailable
from keylane_spark.lanes.lane import LaneTarget

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.aws import Aws

    from keylane_local.servers.redis_cluster import RedisCluster

SLACK_S = 3.0


class User:
    """A user of all nodes, whose password changes."""

    def __init__(self, cluster: RedisCluster) -> None:
        self.name = f"u{uuid.uuid4().hex}"
        self.cluster = cluster
        self.password = ""
        self.set_password("first")

    def set_password(self, password: str) -> None:
        """Change it on one node after the other, and close the connections that the node has."""
        self.password = password
        for node in self.cluster.nodes:
            with redis.Redis(port=node.port) as client:
                rights = ("reset", "on", f">{password}", "~*", "+@all")
                client.execute_command("ACL", "SETUSER", self.name, *rights)
                client.execute_command("CLIENT", "KILL", "USER", self.name)

    def settings(self) -> RedisSettings:
        """What a function reads from the secret store at this moment."""
        return replace(t.settings(self.cluster.addresses), username=self.name, password=self.password)


@pytest.fixture
def user(cluster: RedisCluster) -> Iterator[User]:
    made = User(cluster)
    yield made
    for node in cluster.nodes:
        with redis.Redis(port=node.port) as client:
            client.execute_command("ACL", "DELUSER", made.name)


@pytest.fixture
def secret(moto: Aws, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in moto.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", moto.environment["AWS_REGION"])
    references._provider.cache_clear()
    name = f"redis-{uuid.uuid4().hex}"
    with moto.client("secretsmanager") as store:
        store.create_secret(Name=name, SecretString="{}")
    yield name
    references._provider.cache_clear()


def keep(moto: Aws, secret: str, password: str) -> None:
    with moto.client("secretsmanager") as store:
        store.put_secret_value(SecretId=secret, SecretString=json.dumps({"password": password}))


def test_reads_go_on_while_the_password_is_rotated(
    user: User, moto: Aws, secret: str, monkeypatch: pytest.MonkeyPatch
):
    layout = a_layout(a_topic(), 1)
    lane = LaneTarget.of(layout, 0, 0)
    cluster = Cluster(t.settings(user.cluster.addresses))
    writer = t.writer_over(cluster, 1)
    writer.open([(lane, 0)])
    t.write(writer, lane, 0, [t.Event(0, b"ann", b"1")], 1, options=layout.options)
    cluster.close()
    fill(user.cluster.addresses, layout_entry(layout))
    keep(moto, secret, user.password)
    monkeypatch.setenv("KEYLANE_REDIS_NODES", user.cluster.addresses)
    monkeypatch.setenv("KEYLANE_REDIS_USERNAME", user.name)
    monkeypatch.setenv("KEYLANE_REDIS_PASSWORD", f"secretsmanager:{secret}#password")
    function = load_handler("query")

    def read() -> dict[str, Any]:
        event = an_event("GET", f"/topics/{layout.topic}/keys/ann", query={"partial": "true"})
        answer: dict[str, Any] = function.lambda_handler(event, None)
        return answer

    def rotate() -> None:
        for password in ("second", "third"):
            keep(moto, secret, password)
            user.set_password(password)
            rotated.append(password)

    assert read()["statusCode"] == 200
    references._provider.cache_clear()  # a function was started longer ago than a fetched value is reused
    rotated: list[str] = []
    thread = threading.Thread(target=rotate)
    thread.start()
    try:
        failed_at: list[float] = []
        last_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < last_s:
            answer = read()
            if answer["statusCode"] != 200:
                failed_at.append(time.monotonic())
            elif not thread.is_alive():
                break
    finally:
        thread.join()
    assert rotated == ["second", "third"]
    # The first rotation is read at once. The second comes within the 5 s for which a fetched value is used.
    assert not failed_at or failed_at[-1] - failed_at[0] < references.MAX_AGE_S + SLACK_S
    assert read()["statusCode"] == 200
    function.application.parts().store.state.close()


def test_the_job_writes_on_with_the_new_password(user: User):
    layout = a_layout(a_topic(), 1)
    lane = LaneTarget.of(layout, 0, 0)
    cluster = Cluster(replace(user.settings(), renewed=user.settings))
    writer = t.writer_over(cluster, 1)
    writer.open([(lane, 0)])
    t.write(writer, lane, 0, [t.Event(0, b"ann", b"1")], 1, options=layout.options)
    user.set_password("second")
    t.write(writer, lane, 1, [t.Event(1, b"ann", b"2")], 2, options=layout.options)
    cluster.close()
    values, watermark = t.held(user.cluster.addresses, lane, [b"ann"])
    assert values[b"ann"].value == b"2"
    assert watermark
    assert watermark.next_offset == 2


def test_a_node_that_still_has_the_former_password_gets_that(user: User):
    cluster = Cluster(replace(user.settings(), renewed=user.settings))
    cluster.refresh(deadline())
    changed, other = cluster.primaries()[:2]
    with redis.Redis(port=changed.port) as client:
        client.execute_command("ACL", "SETUSER", user.name, "resetpass", ">second")
        client.execute_command("CLIENT", "KILL", "USER", user.name)
    user.password = "second"
    ping = [encode_command(b"PING")]
    cluster.drop(changed)
    assert cluster.execute(changed, ping, deadline()) == [b"PONG"]
    cluster.drop(other)
    assert cluster.execute(other, ping, deadline()) == [b"PONG"]
    cluster.close()


def test_credentials_are_fetched_at_most_once_in_two_seconds(user: User):
    fetched: list[float] = []

    def unavailable() -> RedisSettings:
        fetched.append(time.monotonic())
        raise SettingsUnavailable("the store is away")

    state = RedisState(Cluster(replace(user.settings(), password="wrong", renewed=unavailable)))
    for _ in range(5):
        with pytest.raises(StateUnavailable, match="credentials"):
            state.read(0, [b"key"], deadline(2_000))
    assert 1 <= len(fetched) <= 1 + (time.monotonic() - fetched[0]) / 2
    state.close()


def test_a_password_that_a_cluster_did_not_have_before_is_read(tmp_path: Path):
    """NOAUTH: connections without credentials are accepted, and their commands are not."""
    with own_cluster(tmp_path) as cluster:
        anonymous = t.settings(cluster.addresses)
        state = RedisState(Cluster(replace(anonymous, renewed=lambda: replace(anonymous, password="new"))))
        for node in cluster.nodes:
            with redis.Redis(port=node.port) as client:
                client.config_set("requirepass", "new")
        assert state.read(0, [b"key"], deadline()) == [None]
        state.close()
