from __future__ import annotations

import itertools
import json
import socket
import tempfile
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from keylane_local.errors import BadInput, PortInUse
from keylane_local.process import ports
from keylane_local.process.ports import HOST, Reservations
from keylane_local.servers.redis_cluster import slot_range
from keylane_local.stack.parts import ANY
from keylane_local.stack.plan import DEMO_CONFIG, StackOptions, plan_stack
from keylane_local.stack.stack import Stack
from keylane_local.stack.state import StackState
from keylane_server.options import ServerOptions

CONFIG = Path("keylane.toml")


@pytest.fixture(autouse=True)
def no_neighbors(monkeypatch, tmp_path):
    """Only this process takes and reserves ports: tests beside these do so whenever they like."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ports.OF_PROCESS, "_folder", Reservations()._folder)

    def is_free(port: int, host: str = HOST, *, really=ports.is_free) -> bool:
        return really(port, host) or port not in {
            each.laddr.port for each in psutil.Process().net_connections("tcp") if each.status == "LISTEN"
        }

    monkeypatch.setattr(ports, "is_free", is_free)


def _fresh(tmp_path, options=None, config=CONFIG):
    return plan_stack(options or StackOptions(), tmp_path, config, None, ())


def test_a_new_stack_has_three_shards_with_one_replica_each_on_separate_ports(tmp_path):
    state = _fresh(tmp_path)
    given = [state.kafka_port, state.controller_port, state.http_port]
    given += [port for pair in state.redis_ports for port in pair]
    assert (state.shards, state.replicas, len(state.redis_ports)) == (3, 1, 6)
    assert len(set(given)) == 15
    assert Path(state.config).is_absolute()


def test_a_saved_state_is_loaded_unchanged(tmp_path):
    state = _fresh(tmp_path)
    state.save(tmp_path)
    assert StackState.load(tmp_path) == state
    assert StackState.load(tmp_path / "elsewhere") is None


@pytest.mark.parametrize("text", ["", "{}", '{"version": 1}', '{"version": 1, "redis_ports": 1}'])
def test_a_broken_state_file_is_named(tmp_path, text):
    (tmp_path / "stack.json").write_text(text)
    with pytest.raises(BadInput, match=r"stack\.json is not readable"):
        StackState.load(tmp_path)


def test_ports_are_kept_at_the_next_start(tmp_path):
    before = _fresh(tmp_path)
    after = plan_stack(StackOptions(), tmp_path, CONFIG, before, ())
    assert (after.kafka_port, after.http_port) == (before.kafka_port, before.http_port)
    assert [port for port, _ in after.redis_ports] == [port for port, _ in before.redis_ports]


def test_a_port_that_another_process_has_taken_is_replaced(tmp_path):
    before = _fresh(tmp_path)
    with socket.create_server(("127.0.0.1", before.http_port)):
        assert plan_stack(StackOptions(), tmp_path, CONFIG, before, ()).http_port != before.http_port


def test_two_stacks_that_are_planned_before_either_listens_share_no_port(tmp_path):
    options = StackOptions(default_ports=True, localstack=True)
    with Reservations() as one, Reservations() as other:
        states = [plan_stack(options, tmp_path, CONFIG, None, (), each) for each in (one, other)]
    given = [[s.kafka_port, s.controller_port, s.http_port, s.localstack_port] for s in states]
    mine, yours = ({*some, *itertools.chain(*s.redis_ports)} for some, s in zip(given, states, strict=True))
    assert not mine & yours


def test_a_port_that_running_parts_know_is_not_replaced(tmp_path):
    before = _fresh(tmp_path)
    with (
        socket.create_server(("127.0.0.1", before.kafka_port)),
        pytest.raises(PortInUse, match="kafka"),
    ):
        plan_stack(StackOptions(), tmp_path, CONFIG, before, ("server",))


def test_an_option_that_contradicts_a_running_part_is_rejected(tmp_path):
    before = _fresh(tmp_path)
    for options, part in (
        (StackOptions(kafka_port=before.kafka_port + 1), "kafka"),
        (StackOptions(redis_port=before.redis_ports[0][0] + 1), "redis"),
        (StackOptions(http_port=before.http_port + 1), "server"),
    ):
        with pytest.raises(BadInput, match=f"{part} runs on port"):
            plan_stack(options, tmp_path, CONFIG, before, (part,))
    with pytest.raises(BadInput, match="the job runs with"):
        plan_stack(StackOptions(), tmp_path, Path("other.toml"), before, ("job",))


def test_a_running_job_stays_part_of_the_stack(tmp_path):
    before = _fresh(tmp_path)
    assert plan_stack(StackOptions(job=False), tmp_path, CONFIG, before, ("job",)).config == before.config
    assert plan_stack(StackOptions(job=False), tmp_path, CONFIG, before, ()).config is None


def test_the_shape_of_a_cluster_with_data_cannot_change(tmp_path):
    before = _fresh(tmp_path)
    (tmp_path / "redis").mkdir()
    with pytest.raises(BadInput, match="--wipe"):
        plan_stack(StackOptions(shards=4), tmp_path, CONFIG, before, ())
    assert plan_stack(StackOptions(shards=3), tmp_path, CONFIG, before, ()).shards == 3


def test_a_requested_redis_port_is_the_first_of_consecutive_ones(tmp_path):
    state = _fresh(tmp_path, replace(StackOptions(), redis_port=21000, shards=4, replicas=0))
    assert [port for port, _ in state.redis_ports] == [21000, 21001, 21002, 21003]


def test_two_shards_are_too_few(tmp_path):
    with pytest.raises(BadInput, match="at least 3 shards"):
        _fresh(tmp_path, StackOptions(shards=2))


@pytest.mark.parametrize("shards", [3, 4, 5, 7, 16])
def test_shards_share_all_slots_without_gap_or_overlap(shards):
    ranges = [slot_range(shard, shards) for shard in range(shards)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 16383
    assert all(right[0] == left[1] + 1 for left, right in itertools.pairwise(ranges))
    assert len({last - first for first, last in ranges}) <= 2


def test_localstack_is_part_of_the_stack_if_it_is_requested_or_runs(tmp_path):
    assert _fresh(tmp_path).localstack_port is None
    before = _fresh(tmp_path, StackOptions(localstack=True))
    assert before.localstack_port
    assert plan_stack(StackOptions(), tmp_path, CONFIG, before, ()).localstack_port is None
    kept = plan_stack(StackOptions(), tmp_path, CONFIG, before, {"localstack"})
    assert kept.localstack_port == before.localstack_port


def test_a_state_without_localstack_port_is_loaded(tmp_path):
    state = _fresh(tmp_path)
    state.save(tmp_path)
    saved = json.loads((tmp_path / "stack.json").read_text())
    del saved["localstack_port"]
    (tmp_path / "stack.json").write_text(json.dumps(saved))
    assert StackState.load(tmp_path) == state


@pytest.mark.parametrize("host", ["0.0.0.0", "203.0.113.7", "host.docker.internal", "::1", ""])  # noqa: S104
def test_an_address_that_the_machine_does_not_have_is_refused(tmp_path, host):
    with pytest.raises(BadInput, match="IPv4 address of this machine"):
        _fresh(tmp_path, StackOptions(host=host))


def test_servers_that_run_are_not_moved_and_keep_their_address(tmp_path):
    before = replace(_fresh(tmp_path), host="127.0.0.2")
    assert plan_stack(StackOptions(), tmp_path, CONFIG, before, {"kafka"}).host == "127.0.0.2"
    with pytest.raises(BadInput, match="keylane down"):
        plan_stack(StackOptions(host="127.0.0.1"), tmp_path, CONFIG, before, {"kafka"})


def test_servers_that_exist_get_no_ports_here_and_are_remembered(tmp_path):
    options = StackOptions(outside_kafka="k:9092", outside_redis="r:6379")
    state = _fresh(tmp_path, options)
    assert (state.outside_kafka, state.outside_redis) == ("k:9092", "r:6379")
    assert (state.kafka_port, state.redis_ports) == (0, [])
    state.save(tmp_path)
    assert StackState.load(tmp_path) == state
    again = plan_stack(StackOptions(), tmp_path, CONFIG, state, ())
    assert again.outside_kafka is None
    assert again.kafka_port
    assert len(again.redis_ports) == 6


@pytest.mark.parametrize("part", ["kafka", "redis"])
def test_a_part_of_the_stack_that_runs_is_not_replaced_by_one_from_outside(tmp_path, part):
    before = _fresh(tmp_path)
    options = StackOptions(**{f"outside_{part}": "there:1"})
    with pytest.raises(BadInput, match=f"a {part} of this stack runs; run `keylane down` first"):
        plan_stack(options, tmp_path, CONFIG, before, (part,))


def test_the_job_s_metrics_are_served_at_a_port_that_is_kept_unless_its_file_says_otherwise(tmp_path):
    config = tmp_path / "keylane.toml"
    config.write_text("[topics.orders]\n")
    assert _fresh(tmp_path, config=config).metrics_port is None
    options = StackOptions(metrics=True)
    before = _fresh(tmp_path, options, config)
    assert before.metrics_port
    with socket.create_server(("127.0.0.1", before.metrics_port)):
        assert plan_stack(options, tmp_path, config, before, ()).metrics_port != before.metrics_port
    assert plan_stack(options, tmp_path, config, before, ("job",)).metrics_port == before.metrics_port
    config.write_text('[topics.orders]\n[job]\nmetrics = "emf"\n')
    assert _fresh(tmp_path, options, config).metrics_port is None


def test_the_server_listens_on_the_address_of_its_option_and_is_found_on_this_machine(tmp_path):
    state = _fresh(tmp_path, StackOptions(http_host=ANY))
    assert (state.http_host, _fresh(tmp_path).http_host) == (ANY, HOST)
    state.save(tmp_path)
    server = Stack(tmp_path).server
    assert ServerOptions.from_environment(server.program.env).host == ANY
    assert server.url == f"http://{HOST}:{state.http_port}"


def test_a_file_of_ones_own_takes_the_place_of_the_demos_alone(tmp_path):
    demo = _fresh(tmp_path, config=tmp_path / DEMO_CONFIG)
    after = plan_stack(StackOptions(), tmp_path, CONFIG, demo, ("job",))
    assert after.config == str(CONFIG.absolute())
    with pytest.raises(BadInput, match=r"the job runs with .*keylane\.toml already"):
        plan_stack(StackOptions(), tmp_path, tmp_path / "another.toml", after, ("job",))
