from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request

import psutil
import pytest
from confluent_kafka.admin import AdminClient
from tests.servers.own import wait_writable

from keylane_local.errors import BadInput, PartFailed, PortInUse, StackError
from keylane_local.process.guard import guarded
from keylane_local.process.processes import has_ended
from keylane_local.stack.plan import StackOptions
from keylane_local.stack.stack import Stack


@pytest.fixture
def data(tmp_path):
    """A data folder; what is started in it ends with the test."""
    with guarded(tmp_path / "a data folder") as folder:
        yield folder


@pytest.fixture
def make(data):
    """Give a maker of stacks in the one data folder: without a job, no replicas, for speed."""

    def stack(config=None, variables=None, **options):
        chosen = StackOptions(job=False, replicas=0, **options)
        return Stack(data, config, options=chosen, variables=variables)

    return stack


def _get(url, body=None):
    request = urllib.request.Request(url, body, method="GET" if body is None else "PUT")  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as got:  # noqa: S310
        return json.load(got)


def test_a_stack_serves_stops_and_restarts_with_its_data(make, tmp_path):
    config = tmp_path / "keylane.toml"
    config.write_text("[topics.flights]\npartitions = 5\n[topics.other]\n")
    with make(config) as stack:
        wait_writable(stack.kafka)
        assert _get(f"{stack.http_url}/topics/flights/keys/b", b"written")["offset"] == 0
        assert _get(f"{stack.http_url}/health")["ready"] is True
        admin = AdminClient({"bootstrap.servers": stack.kafka_bootstrap})
        topics = admin.list_topics(timeout=60).topics
        assert {name: len(topics[name].partitions) for name in ("flights", "other")} == {
            "flights": 5,
            "other": 9,
        }
        node = stack.redis.nodes[2]
        node.command("SET", "foo", "kept")  # slot 12182, the last shard's
        assert make().up() == []  # it is up already

        stack.kafka.kill()
        node.kill()
        assert sorted(make().up()) == ["kafka", "redis"]
        assert all(part.running for part in stack.parts)
        server = stack.server.program.process

    assert not any(part.running for part in stack.parts)
    assert has_ended(server)
    with make() as again:
        assert again.redis.nodes[2].command("GET", "foo") == "kept"
        admin = AdminClient({"bootstrap.servers": again.kafka_bootstrap})
        assert len(admin.list_topics(timeout=60).topics["flights"].partitions) == 5
    assert make().down(wipe=True) == []
    assert not again.data.exists()


@pytest.mark.parametrize("part", ["kafka", "redis", "server"])
def test_a_port_in_use_is_named_before_anything_starts(make, data, part):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            PortInUse, match=f"port {port}, requested for {part}, is in use by .*pid {os.getpid()}"
        ):
            make(**{f"{'http' if part == 'server' else part}_port": port}).up()
    assert not (data / "run").exists()


def test_a_redis_that_fails_to_start_is_named_with_its_log_and_the_rest_is_stopped(make, data):
    log = data / "redis" / "node-2" / "appendonlydir"
    log.mkdir(parents=True)
    (log / "appendonly.aof.manifest").write_text("this names no files\n")
    stack = make()
    with pytest.raises(PartFailed, match="redis-") as caught:
        stack.up()
    assert "manifest" in caught.value.tail
    assert not stack.kafka.running
    assert not any(node.running for node in stack.redis.nodes)


def test_down_leaves_a_foreign_process_alone(make, data):
    with (
        make() as stack,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as foreign,
    ):
        pid_file = stack.server.program.pid_file
        saved = json.loads(pid_file.read_text())
        started = psutil.Process(foreign.pid).create_time() - 60
        another = {"pid": foreign.pid, "started": started, "after_boot_s": 0.0}
        pid_file.write_text(json.dumps(saved | another))
        assert "server" not in stack.down()
        assert foreign.poll() is None
        pid_file.write_text(json.dumps(saved))
        assert stack.down() == ["server"]
        foreign.communicate(b"\n")


def test_a_setting_that_the_server_refuses_fails_the_start(make):
    with pytest.raises(PartFailed, match="server failed") as caught:
        make(variables={"KEYLANE_BASE_PATH": "kafka/"}).up()
    assert "KEYLANE_BASE_PATH" in caught.value.tail


def test_a_broken_configuration_is_named_before_anything_starts(make, data, tmp_path):
    config = tmp_path / "keylane.toml"
    config.write_text("[topics.flights]\npartitions = nine\n")
    with pytest.raises(BadInput, match=r"keylane\.toml.*line 2"):
        make(config).up()
    assert not data.exists()


def test_two_commands_do_not_change_one_stack_at_the_same_time(make):
    stack = make()
    with stack._locked(), pytest.raises(StackError, match="another command"):
        make().up()


def _keylane(data, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "keylane_client.cli", *arguments],
        env={**os.environ, "KEYLANE_DATA": str(data)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_commands_report_their_findings_by_exit_code(data, make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _keylane(data, "status").returncode == 1
    assert _keylane(data, "down").stdout == "No stack is running here.\n"
    without_config = _keylane(data, "up")
    assert (without_config.returncode, without_config.stdout) == (2, "")
    assert "keylane: no keylane.toml in this folder" in without_config.stderr

    with make() as stack:
        status = _keylane(data, "status")
        assert status.returncode == 0
        assert stack.http_url in status.stdout
        log = _keylane(data, "logs", "server", "-n", "5")
        assert (log.returncode, "keylane: ready" in log.stdout) == (0, True)
        unknown = _keylane(data, "logs", "sparkle")
        assert unknown.returncode == 2
        assert "logs: kafka, redis-0, redis-1, redis-2, server" in unknown.stderr
        stack.server.kill()
        assert _keylane(data, "status").returncode == 1
        assert _keylane(data, "down").stdout.endswith("The stack is down.\n")
    assert not any(part.running for part in stack.parts)


def test_a_kafka_that_fails_to_start_is_named_with_the_end_of_its_log_and_the_rest_is_stopped(make, data):
    (data / "kafka" / "data").mkdir(parents=True)
    (data / "kafka" / "data" / "meta.properties").write_text("version=1\nnode.id=77\ncluster.id=other\n")
    done = _keylane(data, "up", "--no-job", "--replicas", "0")
    assert done.returncode == 1
    assert "node" in done.stderr.partition("kafka.log:")[2]
    assert "keylane: kafka failed: it ended while it was starting" in done.stderr
    stack = make()
    assert not stack.kafka.running
    assert not any(node.running for node in stack.redis.nodes)


@pytest.mark.long
def test_localstack_is_started_deployed_to_and_stopped_with_the_stack(data):
    with guarded(data):
        up = _keylane(data, "up", "--no-job", "--replicas", "0", "--localstack")
        assert up.returncode == 0, up.stderr
        url = up.stdout.split("The API is at:\n  ")[1].split()[0]
        assert json.load(urllib.request.urlopen(f"{url}/health", timeout=60))["ready"] is True  # noqa: S310
        assert "localstack" in _keylane(data, "status").stdout
        wrong = _keylane(data, "deploy", "-p", "Authorization")
        assert (wrong.returncode, "NAME=VALUE" in wrong.stderr) == (2, True)
        again = _keylane(data, "deploy", "-p", "Authorization=API_KEY")
        assert again.returncode == 0, again.stderr
        assert "with the header x-api-key: " in again.stdout
        assert "localstack stopped" in " ".join(_keylane(data, "down").stdout.split())
        refused = _keylane(data, "deploy")
        assert "no LocalStack runs here" in refused.stderr
