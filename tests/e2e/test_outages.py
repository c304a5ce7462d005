"""Outages of parts of the stack: what still works, what fails with which error, and the recovery."""

from __future__ import annotations

import time

from click.testing import CliRunner
from tests.e2e.client import path_of
from tests.support.stopwatch import takes_about

from keylane_client.cli import load_wait
from keylane_client.cli.commands import keylane

TOPIC = "flights"


def load_one_row(stack, path, key: bytes) -> BaseException | None:
    """Run `keylane load` with a file of one row; return what it raised."""
    path.write_text(f"id\n{key.decode()}-loaded\n", encoding="utf-8")
    arguments = ["load", str(path), "--topic", TOPIC, "--key", "id", "--url", stack.http_url]
    return CliRunner().invoke(keylane, arguments).exception


def test_reads_continue_without_the_job_and_report_their_age(stack, client, key, tmp_path, monkeypatch):
    position = client.put(TOPIC, key, b"1")
    assert client.get_at(TOPIC, key, position).status == 200
    stack.job.kill()
    killed_s = time.monotonic()
    try:
        ages = []
        while not ages or ages[-1] < 3000:
            answer = client.get(TOPIC, key)
            assert (answer.status, answer.body) == (200, b"1")
            ages.append(int(answer.headers["Keylane-Age-Ms"]))
            assert time.monotonic() - killed_s < 60
            time.sleep(0.05)
        assert ages == sorted(ages)
        assert ages[-1] >= (time.monotonic() - killed_s) * 1000 - 500
        later = client.put(TOPIC, key, b"2")
        # What waits for the job says so in time: a load, and a read of a partition that may be a new one.
        monkeypatch.setattr(load_wait, "WAIT_S", 1.0)
        assert isinstance(load_one_row(stack, tmp_path / "rows.csv", key), load_wait.NotReadableYet)
        assert client.get(TOPIC, key, Keylane_Min_Position="9:0", Prefer="wait=1").status == 412
    finally:
        stack.job.start()
        stack.job.wait_ready()
    answer = client.get_at(TOPIC, key, later)
    assert (answer.status, answer.body) == (200, b"2")


def test_without_kafka_writes_fail_in_time_reads_continue_and_both_recover(stack, client, key):
    position = client.put(TOPIC, key, b"1")
    assert client.get_at(TOPIC, key, position).status == 200
    stack.kafka.stop()
    try:
        with takes_about(4):
            refused = client.request("PUT", path_of(TOPIC, key), b"2")
            assert refused.status == 503, refused.body
            assert int(refused.headers["Retry-After"]) >= 1
            assert refused.json["type"] == "urn:keylane:problem:log-unavailable"
        assert client.get(TOPIC, key).body == b"1"
    finally:
        stack.kafka.start()
        stack.kafka.wait_ready()
    until_s = time.monotonic() + 60
    while (answer := client.request("PUT", path_of(TOPIC, key), b"3")).status != 201:
        assert answer.status == 503, answer.body
        assert time.monotonic() < until_s
    read = client.get_at(TOPIC, key, answer.json["position"])
    assert (read.status, read.body) == (200, b"3")
