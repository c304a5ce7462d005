from __future__ import annotations

import json
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
TOY = """\
import json, os, pathlib, sys
if "--fail" in sys.argv:
    sys.exit("the toy is broken")
assert os.environ["KEYLANE_BENCH_BUSY"]
results = pathlib.Path(".keylane-bench")
results.mkdir(exist_ok=True)
rounds = results / "rounds.txt"
rounds.write_text((rounds.read_text() if rounds.exists() else "") + "x")
p50 = 10.0 * len(rounds.read_text())
rows = [{"name": "ours", "figures": {"p50": p50}, "ratio": {"p50": p50 / 10}}]
report = {"bench": "toy-small", "rows": rows, "facts": {"size": 7, "why": "so"}}
(results / "toy-small.json").write_text(json.dumps(report))
"""


@pytest.fixture
def modules(bench_module, monkeypatch):
    quiet, suite = map(bench_module, ("quiet", "suite"))
    monkeypatch.setenv(quiet.BUSY, "1")
    return quiet, suite


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    (folder / "tests/bench").mkdir(parents=True)
    (folder / ".keylane-bench").mkdir()
    (folder / ".keylane-bench/other.json").write_text(json.dumps({"bench": "an older one"}))
    (folder / "tests/bench/bench_toy.py").write_text(TOY)
    return folder


def test_each_aim_names_a_benchmark_of_the_plan_and_words_that_it_prints(modules):
    _, suite = modules
    scripts = sorted((bench.script for bench in suite.PLAN), key=len, reverse=True)
    aims = suite.aims()
    assert len(aims) > 10
    for aim in aims:
        script = next(name for name in scripts if aim.bench == name or aim.bench.startswith(f"{name}-"))
        source = (BENCH / f"bench_{script}.py").read_text()
        assert (aim.row or aim.fact) in source, aim
        assert (aim.at_least is None) != (aim.at_most is None), aim


def test_rounds_give_medians_spreads_and_verdicts(modules, checkout):
    _, suite = modules
    samples = suite.Samples()
    for _ in range(3):
        (document,) = suite.Bench("toy").run(checkout)
        samples.add(document)
    assert samples.of("toy-small", "ours", "p50") == [10, 20, 30]
    assert samples.of("toy-small", "ours", "p50", ratio=True) == [1, 2, 3]
    assert samples.of("toy-small", "", "size") == [7, 7, 7]
    summary = suite.summary(samples.of("toy-small", "ours", "p50"))
    assert summary == {"median": 20, "least": 10, "most": 30, "rounds": 3}
    aim = suite.Aim("speed", "toy-small", "ours", "p50", at_most=10)
    assert (aim.verdict(10), aim.verdict(15)) == ("met", "1.50x of it")
    least = suite.Aim("rate", "toy-small", "ours", "p50", at_least=100, ratio=True)
    assert (least.verdict(100), least.verdict(60), least.bound) == ("met", "0.60x of it", ">= 100x")


def test_a_benchmark_that_fails_ends_the_run_with_its_words(modules, checkout):
    _, suite = modules
    with pytest.raises(SystemExit, match="the toy is broken"):
        suite.Bench("toy", ("--fail",)).run(checkout)


def test_an_aim_whose_figure_nobody_reported_is_not_taken_for_met(modules):
    _, suite = modules
    (row,) = (
        row for row in suite.judge(suite.Samples(), suite.PLAN) if row["name"] == "ingest of known keys"
    )
    assert row["verdict"] == "NOT MEASURED"
    assert "| ingest of known keys | >= 700,000 |  |  | NOT MEASURED |" in suite.markdown([row])


def test_a_busy_machine_is_refused_with_the_busiest_processes(modules, monkeypatch):
    quiet, _ = modules
    usage = quiet.Usage(1.25, 0.0, ("java (pid 7) 1.20",))
    assert not usage.is_quiet
    monkeypatch.setattr(quiet, "look", lambda: usage)
    quiet.require()  # the variable allows it
    monkeypatch.delenv(quiet.BUSY)
    with pytest.raises(SystemExit, match=r"1\.25 of \d+ cores busy: java \(pid 7\) 1\.20\. .*--busy"):
        quiet.require()


def test_a_machine_at_rest_is_quiet_and_one_that_computes_is_not(modules):
    quiet, _ = modules
    assert quiet.Usage(0.1, 0.0).is_quiet
    assert not quiet.Usage(0.1, 0.2).is_quiet
    assert quiet.look(0.05).cores >= 0
