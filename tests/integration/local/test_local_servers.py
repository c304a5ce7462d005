from __future__ import annotations

import pytest
from tests.servers.own import READY_WITHIN_S, own_kafka, wait_writable

from keylane_local.process.guard import guarded
from keylane_local.process.ports import HOST, Ports
from keylane_local.servers.redis_cluster import RedisCluster


@pytest.mark.parametrize("stopped", [True, False])
def test_a_cluster_whose_making_was_broken_off_is_made_by_the_next_start(tmp_path, monkeypatch, *, stopped):
    """By Ctrl-C, or because Kafka did not start. It was an error for good."""

    def interrupt(*_) -> bool:
        raise KeyboardInterrupt

    ports = Ports()
    addresses = [(HOST, ports.any(), ports.any()) for _ in range(6)]
    folders = {name: tmp_path / name for name in ("run", "logs")}
    first, second = (RedisCluster(tmp_path / "redis", addresses=addresses, **folders) for _ in range(2))
    with guarded(tmp_path):
        first.start()
        monkeypatch.setattr(first, "_knows_all", interrupt)
        with pytest.raises(KeyboardInterrupt):
            first.wait_ready(READY_WITHIN_S)
        if stopped:
            first.stop()
        second.start()
        second.wait_ready(READY_WITHIN_S)
        assert len(second.primaries()) == 3


def test_a_broker_starts_whatever_the_language_of_java_and_the_name_of_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=tr -Duser.country=TR")
    with own_kafka(tmp_path / "pfad mit ü") as broker:
        wait_writable(broker)
        broker.stop()
