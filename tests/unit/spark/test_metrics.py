"""The job's metrics: what is counted, and the lines that come of it."""

from __future__ import annotations

import json

import pytest
from tests.support.fakes import FakeTime

from keylane.errors import SettingsError
from keylane_spark.__main__ import _with_environment
from keylane_spark.config.topics import Config
from keylane_spark.telemetry.metrics import JobMetrics
from keylane_spark.telemetry.tally import Tally


def test_a_line_for_each_topic_has_what_happened_since_the_last():
    time, lines = FakeTime(), []
    metrics = JobMetrics(time.clock, lines.append)
    metrics.count_batch(
        {("orders", 0): Tally(records=5, strays=2), ("orders", 1): Tally(records=1, left_in_kafka=1)}
    )
    metrics.gauge("orders", lag=7, age_ms=250, incomplete=1, skew_ms=-3, parked=2)
    metrics.gauge("users", lag=0, age_ms=None, incomplete=0, parked=0)
    metrics.count_restart(["orders"])
    assert not metrics.is_due
    time.move(10)
    assert metrics.is_due
    metrics.flush()
    orders, users = (json.loads(line) for line in lines)
    names = ("Records", "Batches", "Strays", "LeftInKafka", "Restarts", "Lag", "Age", "IncompletePartitions")
    assert [orders[name] for name in names] == [[6], [1], [2], [1], [1], [7], [250], [1]]
    assert (orders["ClockSkew"], "ClockSkew" in users) == ([-3], False)
    assert orders["topic"] == "orders"
    assert (orders["ParkedPartitions"], users["ParkedPartitions"]) == ([2], [0])
    assert "Age" not in users
    metrics.flush()
    assert json.loads(lines[2])["Records"] == [0]


def test_a_view_has_a_line_of_its_own():
    time, lines = FakeTime(), []
    metrics = JobMetrics(time.clock, lines.append)
    for _ in range(2):
        metrics.count_view_batch("delays", records=5, windows=3, late=2, invalid=1)
    metrics.count_view_restart("delays")
    metrics.gauge("delays", lag=4, age_ms=100, incomplete=0)
    metrics.gauge("delays", lag=9, age_ms=None, incomplete=0, parked=0)
    metrics.flush()
    topic, view = (json.loads(line) for line in lines)
    names = ("Records", "Batches", "Windows", "Late", "Invalid", "Restarts", "Lag", "Age")
    assert [view[name] for name in names] == [[10], [2], [6], [4], [2], [1], [4], [100]]
    assert view["view"] == topic["topic"] == "delays"
    assert "Windows" not in topic
    assert "ParkedPartitions" not in view


def test_without_metrics_nothing_is_ever_due():
    time = FakeTime()
    metrics = JobMetrics(time.clock, None)
    time.move(100)
    assert not metrics.is_due


def test_the_gauges_of_a_topic_that_is_gone_are_dropped():
    time, lines = FakeTime(), []
    metrics = JobMetrics(time.clock, lines.append)
    metrics.gauge("deleted", lag=7, age_ms=250, incomplete=0, parked=0)
    metrics.gauge("served", lag=7, age_ms=250, incomplete=0, parked=0)
    for _ in range(20):
        time.move(10)
        metrics.gauge("served", lag=0, age_ms=100, incomplete=0, parked=0)
        metrics.flush()
    assert [json.loads(line)["topic"] for line in lines[:2]] == ["deleted", "served"]
    assert [json.loads(line)["topic"] for line in lines[-2:]] == ["served", "served"]


def test_lines_are_in_the_namespace_of_the_deployment():
    time, lines = FakeTime(), []
    metrics = JobMetrics(time.clock, lines.append, "Keylane/orders")
    metrics.count_restart(["orders"])
    metrics.flush()
    [directive] = json.loads(lines[0])["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "Keylane/orders"


@pytest.mark.parametrize(("given", "expected"), [({}, "none"), ({"KEYLANE_JOB_METRICS": "emf"}, "emf")])
def test_environment_turns_metrics_on_whatever_the_file_says(given, expected):
    config = Config.model_validate({"topics": {"orders": {}}})
    assert _with_environment(config, given).job.metrics == expected


def test_wrong_choice_of_metrics_is_named():
    config = Config.model_validate({"topics": {"orders": {}}})
    with pytest.raises(SettingsError, match="KEYLANE_JOB_METRICS is 'statsd'"):
        _with_environment(config, {"KEYLANE_JOB_METRICS": "statsd"})


@pytest.mark.parametrize(("given", "expected"), [(None, True), ("false", False), ("true", True)])
def test_environment_decides_whether_topics_are_created(given, expected):
    config = Config.model_validate({"job": {"create_topics": True}, "topics": {"orders": {}}})
    environment = {} if given is None else {"KEYLANE_CREATE_TOPICS": given}
    assert _with_environment(config, environment).job.create_topics is expected
