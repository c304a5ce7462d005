from __future__ import annotations

import json

import pytest


@pytest.fixture
def harness(bench_module, monkeypatch, tmp_path):
    harness = bench_module("harness")
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    return harness


def test_percentiles_are_samples_by_nearest_rank(harness):
    samples = [float(number) for number in range(100, 0, -1)]
    assert harness.latency(samples) == {"p50": 50, "p90": 90, "p99": 99, "max": 100}
    assert harness.spread([3.0, 1.0, 2.0]) == {"min": 1, "median": 2, "max": 3}
    assert harness.latency([7.0]) == {"p50": 7, "p90": 7, "p99": 7, "max": 7}


def test_no_samples_have_no_percentile(harness):
    with pytest.raises(ValueError, match="no samples"):
        harness.percentile([], 50)


def test_a_report_holds_figures_ratios_and_the_machine(harness, capsys):
    rows = [
        harness.ResultRow("bare", {"p50": 50.0, "max": 0.0}),
        harness.ResultRow("ours", {"p50": 80.0, "max": 4.0}),
    ]
    facts = {"longest gap, s": 0.4}
    path = harness.report("toy", "us", rows, reference="bare", settings={"keys": 3}, facts=facts, aim="2x")
    document = json.loads(path.read_text())
    assert path.name == "toy.json"
    assert [row["ratio"] for row in document["rows"]] == [{"p50": 1.0}, {"p50": 1.6}]
    assert document["settings"] == {"keys": 3}
    assert document["facts"] == facts
    assert {"cores", "memory_gib", "python", "date", "redis_server"} <= document["machine"].keys()
    printed = capsys.readouterr().out
    assert "80.0" in printed
    assert "1.60x" in printed
    assert "longest gap, s: 0.4" in printed
    assert "aim: 2x" in printed
