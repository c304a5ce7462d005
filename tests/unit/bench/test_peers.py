from __future__ import annotations

import pytest
import yaml

from keylane_local.errors import PartFailed


@pytest.fixture
def peers(bench_module):
    return bench_module("bench_peers")


WHY = "no request succeeded"
VARIABLES = ("KEYLANE_PEER_CONNECT_REDIS", "KEYLANE_PEER_KPRF", "KEYLANE_PEER_STREAMS")


@pytest.fixture
def uninstalled(monkeypatch):
    """No peer is installed, and the machine need not be quiet."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KEYLANE_BENCH_BUSY", "1")


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


def test_kprf_waits_for_all_replicas_as_the_server_beside_it(peers):
    text = peers.PARTS["push"].settings_text("127.0.0.1:9", 1, 2)
    settings = yaml.safe_load(text)
    assert settings["kafka"] == {"brokers": ["127.0.0.1:9"], "request_required_acks": -1}
    assert settings["http"] == {"port": 1, "metrics_port": 2}


def test_a_value_is_found_in_a_response_as_it_is_or_as_a_string(peers):
    holds = peers.PARTS["lookup"].holds
    assert holds(b'{"a": "b"}', b'{"a": "b"}')
    assert holds(b'{"key": "k", "value": "{\\"a\\": \\"b\\"}"}', b'{"a": "b"}')
    assert not holds(b'{"a": "c"}', b'{"a": "b"}')


def test_servers_take_turns_in_an_order_that_changes_and_medians_are_reported_but_the_most_failures(
    peers, capsys
):
    import peers as shared  # noqa: PLC0415

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
