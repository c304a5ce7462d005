"""Reads over TLS, from a server whose certificate a private authority signed."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import redis
from tests.servers.own import deadline, eventually
from tests.support.certificates import certify
from tests.support.stopwatch import takes_about

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import redis_settings
from keylane.errors import StateUnavailable
from keylane_local.process.ports import Ports
from keylane_local.tools import find_redis

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = b"N14228"


@pytest.fixture(scope="module")
def certificate_and_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A cluster of one node that speaks TLS alone and holds KEY."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, private = certify(folder)
    ports = Ports()
    port, bus_port = ports.any(), ports.any()
    options = {
        "port": 0,
        "tls-port": port,
        "cluster-port": bus_port,
        "bind": "127.0.0.1",
        "dir": folder,
        "cluster-enabled": "yes",
        "tls-cluster": "yes",
        "tls-auth-clients": "no",
        "tls-cert-file": certificate,
        "tls-key-file": private,
        "tls-ca-cert-file": certificate,
        "save": "",
    }
    server = find_redis()
    assert server
    command = [str(server), *(word for name, value in options.items() for word in (f"--{name}", str(value)))]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log) as process:
        try:
            with redis.Redis(port=port, host="127.0.0.1", ssl=True, ssl_ca_certs=str(certificate)) as client:

                def takes(*words: bytes | str | int) -> bool:
                    with suppress(redis.RedisError):
                        return bool(client.execute_command(*words))
                    return False

                eventually(lambda: takes("CLUSTER", "ADDSLOTSRANGE", 0, routing.SLOTS - 1))
                eventually(lambda: takes("SET", KEY, b"over TLS"))
            yield certificate, port
        finally:
            process.terminate()


def state_over_tls(port: int, ca_file: str) -> RedisState:
    environment = {
        "KEYLANE_REDIS_NODES": f"127.0.0.1:{port}",
        "KEYLANE_REDIS_TLS": "true",
        "KEYLANE_REDIS_TLS_CA_FILE": ca_file,
    }
    return RedisState(Cluster(redis_settings(environment)))


def test_state_is_read_over_tls(certificate_and_port: tuple[Path, int]):
    certificate, port = certificate_and_port
    state = state_over_tls(port, str(certificate))
    for _ in range(3):
        assert state.read(routing.key_slot(KEY), [KEY], deadline()) == [b"over TLS"]
    state.close()


def test_certificate_of_an_unknown_authority_is_refused(certificate_and_port: tuple[Path, int]):
    _, port = certificate_and_port
    state = state_over_tls(port, "")
    with pytest.raises(StateUnavailable):
        state.read(routing.key_slot(KEY), [KEY], deadline(500))
    state.close()


def test_server_that_speaks_no_tls_is_state_unavailable_in_time(
    redis_cluster: str, certificate_and_port: tuple[Path, int]
):
    certificate, _ = certificate_and_port
    port = int(redis_cluster.split(",", maxsplit=1)[0].rpartition(":")[2])
    state = state_over_tls(port, str(certificate))
    with takes_about(0.5), pytest.raises(StateUnavailable):
        state.read(0, [KEY], deadline(500))
    state.close()
