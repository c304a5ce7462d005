"""Several Kafka clusters behind one set of ports, through fakes of them."""

from __future__ import annotations

import pytest
from tests.support.builders import written
from tests.support.fakes import FakeKafka, FakeLog, FakeTime

from keylane.adapters.kafka.clusters import ClusteredLog, ClusteredMetadata, ClusteredReader
from keylane.errors import BadConfig, LogUnavailable, UnknownTopic
from keylane.explore.health import check_health
from keylane.explore.topics import describe_clusters
from keylane.model.clusters import Clusters, Named
from keylane.model.kafka import LATEST, READ_COMMITTED, LogRange, LogRecord
from keylane.model.records import NewRecord, Position
from keylane.ports import AppendResult, Deadline
from keylane.wiring.runtime import Runtime


@pytest.fixture
def limit() -> Deadline:
    return Deadline.after_ms(1_000, FakeTime().clock)


def test_records_go_to_their_clusters_and_fates_come_in_their_order(limit: Deadline):
    ours, theirs = FakeLog(), FakeLog()
    ours.create("a", 1)
    theirs.create("x.a", 1)
    log = ClusteredLog(Clusters(ours, (Named("theirs", ("x.*",), theirs),)), Runtime().call_all)
    sent = [NewRecord(topic, b"k", b"v") for topic in ("x.a", "a", "nothing", "x.a")]
    first, second, unknown, last = log.append_all(sent, limit)
    assert (first, second, last) == (Position(0, 0), Position(0, 0), Position(0, 1))
    assert isinstance(unknown, UnknownTopic)
    assert written(log, "x.a", b"k", None, limit) == Position(0, 2)
    assert [record.topic for record in ours.sent] == ["a", "nothing"]
    assert log.append_all([], limit) == []


class Misconfigured(FakeLog):
    def append_all(self, *_: object) -> list[AppendResult]:
        raise BadConfig("no such file")


def test_a_cluster_that_is_not_set_up_fails_its_own_records_alone(limit: Deadline):
    ours = FakeLog()
    ours.create("a", 1)
    log = ClusteredLog(Clusters(ours, (Named("broken", ("x",), Misconfigured()),)), Runtime().call_all)
    written, failed = log.append_all([NewRecord("a", b"k", b"v"), NewRecord("x", b"k", b"v")], limit)
    assert (written, type(failed)) == (Position(0, 0), BadConfig)
    with pytest.raises(BadConfig):
        log.append_all([NewRecord("x", b"k", b"v")], limit)


def test_each_cluster_tells_of_its_own_topics(limit: Deadline):
    ours, theirs = FakeKafka(), FakeKafka()
    for kafka in (ours, theirs):
        for topic in ("a", "x.a"):
            kafka.create(topic, 1 if kafka is ours else 2)
    theirs.logs["x.a"][0].add(LogRecord(0, b"k", b"v"))
    named = (Named("theirs", ("x.*",), theirs),)
    metadata, reader = ClusteredMetadata(Clusters(ours, named)), ClusteredReader(Clusters(ours, named))
    assert metadata.topics(limit) == {"a": 1, "x.a": 2}
    assert len(metadata.topic("x.a", limit).partitions) == 2
    assert metadata.cluster(limit).cluster_id == "fake"
    (found,) = reader.offsets("x.a", 0, (LATEST,), READ_COMMITTED, limit)
    assert found
    assert found.offset == 1
    [batch] = reader.read([LogRange("x.a", 0, 0, 1, 10)], 1_000, limit)
    assert len(batch.records) == 1


def test_a_cluster_without_an_answer_is_listed_beside_the_others_and_no_answer_at_all_is_an_error():
    ours, theirs = FakeKafka(), FakeKafka(away=True)
    clock = FakeTime().clock
    found = describe_clusters({"default": ours, "theirs": theirs}, Deadline.after_ms(100, clock))
    assert list(found) == ["default", "theirs"]
    assert isinstance(found["theirs"], LogUnavailable)
    ours.away = True
    with pytest.raises(LogUnavailable):
        describe_clusters({"default": ours, "theirs": theirs}, Deadline.after_ms(100, clock))
    health = check_health({"default": ours, "theirs": theirs}, None, clock, 1, 1)
    assert list(health) == ["kafka", "kafka.theirs"]
