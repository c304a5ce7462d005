"""The functions' metrics: what is summed up, when it is written, and what the lines look like."""

from __future__ import annotations

import json
import time

import pytest
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit
from confluent_kafka import Producer
from tests.support.builders import a_request, an_application, an_event, load_handler
from tests.support.fakes import FakeRateLimiter, FakeTime

from keylane.adapters.kafka.metrics import KafkaMetrics
from keylane.api.http.gateway import answer
from keylane.api.http.response import Response
from keylane.api.http.router import Operations
from keylane.api.reads.clusters import CLUSTERS_SCHEMA
from keylane.api.writes.guarded_write import write_guarded
from keylane.config.api import ApiSettings
from keylane.errors import LogUnavailable, ProduceFailed, SettingsError, UnknownTopic
from keylane.metrics.catalogue import (
    BYTES,
    COUNT,
    COUNTER,
    FORMER_NAMES,
    GAUGE,
    HISTOGRAM,
    JOB,
    METRICS,
    MS,
    US,
)
from keylane.metrics.emf import EmfLog
from keylane.metrics.meter import BURST, LABELS_LIMIT, NO_METER, OTHER, Meter
from keylane.model.records import NewRecord, Position
from keylane.produce.guards import Guards
from keylane.produce.rate_limits import Rate, RateLimits, Rule
from keylane.wiring.application import build_meter, check_metrics
from keylane.wiring.runtime import Runtime

SUFFIXES = {COUNT: "", MS: "_ms", US: "_us", BYTES: "_bytes"}
"""How a name in OpenMetrics ends, by the unit."""


class Written:
    """A meter of a test's own, and the documents that it wrote."""

    def __init__(self) -> None:
        self.time = FakeTime()
        self.chunks: list[str] = []
        now_s = lambda: self.time.now_ms / 1000  # noqa: E731
        self.meter = Meter(EmfLog("Keylane", self.chunks.append, now_s), now_s)

    @property
    def documents(self):
        return [json.loads(line) for chunk in self.chunks for line in chunk.splitlines()]

    def of(self, metric):
        return [document for document in self.documents if metric in document]


@pytest.fixture
def written():
    return Written()


def test_each_metric_has_a_unit_that_cloudwatch_knows_and_a_name_of_its_own():
    assert {metric.unit for metric in METRICS.values()} <= {unit.value for unit in MetricUnit}
    assert {metric.kind for metric in METRICS.values()} == {COUNTER, GAUGE, HISTOGRAM}


def test_each_name_ends_with_the_metrics_unit_and_is_the_name_of_nothing_else():
    metrics = [*METRICS.values(), *(each for table in JOB.values() for each in table.values())]
    for metric in metrics:
        assert metric.openmetrics.endswith(SUFFIXES[metric.unit]), metric
        ends = [suffix for suffix in SUFFIXES.values() if suffix and metric.openmetrics.endswith(suffix)]
        assert ends == [SUFFIXES[metric.unit]] * bool(ends), metric
        assert metric.samples.endswith("_total") == (metric.kind == COUNTER), metric
    current = [metric.openmetrics for metric in metrics]
    names = [*current, *FORMER_NAMES.values()]
    assert len(set(names)) == len(names)
    assert FORMER_NAMES.keys() <= set(current)


def test_a_line_is_what_powertools_would_have_written(written):
    written.meter.count("SentMessages", 3, "flights")
    written.meter.flush()
    [ours] = written.documents
    theirs = EphemeralMetrics(namespace="Keylane")
    theirs.add_dimension("topic", "flights")
    theirs.add_metric("SentMessages", MetricUnit.Count, 3)
    theirs.add_metadata("version", ours["version"])
    expected = theirs.serialize_metric_set()
    expected["_aws"]["Timestamp"] = written.time.now_ms
    expected["SentMessages"] = 3
    assert ours == expected


def test_numbers_of_the_same_labels_share_a_line_and_are_reset_when_it_is_written(written):
    for _ in range(2):
        written.meter.count("SentMessages", 2, "flights")
        written.meter.observe("SendDuration", 8.0, "flights", times=2)
        written.meter.count("SentMessages", 1, "users")
        written.meter.flush()
    assert [(line["topic"], line["SentMessages"]) for line in written.documents] == [
        ("flights", 2),
        ("users", 1),
    ] * 2
    assert written.documents[0]["SendDuration"] == {
        "Values": [8.0],
        "Counts": [2],
        "Count": 2,
        "Sum": 16.0,
        "Min": 8.0,
        "Max": 8.0,
    }


def test_percentiles_of_a_distribution_are_a_tenth_off_at_most(written):
    durations = [0.05 * 1.07**number for number in range(150)]
    for taken_ms in durations:
        written.meter.observe("RequestDuration", taken_ms, "get_key", "200")
    written.meter.flush()
    told = written.documents[0]["RequestDuration"]
    assert (told["Min"], told["Max"], told["Count"]) == (durations[0], durations[-1], 150)
    assert told["Sum"] == pytest.approx(sum(durations))
    seen = sorted(
        value for value, count in zip(told["Values"], told["Counts"], strict=True) for _ in range(count)
    )
    assert all(abs(found / real - 1) < 0.1 for found, real in zip(seen, durations, strict=True))


def test_a_distribution_of_more_steps_than_cloudwatch_accepts_has_its_sums_only(written):
    for octave in range(60):
        for step in (1, 1.3):
            written.meter.observe("AnswerAge", 2**octave * step, "flights")
    written.meter.observe("AnswerAge", 0, "flights")
    written.meter.flush()
    assert written.documents[0]["AnswerAge"].keys() == {"Count", "Sum", "Min", "Max"}
    assert written.documents[0]["AnswerAge"]["Min"] == 0


def test_rare_events_are_written_at_once_and_frequent_ones_once_a_second(written):
    for _ in range(BURST):
        written.meter.request("get_key", 200, 1.0)
    assert len(written.chunks) == BURST
    for _ in range(20):
        written.meter.request("get_key", 200, 1.0)
    assert len(written.chunks) == BURST
    written.time.move(1)
    written.meter.request("get_key", 404, 1.0)
    assert len(written.chunks) == BURST + 1
    assert [line["RequestDuration"]["Count"] for line in written.documents[-2:]] == [20, 1]
    written.time.move(3600)
    for _ in range(BURST + 1):
        written.meter.request("get_key", 200, 1.0)
    assert len(written.chunks) == 2 * BURST + 1


def test_a_wall_clock_that_is_set_back_does_not_stop_the_lines(written):
    written.time.move(-86_400)
    for _ in range(BURST):
        written.meter.request("get_key", 200, 1.0)
    written.time.move(1)
    written.meter.request("get_key", 200, 1.0)
    assert len(written.chunks) == BURST + 1


def test_a_number_that_is_not_billed_is_in_the_line_but_no_metric(written):
    written.meter.gauge("BrokerState", 6, "broker:9092/1")
    written.meter.count("BrokerRetries", 2, "broker:9092/1")
    written.meter.gauge("TopicBatchBytes", 512, "flights")
    written.meter.flush()
    broker, topic = written.documents
    [directive] = broker["_aws"]["CloudWatchMetrics"]
    assert directive["Metrics"] == [{"Name": "BrokerRetries", "Unit": "Count"}]
    assert (broker["BrokerState"], broker["BrokerRetries"]) == (6, 2)
    assert topic["_aws"]["CloudWatchMetrics"] == []
    assert topic["TopicBatchBytes"] == 512


def test_a_meter_that_is_off_counts_nothing():
    NO_METER.count("Problems", 1, "internal")
    NO_METER.gauge("QueueSize", 1)
    NO_METER.request("get_key", 200, 1.0)
    assert NO_METER._notes == []


def test_records_are_counted_by_topic_and_failures_by_kafkas_name_too(written):
    metrics = KafkaMetrics(written.meter)
    records = [
        NewRecord("flights", b"a", b"1"),
        NewRecord("flights", b"b", b"2"),
        NewRecord("no", b"a", b"1"),
    ]
    metrics.sent(records, [Position(0, 1), Position(1, 1), UnknownTopic("no", "none")], 4.0)
    metrics.sent(
        records[:2],
        [ProduceFailed("MESSAGE_TOO_LARGE", "it is", retriable=False), LogUnavailable("it is away")],
        4.0,
    )
    written.meter.flush()
    documents = written.documents
    [sent] = [line for line in documents if "SentMessages" in line]
    assert (sent["topic"], sent["SentMessages"], sent["SendDuration"]["Count"]) == ("flights", 2, 2)
    failed = {
        (line["topic"], line["error_code"]): line["KafkaErrors"]
        for line in documents
        if "KafkaErrors" in line
    }
    assert failed == {
        (OTHER, "UNKNOWN_TOPIC_OR_PARTITION"): 1,
        ("flights", "MESSAGE_TOO_LARGE"): 1,
        ("flights", "REQUEST_TIMED_OUT"): 1,
    }


def test_totals_of_librdkafka_that_go_back_take_nothing_from_a_counter(written):
    texts: list[str] = []
    client = Producer(
        {"bootstrap.servers": "127.0.0.1:1", "statistics.interval.ms": 1, "stats_cb": texts.append}
    )
    until_s = time.monotonic() + 60
    while not texts and time.monotonic() < until_s:
        client.poll(0.01)
    found = json.loads(texts[0])
    metrics = KafkaMetrics(written.meter)
    # A broker leaves after the second: what it had sent is in no total any more.
    for total in (5, 7, 3, 4):
        metrics.statistics(json.dumps(found | {"tx": total}))
    written.meter.flush()
    counts = [line["Requests"] for line in written.documents if "Requests" in line]
    assert sum(counts) == 5 + 2 + 0 + 1


def test_labels_are_bounded_whatever_is_counted(written):
    for number in range(LABELS_LIMIT + 5):
        written.meter.count("SentMessages", 1, f"topic-{number}")
        written.meter.observe("SendDuration", 2.0, f"topic-{number}")
    written.meter.flush()
    written.meter.count("SentMessages", 7, "topic-0")
    written.meter.count("SentMessages", 8, "one more")
    written.meter.flush()
    first = {line["topic"]: line for line in written.documents[:-2]}
    assert len(first) == LABELS_LIMIT + 1
    assert (first[OTHER]["SentMessages"], first[OTHER]["SendDuration"]["Count"]) == (5, 5)
    assert [(line["topic"], line["SentMessages"]) for line in written.documents[-2:]] == [
        ("topic-0", 7),
        (OTHER, 8),
    ]


def test_records_that_a_rate_limit_refused_are_counted_by_their_rule(written):
    flight, user = NewRecord("flights", b"a", b"1"), NewRecord("users", b"a", b"1")
    limits = RateLimits((Rule("fl*", (Rate("records", 60, 1),)),), (), FakeRateLimiter())
    guards = Guards(limits=limits, meter=written.meter)
    refusals = []

    def put(refused):
        refusals.append(set(refused))
        return []

    write_guarded(
        guards, a_request("POST", "/push"), [flight, user, flight], put, lambda _: Response(200, None, "")
    )
    assert refusals == [{"flights"}]
    written.meter.flush()
    assert {line["topic"]: line["RateLimited"] for line in written.documents} == {"fl*": 2}


def test_the_router_reports_the_age_and_the_problem_of_each_response(written):
    operations = Operations("explore")

    @operations.operation(CLUSTERS_SCHEMA)
    def get_clusters(*_):
        response = Response(200, "text/plain", "body")
        response.ages = (("flights", 20), ("users", 30))
        return response

    application = an_application(operations, None, ApiSettings(), written.meter)
    for path in ("/clusters", "/nowhere"):
        answer(application, an_event("GET", path), None)
    written.meter.flush()
    assert [(line["topic"], line["AnswerAge"]["Sum"]) for line in written.of("AnswerAge")] == [
        ("flights", 20),
        ("users", 30),
    ]
    assert [line["problem"] for line in written.of("Problems")] == ["unknown-route"]
    requests = [(line["method"], line["code"]) for line in written.of("RequestDuration")]
    assert requests == [("get_clusters", "200"), ("unknown", "404")]


@pytest.mark.parametrize(
    ("body", "method", "code"),
    [
        ({"records": [{"topic": "t", "data": "1"}], "wait_for_send": True}, "push/sync", "500"),
        ({"records": [{"topic": "t", "data": "1"}], "wait_for_send": False}, "push/async", "500"),
        ({"records": 1}, "push", "400"),
    ],
)
def test_a_push_is_named_as_kprf_names_it_even_where_it_fails(written, body, method, code):
    function = load_handler("produce")  # without settings: every push that can be parsed fails
    function.application.meter = written.meter
    function.lambda_handler(an_event("POST", "/push", body=json.dumps(body).encode()), None)
    written.meter.flush()
    assert [(line["method"], line["code"]) for line in written.of("RequestDuration")] == [(method, code)]


def test_lines_are_in_the_namespace_of_the_deployment(capsys):
    meter = build_meter(Runtime(), {"KEYLANE_METRICS_NAMESPACE": "Keylane/orders"})
    meter.count("ColdStarts", 1, "query")
    meter.flush()
    [directive] = json.loads(capsys.readouterr().out)["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "Keylane/orders"


def test_wrong_namespace_is_named_at_the_first_request():
    with pytest.raises(SettingsError, match="KEYLANE_METRICS_NAMESPACE is not a namespace"):
        check_metrics({"KEYLANE_METRICS_NAMESPACE": "a b"})
