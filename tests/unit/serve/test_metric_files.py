"""Metrics of several processes, and the options that they get."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from keylane.metrics.meter import Meter
from keylane_serve import metric_files
from keylane_serve.admission import Limits
from keylane_serve.function_metrics import FunctionMetrics
from keylane_serve.metric_files import MetricFiles
from keylane_serve.options import TOKENS, VARIABLE, ServerOptions


def metrics_of(requests: int, queued: int) -> FunctionMetrics:
    found = FunctionMetrics()
    meter = Meter(lambda lines: [found.take_line(line) for line in lines.encode().splitlines()])
    for _ in range(requests):
        meter.observe("RequestDuration", 3.0, "get_key", "200")
    meter.count("MapRefreshes", requests)
    meter.gauge("QueueSize", queued)
    meter.flush()
    found.count_refusal(503)
    return found


def test_counters_and_histograms_are_added_up_even_of_a_process_that_has_ended(tmp_path, monkeypatch):
    for pid, requests in ((1, 2), (2, 3)):
        monkeypatch.setattr(metric_files.os, "getpid", lambda pid=pid: pid)
        files = MetricFiles(tmp_path, metrics_of(requests, queued=pid))
        files.write()
    total = files.total()
    [histogram] = total.histograms["RequestDuration"].values()
    assert (sum(histogram.counts), histogram.total) == (5, 15.0)
    assert total.numbers["MapRefreshes"] == {(): 5}
    assert total.numbers["QueueSize"][()] in {1, 2}
    assert total.refusals == {503: 2}


def test_open_streams_are_those_of_the_processes_that_run(tmp_path, monkeypatch):
    for pid in (1, 2, 3):
        metrics = FunctionMetrics()
        metrics.numbers["StreamsOpen"] = {("key",): 10 * pid}
        metrics.numbers["StreamsCut"] = {(): pid}
        monkeypatch.setattr(metric_files.os, "getpid", lambda pid=pid: pid)
        files = MetricFiles(tmp_path, metrics)
        files.write()
    ended_s = time.time() - metric_files.ENDED_AFTER_S
    os.utime(tmp_path / "1.json", (ended_s, ended_s))
    assert files.total().numbers == {"StreamsOpen": {("key",): 50}, "StreamsCut": {(): 6}}


@pytest.mark.parametrize("certificate", [None, Path("/etc/tls.pem")])
def test_the_processes_get_the_options_of_the_command(certificate):
    options = ServerOptions(
        Path("/functions"),
        workers=3,
        tls_certificate=certificate,
        authorization=TOKENS,
        limits=Limits(running=7),
    )
    assert ServerOptions.from_environment({VARIABLE: options.to_variable()}) == options
