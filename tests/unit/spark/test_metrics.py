"""The job's metrics: what is counted, and the lines that come of it."""

from __future__ import annotations

import json

from tests.support.fakes import FakeTime

from keylane_spark.telemetry.metrics import Meter
from keylane_spark.telemetry.tally import Tally


def test_a_line_for_each_topic_has_what_happened_since_the_last():
    time, lines = FakeTime(), []
    meter = Meter(time.clock, lines.append)
    meter.batch({("orders", 0): Tally(records=5, strays=2), ("orders", 1): Tally(records=1, left_in_kafka=1)})
    meter.gauge("orders", lag=7, age_ms=250, incomplete=1)
    meter.gauge("users", lag=0, age_ms=None, incomplete=0)
    meter.restart(["orders"])
    assert not meter.is_due
    time.move(10)
    assert meter.is_due
    meter.flush()
    orders, users = (json.loads(line) for line in lines)
    names = ("Records", "Batches", "Strays", "LeftInKafka", "Restarts", "Lag", "Age", "IncompletePartitions")
    assert [orders[name] for name in names] == [[6], [1], [2], [1], [1], [7], [250], [1]]
    assert orders["topic"] == "orders"
    assert "Age" not in users
    meter.flush()
    assert json.loads(lines[2])["Records"] == [0]


def test_a_view_has_a_line_of_its_own():
    time, lines = FakeTime(), []
    meter = Meter(time.clock, lines.append)
    for _ in range(2):
        meter.view_batch("delays", records=5, windows=3, late=2, invalid=1)
    meter.view_restart("delays")
    meter.gauge("delays", lag=4, age_ms=100, incomplete=0, kind="view")
    meter.gauge("delays", lag=9, age_ms=None, incomplete=0)
    meter.flush()
    topic, view = (json.loads(line) for line in lines)
    names = ("Records", "Batches", "Windows", "Late", "Invalid", "Restarts", "Lag", "Age")
    assert [view[name] for name in names] == [[10], [2], [6], [4], [2], [1], [4], [100]]
    assert view["view"] == topic["topic"] == "delays"
    assert "Windows" not in topic


def test_without_metrics_nothing_is_ever_due():
    time = FakeTime()
    meter = Meter(time.clock, None)
    time.move(100)
    assert not meter.is_due
