from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
RECIPE = ("worker/connect-runtime-4.jar", "plugins/redis/sink.jar", "sink.properties")


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    before = set(sys.modules)
    import bench_peers  # noqa: PLC0415

    yield bench_peers
    for name in set(sys.modules) - before:
        if str(BENCH) in str(getattr(sys.modules[name], "__file__", "")):
            sys.modules.pop(name)


def test_a_peer_that_is_not_installed_is_one_line_that_names_the_recipe(peers, monkeypatch, capsys):
    monkeypatch.delenv(peers.CONNECT, raising=False)
    peers.main([])
    (line,) = capsys.readouterr().out.splitlines()
    assert "not installed" in line
    assert peers.CONNECT in line
    assert "docs/benchmarks.md" in line


@pytest.mark.parametrize("lacking", RECIPE)
def test_a_folder_that_lacks_a_part_of_the_recipe_is_named_with_it(peers, tmp_path, lacking):
    for name in RECIPE:
        if name != lacking:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
    why = peers.why_not(str(tmp_path))
    assert str(tmp_path) in why
    assert lacking.partition("/")[0] in why
    (tmp_path / lacking).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / lacking).touch()
    assert peers.why_not(str(tmp_path)) == ""


def test_a_connector_gets_topic_tasks_and_nodes_with_its_own_settings(peers):
    import connect_sink  # noqa: PLC0415

    values = {"topic": "ingest", "tasks": 9, "redis_nodes": "127.0.0.1:1,127.0.0.1:2"}
    text = connect_sink.sink_properties("connector.class=x\nredis.hosts={redis_nodes}\n", values)
    assert text.splitlines() == [
        "name=peer",
        "topics=ingest",
        "tasks.max=9",
        "connector.class=x",
        "redis.hosts=127.0.0.1:1,127.0.0.1:2",
    ]
    assert connect_sink.connector_class(text) == "x"
    assert connect_sink.connector_class("password=secret\n") == "not named"


def test_a_task_that_failed_is_shown_with_its_error_and_the_cause_and_without_its_stack(peers):
    import connect_sink  # noqa: PLC0415

    trace = "x.Exception: Unable to connect\n\tat a.b\nCaused by: java.io.IOException: refused\n\tat c.d\n"
    tasks = [{"id": 0, "state": "RUNNING"}, {"id": 3, "state": "FAILED", "trace": trace}]
    expected = "task 3: x.Exception: Unable to connect; Caused by: java.io.IOException: refused"
    assert connect_sink.failed_tasks({"tasks": tasks}) == [expected]
    assert connect_sink.failed_tasks({"tasks": [{"id": 1, "state": "FAILED"}]}) == ["task 1: no trace"]
    assert connect_sink.failed_tasks({}) == []
