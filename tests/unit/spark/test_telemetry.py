"""What the job reports: metrics, lines about partitioners, spans of batches."""

from __future__ import annotations

import json
import socket

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.support.fakes import FakeTime

from keylane.adapters.open_telemetry import Tracing
from keylane.errors import BadConfig, SettingsError
from keylane.metrics.catalogue import FORMER_NAMES, JOB
from keylane.model.records import Layout, Options
from keylane_spark.__main__ import _begin_reporting, _with_environment
from keylane_spark.config.topics import Config
from keylane_spark.telemetry.batch_spans import BatchSpans
from keylane_spark.telemetry.emf import INTERVAL_S, NAMESPACE, EmfLines
from keylane_spark.telemetry.metrics import STALE_S, JobMetrics
from keylane_spark.telemetry.openmetrics import JobCollector, serve_metrics
from keylane_spark.telemetry.strays import PartitionerAudit
from keylane_spark.telemetry.tally import Tally

COUNTED = {
    "incomplete_partitions": 1,
    "parked_partitions": 2,
    "missed_deletions": 1,
    "clock_skew_ms": -3,
}


def emf_metrics(time: FakeTime, lines: list[str], namespace: str = NAMESPACE) -> JobMetrics:
    return JobMetrics(time.clock, INTERVAL_S, EmfLines(lines.append, namespace))


def page_of(metrics: JobMetrics) -> dict[tuple[str, ...], float]:
    """The page's samples by name and label values, as Prometheus' own parser reads them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(JobCollector(metrics))
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if sample.name != "keylane_job_metadata"
    }


def test_a_line_for_each_topic_has_what_happened_since_the_last():
    time, lines = FakeTime(), []
    metrics = emf_metrics(time, lines)
    metrics.count_batch(
        {
            ("orders", 0): Tally(records=5, strays=2),
            ("orders", 1): Tally(records=1, left_in_kafka=1, invalid_events=4, left_out=8, failed=9),
        }
    )
    metrics.gauge("topic", "orders", lag=7, age_ms=250, **COUNTED, stopped_partitions=6)
    nothing = dict.fromkeys(COUNTED, 0) | {"clock_skew_ms": None}
    metrics.gauge("topic", "users", lag=0, age_ms=None, **nothing, stopped_partitions=0)
    metrics.count("topic", "orders", restarts=1)
    assert not metrics.is_due
    time.move(10)
    assert metrics.is_due
    metrics.flush()
    orders, users = (json.loads(line) for line in lines)
    names = ("Records", "Batches", "Strays", "LeftInKafka", "Restarts", "Lag", "Age", "IncompletePartitions")
    assert [orders[name] for name in names] == [[6], [1], [2], [1], [1], [7], [10_250], [1]]
    assert [orders[name] for name in ("InvalidEvents", "LeftOut", "Failed")] == [[4], [8], [9]]
    assert (orders["StoppedPartitions"], users["StoppedPartitions"]) == ([6], [0])
    assert (orders["ClockSkew"], "ClockSkew" in users) == ([-3], False)
    assert orders["topic"] == "orders"
    assert (orders["ParkedPartitions"], users["ParkedPartitions"]) == ([2], [0])
    assert (orders["MissedDeletions"], users["MissedDeletions"]) == ([1], [0])
    assert "Age" not in users
    metrics.flush()
    assert json.loads(lines[2])["Records"] == [0]


def test_a_view_has_a_line_of_its_own():
    time, lines = FakeTime(), []
    metrics = emf_metrics(time, lines)
    for _ in range(2):
        metrics.count("view", "delays", batches=1, records=5, windows=3, late=2, invalid=1, failed=4)
    metrics.count("view", "delays", restarts=1)
    metrics.gauge("view", "delays", lag=4, age_ms=100, incomplete_partitions=0)
    metrics.gauge("topic", "delays", lag=9, age_ms=None)
    metrics.flush()
    topic, view = (json.loads(line) for line in lines)
    names = ("Records", "Batches", "Windows", "Late", "Invalid", "Restarts", "Lag", "Age")
    assert [view[name] for name in names] == [[10], [2], [6], [4], [2], [1], [4], [100]]
    assert view["view"] == topic["topic"] == "delays"
    assert "Windows" not in topic
    assert "ParkedPartitions" not in view


def test_an_index_has_a_line_of_its_own():
    time, lines = FakeTime(), []
    metrics = emf_metrics(time, lines)
    metrics.gauge("index", "orders", "status", entries=12)
    metrics.gauge("index", "orders", "by_status", entries=9)
    metrics.flush()
    found = [json.loads(line) for line in lines]
    assert [(line["topic"], line["index"], line["IndexEntries"]) for line in found] == [
        ("orders", "by_status", [9]),
        ("orders", "status", [12]),
    ]
    [directive] = found[0]["_aws"]["CloudWatchMetrics"]
    assert directive["Dimensions"] == [["topic", "index"]]


def test_without_metrics_nothing_is_ever_due():
    time = FakeTime()
    metrics = JobMetrics(time.clock)
    time.move(100)
    assert not metrics.is_due


def test_the_gauges_of_a_topic_that_is_gone_are_dropped():
    time, lines = FakeTime(), []
    metrics = emf_metrics(time, lines)
    metrics.gauge("topic", "deleted", lag=7, age_ms=250)
    metrics.gauge("topic", "served", lag=7, age_ms=250)
    for _ in range(20):
        time.move(10)
        metrics.gauge("topic", "served", lag=0, age_ms=100)
        metrics.flush()
    assert [json.loads(line)["topic"] for line in lines[:2]] == ["deleted", "served"]
    assert [json.loads(line)["topic"] for line in lines[-2:]] == ["served", "served"]


def test_lines_are_in_the_namespace_of_the_deployment():
    time, lines = FakeTime(), []
    metrics = emf_metrics(time, lines, "Keylane/orders")
    metrics.count("topic", "orders", restarts=1)
    metrics.flush()
    [directive] = json.loads(lines[0])["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "Keylane/orders"


def test_the_page_has_totals_and_gauges_under_the_names_of_the_catalogue():
    time = FakeTime()
    metrics = JobMetrics(time.clock, 1.0)
    metrics.count_batch({("orders", 0): Tally(records=5, strays=2, left_in_kafka=1)})
    metrics.count_batch({("orders", 0): Tally(records=1)})
    metrics.gauge("topic", "orders", lag=7, age_ms=250, **COUNTED, stopped_partitions=0)
    metrics.count("view", "delays", batches=1, records=5, windows=3, late=2, invalid=1, failed=4)
    metrics.count("view", "delays", stops=1)
    metrics.gauge("view", "delays", lag=4, age_ms=None, incomplete_partitions=0, stopped=1)
    metrics.gauge("index", "orders", "status", entries=12)
    found = page_of(metrics)
    of_topic = {"records_total": 6, "batches_total": 2, "strays_total": 2, "left_in_kafka_total": 1}
    of_topic |= dict.fromkeys(("invalid_events_total", "left_out_total", "failed_total"), 0)
    of_topic |= dict.fromkeys(("stopped_partitions", "invalid_fields_total", "restarts_total"), 0)
    of_topic |= {"lag": 7, "age_ms": 250, "incomplete_partitions": 1, "clock_skew_ms": -3}
    of_topic |= {"parked_partitions": 2, "missed_deletions": 1, "age": 250, "clock_skew": -3}
    of_view = {"records_total": 5, "batches_total": 1, "windows_total": 3, "late_total": 2}
    of_view |= {"invalid_total": 1, "failed_total": 4, "stops_total": 1, "stopped": 1}
    of_view |= {"restarts_total": 0, "lag": 4, "incomplete_partitions": 0}
    assert found == {
        **{(f"keylane_topic_{name}", "orders"): value for name, value in of_topic.items()},
        **{(f"keylane_view_{name}", "delays"): value for name, value in of_view.items()},
        ("keylane_index_entries", "status", "orders"): 12,
    }
    current = [name for name, *_ in found if name not in FORMER_NAMES.values()]
    assert len(current) == sum(map(len, JOB.values())) - 1


def test_while_the_job_cannot_measure_the_age_grows():
    time = FakeTime()
    metrics = JobMetrics(time.clock, 1.0)
    metrics.gauge("topic", "orders", lag=7, age_ms=250)
    time.move(60)
    found = page_of(metrics)
    assert (found["keylane_topic_age_ms", "orders"], found["keylane_topic_lag", "orders"]) == (60_250, 7)
    metrics.count("topic", "orders", restarts=1)
    time.move(STALE_S)
    found = page_of(metrics)
    assert found["keylane_topic_age_ms", "orders"] == 60_250 + STALE_S * 1000  # the alarm goes on
    assert ("keylane_topic_lag", "orders") not in found
    assert found["keylane_topic_restarts_total", "orders"] == 1


def test_lines_say_that_the_age_grows_while_views_alone_can_be_measured():
    time, lines = FakeTime(), []
    metrics = emf_metrics(time, lines)
    metrics.gauge("topic", "orders", lag=7, age_ms=250)
    time.move(STALE_S + 1)
    metrics.gauge("view", "delays", lag=4, age_ms=100, incomplete_partitions=0, stopped=0)
    metrics.flush()
    topic, view = (json.loads(line) for line in lines)
    assert topic["Age"] == [250 + (STALE_S + 1) * 1000]
    assert (view["Age"], view["Stopped"]) == ([100], [0])


def test_what_is_not_served_any_more_does_not_grow_old():
    time = FakeTime()
    metrics = JobMetrics(time.clock, 1.0)
    for kind, name in (("topic", "orders"), ("topic", "gone"), ("view", "delays")):
        metrics.gauge(kind, name, lag=7, age_ms=250)
    metrics.gauge("index", "gone", "status", entries=12)
    metrics.keep({"orders"}, {})
    assert {sample[1:] for sample in page_of(metrics)} == {("orders",)}


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadConfig, match=rf"metrics_port: cannot listen on 127\.0\.0\.1:{port} \(Address"):
            serve_metrics(JobMetrics(FakeTime().clock), "127.0.0.1", port)


def test_without_openmetrics_nothing_listens():
    job = Config.model_validate({"topics": {"orders": {}}}).job
    assert not _begin_reporting(job, FakeTime().clock, NAMESPACE).is_due


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "none"),
        ({"KEYLANE_JOB_METRICS": "emf"}, "emf"),
        ({"KEYLANE_JOB_METRICS": "openmetrics"}, "openmetrics"),
    ],
)
def test_environment_turns_metrics_on_whatever_the_file_says(given, expected):
    config = Config.model_validate({"topics": {"orders": {}}})
    assert _with_environment(config, given).job.metrics == expected
    assert _with_environment(config, {**given, "KEYLANE_JOB_METRICS_PORT": "7"}).job.metrics_port == 7
    assert _with_environment(config, given).job.metrics_port == config.job.metrics_port


def test_wrong_choice_of_metrics_is_named():
    config = Config.model_validate({"topics": {"orders": {}}})
    with pytest.raises(SettingsError, match="KEYLANE_JOB_METRICS is 'statsd'"):
        _with_environment(config, {"KEYLANE_JOB_METRICS": "statsd"})


@pytest.mark.parametrize(("given", "expected"), [(None, True), ("false", False), ("true", True)])
def test_environment_decides_whether_topics_are_created(given, expected):
    config = Config.model_validate({"job": {"create_topics": True}, "topics": {"orders": {}}})
    environment = {} if given is None else {"KEYLANE_CREATE_TOPICS": given}
    assert _with_environment(config, environment).job.create_topics is expected


LAYOUTS = {"orders": Layout("orders", 9)}


def test_a_topic_that_another_partitioner_filled_is_named_once_with_it():
    audit = PartitionerAudit(LAYOUTS)
    tallies = {("orders", 0): Tally(records=900, strays=800, crc32=800, fnv1a=90)}
    (sentence,) = audit.add(tallies)
    assert "800 of 900 records lie where crc32 puts them, not murmur2" in sentence
    assert audit.add(tallies) == []


def test_a_few_strays_or_strays_of_no_partitioner_are_no_reason_to_speak():
    assert PartitionerAudit(LAYOUTS).add({("orders", 0): Tally(records=900, strays=60, crc32=60)}) == []
    assert PartitionerAudit(LAYOUTS).add({("orders", 0): Tally(records=90, strays=80, crc32=79)}) == []
    assert PartitionerAudit(LAYOUTS).add({("orders", 0): Tally(records=30, strays=30, crc32=30)}) == []


def test_producers_that_partition_by_the_whole_key_are_reported():
    audit = PartitionerAudit({"trips": Layout("trips", 9, partition_by="prefix:|")})
    (sentence,) = audit.add({("trips", 0): Tally(records=900, strays=800, crc32=90, whole_key=800)})
    assert "800 of 900 records lie where murmur2 of the whole key puts them" in sentence
    assert "'prefix:|'" in sentence
    audit = PartitionerAudit({"trips": Layout("trips", 9, partition_by="prefix:|")})
    (sentence,) = audit.add({("trips", 0): Tally(records=900, strays=800, crc32=800)})
    assert "lie where crc32 by 'prefix:|' puts them, not murmur2" in sentence


def test_batches_add_up():
    audit = PartitionerAudit(LAYOUTS)
    batch = {("orders", 3): Tally(records=30, null_keys=10, strays=15, fnv1a=15)}
    assert [len(audit.add(batch)) for _ in range(4)] == [0, 0, 0, 1]


def test_the_first_value_of_a_topic_that_is_left_in_kafka_is_reported():
    audit = PartitionerAudit({"orders": Layout("orders", 9, options=Options(max_value_bytes=1_000_000))})
    tallies = {("orders", 0): Tally(records=9, left_in_kafka=1), ("orders", 1): Tally(left_in_kafka=1)}
    (sentence,) = audit.add(tallies)
    assert "has values over 1,000,000 bytes: they are left in Kafka" in sentence
    assert audit.add(tallies) == []


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def reported(*batches: tuple) -> list:
    exporter = InMemorySpanExporter()
    spans = BatchSpans(Tracing("tested", lambda: [exporter], print))
    for batch in batches:
        spans.report(1_000, 1_250, *batch)
    spans.close()
    return list(exporter.get_finished_spans())


def test_a_batch_of_one_topic_is_named_by_it_and_linked_to_valid_traces():
    tallies = {("orders", 0): Tally(records=2), ("orders", 1): Tally(records=3)}
    [span] = reported((tallies, [f"00-{TRACE}-{SPAN}-01".encode(), b"nonsense", b"\xff"]))
    assert (span.name, span.kind, span.parent) == ("process orders", SpanKind.CONSUMER, None)
    assert (span.start_time, span.end_time) == (1_000_000_000, 1_250_000_000)
    assert span.attributes["messaging.batch.message_count"] == 5
    assert span.attributes["messaging.destination.name"] == "orders"
    [link] = span.links
    assert (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == (TRACE, SPAN)


def test_a_batch_of_several_topics_lists_them_and_one_without_records_is_no_span():
    [span] = reported(({("b", 0): Tally(records=1), ("a", 0): Tally(records=1)},), ({},))
    assert span.name == "process"
    assert span.attributes["keylane.topics"] == ("a", "b")
    assert "messaging.destination.name" not in span.attributes
