"""The server's metrics as Prometheus reads them: of one process, and of several."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from keylane import __version__
from keylane.metrics.emf import EmfLog
from keylane.metrics.meter import Meter
from keylane_server.metrics import BOUNDS, ServerMetrics
from keylane_server.options import METRICS_FOLDER

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
REQUESTS = ("method", "get_key"), ("code", "200")
PROCESS = """
import sys
from keylane.metrics.meter import Meter
from keylane_server.metrics import ServerMetrics

metrics, number = ServerMetrics(), int(sys.argv[1])
meter = Meter(metrics)
for _ in range(number):
    meter.observe("RequestDuration", 3.0, "get_key", "200")
meter.count("MapRefreshes", number)
meter.count("SentMessages", number, "flights")
meter.gauge("QueueSize", number)
meter.gauge("StreamsOpen", 10 * number, "key")
meter.flush()
metrics.count_refusal(503)
print("written", flush=True)
sys.stdin.readline()
"""


def samples(page, read=read_openmetrics):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in read(page.decode())
        for sample in family.samples
    }


def labelled(name, *labels):
    return name, *sorted(labels)


def test_a_histogram_has_the_buckets_the_count_and_the_sum_of_its_samples():
    metrics = ServerMetrics()
    metrics.add_samples("RequestDuration", ("get_key", "200"), [(2.5, 3), (2.6, 1), (1e9, 2)])
    found = samples(metrics.render_page(OPENMETRICS)[0])
    count = labelled("http_requests_duration_ms_count", *REQUESTS)
    assert found[count] == 6
    assert found[labelled("http_requests_duration_ms_sum", *REQUESTS)] == pytest.approx(3 * 2.5 + 2.6 + 2e9)
    at_most = {
        bound: found[labelled("http_requests_duration_ms_bucket", *REQUESTS, ("le", str(bound)))]
        for bound in (*BOUNDS, "+Inf")
    }
    assert at_most[1.0] == 0
    assert at_most[2.5] == 3
    assert at_most[5.0] == at_most[BOUNDS[-1]] == 4
    assert at_most["+Inf"] == 6


def test_each_metric_has_its_name_and_the_one_that_it_had_before():
    metrics = ServerMetrics()
    meter = Meter(metrics)
    meter.count("SentMessages", 2, "flights")
    meter.count("Problems", 1, "key-absent")
    meter.observe("RequestDuration", 3.0, "get_key", "200")
    meter.gauge("BrokerRoundTrip", 400, "broker:9092/1")
    meter.flush()
    for accept, read in ((OPENMETRICS, read_openmetrics), ("text/plain", read_text)):
        page, content_type = metrics.render_page(accept)
        assert content_type.startswith(accept.partition(";")[0])
        found = samples(page, read)
        for name in ("kafka_messages_sent_total", "kafka_sent_messages"):
            assert found[labelled(name, ("topic", "flights"))] == 2
        for name in ("http_requests_duration_ms", "http_requests_duration"):
            assert found[labelled(f"{name}_bucket", *REQUESTS, ("le", "5.0"))] == 1
            assert found[labelled(f"{name}_sum", *REQUESTS)] == 3
        for name in ("kafka_producer_broker_rtt_p99_us", "kafka_producer_broker_rtt_p99"):
            assert found[labelled(name, ("broker", "broker:9092/1"))] == 400
        assert found[labelled("keylane_problems_total", ("problem", "key-absent"))] == 1
        assert found[labelled("keylane_app_metadata", ("version", __version__))] == 1
        assert not [name for name, *_ in found if name.endswith("_created")]


def test_a_gauge_has_its_last_value():
    metrics = ServerMetrics()
    metrics.add_number("QueueSize", (), 7)
    metrics.add_number("QueueSize", (), 0)
    assert samples(metrics.render_page(OPENMETRICS)[0])["kafka_internal_queue_size",] == 0


@contextmanager
def process(folder, number):
    """A process that has written its numbers, until the end of the block."""
    command = [sys.executable, "-c", PROCESS, str(number)]
    variables = {**os.environ, METRICS_FOLDER: str(folder)}
    with subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout
        assert running.stdout.readline() == b"written\n"
        yield running
        running.communicate(b"\n")


def test_several_processes_are_added_up_and_of_one_that_ended_only_its_gauges_are_gone(tmp_path, monkeypatch):
    monkeypatch.setenv(METRICS_FOLDER, str(tmp_path))
    page = ServerMetrics()

    def told():
        return samples(page.render_page(OPENMETRICS)[0])

    with process(tmp_path, 2):
        with process(tmp_path, 3):
            found = told()
            assert found[labelled("keylane_streams_open", ("kind", "key"))] == 50
            assert found["kafka_internal_queue_size",] == 3
        found = told()
        assert found[labelled("keylane_streams_open", ("kind", "key"))] == 20
        assert found["kafka_internal_queue_size",] == 2
    found = told()
    assert found[labelled("http_requests_duration_ms_count", *REQUESTS)] == 5
    assert found[labelled("http_requests_duration_ms_sum", *REQUESTS)] == 15
    assert found["keylane_map_refreshes_total",] == 5
    assert found[labelled("kafka_messages_sent_total", ("topic", "flights"))] == 5
    assert found[labelled("keylane_server_refusals_total", ("code", "503"))] == 2
    assert labelled("keylane_streams_open", ("kind", "key")) not in found


def test_the_numbers_are_lines_for_cloudwatch_too_and_the_page_keeps_its_totals():
    lines = []
    metrics = ServerMetrics(EmfLog("Keylane/server", lines.append, lambda: 1_763_800_000.0))
    meter = Meter(metrics)
    for _ in range(2):
        meter.observe("RequestDuration", 3.0, "get_key", "200")
        meter.count("SentMessages", 5, "flights")
        meter.flush()
        metrics.write_lines()
    first, second = ([json.loads(line) for line in each.splitlines()] for each in lines)
    assert first == second, "each has what was added since the last one"
    [sent] = [line for line in first if line.get("topic") == "flights"]
    assert sent["SentMessages"] == 5
    assert sent["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "Keylane/server"
    [taken] = [line for line in first if line.get("method") == "get_key"]
    assert taken["RequestDuration"]["Count"] == 1
    found = samples(metrics.render_page(OPENMETRICS)[0])
    assert found[labelled("http_requests_duration_ms_count", *REQUESTS)] == 2


def test_without_emf_nothing_is_written(capsys):
    metrics = ServerMetrics()
    metrics.add_number("QueueSize", (), 1)
    metrics.write_lines()
    assert capsys.readouterr().out == ""
