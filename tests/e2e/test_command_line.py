"""The commands that talk to an API, on the whole stack."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.servers.own import create_topic

from keylane_client.cli.commands import keylane
from keylane_client.cli.errors import CommandFailed


@pytest.fixture
def run(applied_stack):
    """Run a command against the stack and return what it prints."""

    def run_command(*arguments: str, exit_code: int = 0) -> str:
        result = CliRunner().invoke(keylane, [*arguments, "--url", applied_stack.http_url])
        if isinstance(result.exception, CommandFailed):
            assert result.exception.exit_code == exit_code, result.exception
            return str(result.exception)
        assert result.exit_code == exit_code, result.output
        return result.stdout

    return run_command


@pytest.fixture
def name(key) -> str:
    """A key that no other test uses."""
    return "cli-" + key.decode()


def test_a_key_is_put_read_at_its_position_and_deleted(run, name):
    position = run("put", "bookings", name, '{"to": "Zug"}').strip()
    wait = ("--min-position", position, "--wait", "20")
    assert run("get", "bookings", name, *wait) == '{"to": "Zug"}\n'
    document = json.loads(run("get", "bookings", name, "--json"))
    assert (document["position"], document["value"]) == (position, {"to": "Zug"})
    assert run("scan", "bookings", "--prefix", name) == f'{name}\t{{"to": "Zug"}}\n'
    assert run("scan", "bookings", "--prefix", name, "--keys-only") == f"{name}\n"
    assert run("watch", "bookings", name, "-n", "1").startswith(position)
    gone = run("delete", "bookings", name).strip()
    wait = ("--min-position", gone, "--wait", "20")
    assert "key-absent" in run("get", "bookings", name, *wait, exit_code=3)
    entries = run("history", "bookings", name).splitlines()
    assert [line.split("\t")[2] for line in entries] == ["deleted", '{"to": "Zug"}']


def test_topics_and_lanes_are_shown(run):
    assert "bookings\t9" in run("topics").splitlines()
    assert "9 partitions" in run("lanes", "bookings")
    assert len(json.loads(run("lanes", "striped", "--json"))["lanes"]) == 12


def test_a_tail_begins_where_it_is_told_to(run, name):
    run("put", "striped", name, "1")
    first, *_ = run("tail", "striped", "--from", "earliest", "-n", "1").splitlines()
    assert first.count("\t") == 3
    assert "unknown-topic" in run("tail", "nowhere", exit_code=3)


def test_open_prints_where_the_api_shows_itself(applied_stack, run):
    found = json.loads(run("open", "--no-browser", "--json"))
    assert found == {"url": f"{applied_stack.http_url}/console", "opened": False}


def test_a_file_is_loaded_and_the_load_goes_on_behind_a_broken_row(run, name, tmp_path):
    path = tmp_path / "orders.csv"
    path.write_text(f"id,to\n{name}-1,Zug\n{name}-2,Chur\n{name}-3\n", encoding="utf-8")
    arguments = ("load", str(path), "--topic", "bookings", "--key", "id", "--batch", "1")
    assert "line 4" in run(*arguments, exit_code=2)
    done = json.loads(run(*arguments, "--on-error", "skip", "--json"))
    assert done == {"written": 0, "skipped": 1, "resumed": 2, "readable": True}
    partition, offset = run("put", "bookings", f"{name}-2", "{}").strip().split(":")
    run("get", "bookings", f"{name}-2", "--min-position", f"{partition}:{offset}", "--wait", "20")
    loaded = run("get", "bookings", f"{name}-2", "--at", f"{partition}:{int(offset) - 1}")
    assert json.loads(loaded) == {"id": f"{name}-2", "to": "Chur"}


def test_what_a_load_has_written_can_be_read_at_once(run, name, tmp_path):
    path = tmp_path / "orders.csv"
    path.write_text("id,to\n" + "".join(f"{name}-{number},Zug\n" for number in range(50)), encoding="utf-8")
    arguments = ("load", str(path), "--topic", "striped", "--key", "id")
    assert run(*arguments) == "50 rows written, 0 skipped\n"
    for number in range(50):
        assert json.loads(run("get", "striped", f"{name}-{number}")) == {
            "id": f"{name}-{number}",
            "to": "Zug",
        }


def test_a_load_into_a_topic_that_no_job_keeps_says_so(run, applied_stack, name, tmp_path):
    create_topic(applied_stack.kafka_bootstrap, name, 1)
    path = tmp_path / "orders.jsonl"
    path.write_text('{"id": "a"}\n', encoding="utf-8")
    arguments = ("load", str(path), "--topic", name, "--key", "id", "--json")
    done = {"written": 1, "skipped": 0, "resumed": 0, "readable": False}
    assert json.loads(run(*arguments)) == json.loads(run(*arguments, "--no-wait")) == done


def test_the_doctor_finds_the_stack_well(stack, run, tmp_path, monkeypatch):
    monkeypatch.setenv("KEYLANE_REDIS_NODES", stack.redis_nodes)
    monkeypatch.setenv("KEYLANE_SCHEMA_REGISTRY_URL", "")
    lines = run("doctor", "--data-dir", str(tmp_path), "--json").splitlines()
    checks = {check["name"]: check for check in map(json.loads, lines)}
    assert checks["api: redis"]["result"] == checks["api: kafka"]["result"] == "ok"
    assert checks["clock"]["result"] == "ok"
    assert checks["maxmemory-policy"] == {
        "name": "maxmemory-policy",
        "result": "ok",
        "found": "noeviction",
        "advice": "",
    }
