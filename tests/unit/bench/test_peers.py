from __future__ import annotations

import pytest
import yaml

from keylane_local.errors import PartFailed

RECIPE = ("worker/connect-runtime-4.jar", "plugins/redis/sink.jar", "sink.properties")


@pytest.fixture
def peers(bench_module):
    return bench_module("bench_peers")


@pytest.fixture
def shared(bench_module):
    return bench_module("peers")


WHY = "no request succeeded"
VARIABLES = ("KEYLANE_PEER_CONNECT_REDIS", "KEYLANE_PEER_KPRF", "KEYLANE_PEER_STREAMS")


@pytest.fixture
def uninstalled(monkeypatch):
    """No peer is installed, and the machine need not be quiet."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KEYLANE_BENCH_BUSY", "1")


@pytest.mark.usefixtures("uninstalled")
def test_each_peer_that_is_not_installed_is_one_line_that_names_the_recipe(peers, capsys):
    peers.main([])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(VARIABLES)
    for variable, part, line in zip(VARIABLES, peers.PARTS, lines, strict=True):
        assert line.startswith(f"{part}: ")
        assert f"not installed ({variable} is not set)" in line
        assert "tests/bench/PEERS.md" in line


@pytest.mark.usefixtures("uninstalled")
def test_only_the_chosen_parts_are_measured(peers, capsys):
    peers.main(["--only", "push", "lookup"])
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == ["push", "lookup"]


@pytest.mark.usefixtures("uninstalled")
@pytest.mark.parametrize(
    "error", [SystemExit(WHY), PartFailed("kprf", "it ended", tail=WHY), RuntimeError(WHY)]
)
def test_a_peer_that_fails_does_not_hide_the_others(peers, monkeypatch, capsys, error):
    def fail(_):
        raise error

    measured = []
    for name, part in peers.PARTS.items():
        monkeypatch.setattr(part, "why_not", str)
        monkeypatch.setattr(part, "measure", fail if name == "push" else measured.append)
    with pytest.raises(SystemExit, match="failed: push"):
        peers.main([])
    assert len(measured) == 2
    assert WHY in capsys.readouterr().err


def test_a_server_that_is_no_program_is_named_with_its_variable(peers, monkeypatch):
    part = peers.PARTS["push"]
    monkeypatch.setenv(part.KPRF, "/nowhere/kprf")
    assert "/nowhere/kprf (KEYLANE_PEER_KPRF) is no program" in part.why_not()


def test_kprf_waits_for_all_replicas_as_the_server_beside_it(peers):
    text = peers.PARTS["push"].settings_text("127.0.0.1:9", 1, 2)
    settings = yaml.safe_load(text)
    assert settings["kafka"] == {"brokers": ["127.0.0.1:9"], "request_required_acks": -1}
    assert settings["http"] == {"port": 1, "metrics_port": 2}


def test_a_command_gets_its_values_also_where_they_have_spaces(peers):
    values = {"topic": "flights", "folder": "/a b", "port": 7}
    words = peers.PARTS["lookup"].command_of("java -cp 'x y' --topic {topic} d={folder}:{port}", values)
    assert words == ["java", "-cp", "x y", "--topic", "flights", "d=/a b:7"]


def test_a_value_is_found_in_a_response_as_it_is_or_as_a_string(peers):
    holds = peers.PARTS["lookup"].holds
    assert holds(b'{"a": "b"}', b'{"a": "b"}')
    assert holds(b'{"key": "k", "value": "{\\"a\\": \\"b\\"}"}', b'{"a": "b"}')
    assert not holds(b'{"a": "c"}', b'{"a": "b"}')


def test_servers_take_turns_in_an_order_that_changes_and_medians_are_reported_but_the_most_failures(shared):
    taken = []

    def server(name, samples):
        remaining = iter(samples)
        return lambda: taken.append(name) or next(remaining)

    rows = shared.in_turns(
        {
            "ours": server("ours", [{"per_s": 3.0}, {"per_s": 1.0, "failed, %": 2.0}, {"per_s": 2.0}]),
            "theirs": server("theirs", [{"per_s": 5.0}] * 3),
        },
        rounds=3,
    )
    assert taken == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert rows[0].figures == {"per_s": 2.0, "failed, %": 2.0}
    assert rows[1].figures == {"per_s": 5.0}


@pytest.mark.parametrize("lacking", RECIPE)
def test_a_folder_that_lacks_a_part_of_the_recipe_is_named_with_it(peers, tmp_path, monkeypatch, lacking):
    ingest = peers.PARTS["ingest"]
    monkeypatch.setenv(ingest.CONNECT, str(tmp_path))
    for name in RECIPE:
        if name != lacking:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
    why = ingest.why_not()
    assert str(tmp_path) in why
    assert lacking.partition("/")[0] in why
    (tmp_path / lacking).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / lacking).touch()
    assert ingest.why_not() == ""


def test_a_connector_gets_topic_tasks_and_nodes_with_its_own_settings(peers):
    ingest = peers.PARTS["ingest"]
    values = {"topic": "ingest", "tasks": 9, "redis_nodes": "127.0.0.1:1,127.0.0.1:2"}
    text = ingest.sink_properties("connector.class=x\nredis.hosts={redis_nodes}\n", values)
    assert text.splitlines() == [
        "name=peer",
        "topics=ingest",
        "tasks.max=9",
        "connector.class=x",
        "redis.hosts=127.0.0.1:1,127.0.0.1:2",
    ]
    assert ingest.connector_class(text) == "x"
    assert ingest.connector_class("password=secret\n") == "not named"


def test_a_task_that_failed_is_shown_with_its_error_and_the_cause_and_without_its_stack(peers):
    ingest = peers.PARTS["ingest"]
    trace = "x.Exception: Unable to connect\n\tat a.b\nCaused by: java.io.IOException: refused\n\tat c.d\n"
    tasks = [{"id": 0, "state": "RUNNING"}, {"id": 3, "state": "FAILED", "trace": trace}]
    expected = "task 3: x.Exception: Unable to connect; Caused by: java.io.IOException: refused"
    assert ingest.failed_tasks({"tasks": tasks}) == [expected]
    assert ingest.failed_tasks({"tasks": [{"id": 1, "state": "FAILED"}]}) == ["task 1: no trace"]
    assert ingest.failed_tasks({}) == []


def test_a_load_without_a_failed_request_has_the_rate_and_the_percentiles(shared, capsys):
    assert shared.figures_of("RESULT 5000 2000000 0 0 900 7400\n") == {"per_s": 2500, "p50": 0.9, "p99": 7.4}
    assert capsys.readouterr().err == ""


def test_failed_requests_are_counted_and_shown_and_are_no_part_of_the_rate(shared, capsys):
    figures = shared.figures_of("RESULT 4000 1000000 30 10 900 7400\n")
    assert figures["per_s"] == pytest.approx(3970)
    assert figures[shared.FAILED] == pytest.approx(100 * 40 / 4010)
    assert "40 of 4010 requests failed (0.998 %): 30 with a status" in capsys.readouterr().err


@pytest.mark.parametrize("printed", ["", "RESULT 30 1000000 30 0 1 1", "RESULT 0 1000000 0 7 1 1"])
def test_a_load_of_which_nothing_succeeded_ends_the_run(shared, printed):
    with pytest.raises(SystemExit):
        shared.figures_of(printed)


def test_good_answers_are_those_without_a_status_of_400_or_more(shared):
    assert shared.good_answers("RESULT 4000 1000000 30 10 900 7400\n") == 3970
