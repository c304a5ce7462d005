"""One write as a trace: the server's span, the record's header, and the span of the job's batch."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from tests.servers.collector import CollectedSpan, Collector
from tests.servers.own import eventually, messages_of, produce
from tests.servers.standing import StandingServer, plain_variables, standing
from tests.support import jobs

from keylane_server.worker import SERVICE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVER, CONSUMER = 2, 5
"""Kinds of spans in OTLP."""
WRITTEN_BEFORE = 5
"""Records of the topic before the job begins: tasks write them, for the driver writes batches of one."""
JOB = "[job]\nsmall_batch_records = 1\n"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as found:
        yield found


@pytest.fixture(scope="module")
def variables(redis_cluster: str, kafka: str) -> dict[str, str]:
    return plain_variables(redis_cluster, kafka)


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str], collector: Collector
) -> Iterator[StandingServer]:
    log = tmp_path_factory.mktemp("traced") / "log"
    with standing(log, {**variables, **collector.variables}) as running:
        yield running


@pytest.fixture
def job(
    kafka: str, redis_cluster: str, topic: str, tmp_path: Path, collector: Collector
) -> Iterator[jobs.RunningJob]:
    headers = ({"traceparent": a_parent()} for _ in range(WRITTEN_BEFORE))
    produce(kafka, topic, ((b"before-%d" % number, b"1", 0, 0, own) for number, own in enumerate(headers)))
    config = f"{JOB}[topics.{topic}]\n"
    with jobs.running(kafka, redis_cluster, tmp_path, config, **collector.variables) as running:
        yield running


def a_parent(trace_id: str | None = None, span_id: str | None = None) -> str:
    return f"00-{trace_id or secrets.token_hex(16)}-{span_id or secrets.token_hex(8)}-01"


def record_headers(kafka: str, topic: str, offset: int) -> dict[str, bytes]:
    return dict(messages_of(kafka, topic, 0)[offset].headers())


def spans_of(collector: Collector, trace_id: str, service: str) -> list[CollectedSpan]:
    return [each for each in collector.spans if (each.trace_id, each.service) == (trace_id, service)]


def test_a_write_s_trace_goes_from_the_request_through_the_record_to_the_job_s_batch(
    server: StandingServer, job: jobs.RunningJob, kafka: str, topic: str, collector: Collector
):
    def batches() -> list[CollectedSpan]:
        return [each for each in collector.spans if each.attributes.get("messaging.system") == "kafka"]

    eventually(lambda: bool(batches()))
    trace_id, parent_id = secrets.token_hex(16), secrets.token_hex(8)
    path, parent = f"/topics/{topic}/keys/k", a_parent(trace_id, parent_id)
    assert server.ask("PUT", path, b"1", traceparent=parent)[0] == 201
    eventually(lambda: bool(spans_of(collector, trace_id, SERVICE)))
    [span] = spans_of(collector, trace_id, SERVICE)
    assert (span.name, span.kind, span.parent_id) == ("PUT /topics/{topic}/keys/{key}", SERVER, parent_id)
    assert (span.attributes["http.response.status_code"], span.is_error) == (201, False)
    assert span.attributes["url.path"] == f"/topics/{topic}/keys/k"
    assert record_headers(kafka, topic, WRITTEN_BEFORE)["traceparent"].decode() == a_parent(trace_id, span.id)
    eventually(lambda: len(batches()) > 1)
    by_tasks, batch = batches()
    assert (by_tasks.attributes["messaging.batch.message_count"], by_tasks.links) == (WRITTEN_BEFORE, [])
    assert (batch.service, batch.name, batch.kind) == ("keylane-job", f"process {topic}", CONSUMER)
    assert batch.links == [(trace_id, span.id)]
    assert batch.attributes["messaging.batch.message_count"] == 1
    assert batch.trace_id != trace_id


def test_a_refused_request_is_a_span_without_an_error_and_own_pages_are_none(
    server: StandingServer, collector: Collector
):
    trace_id = secrets.token_hex(16)
    parent = a_parent(trace_id)
    assert server.ask("GET", "/health/live", traceparent=parent)[0] == 200
    assert server.ask("GET", "/topics/nowhere-at-all/keys/k", traceparent=parent)[0] == 404
    eventually(lambda: bool(spans_of(collector, trace_id, SERVICE)))
    [span] = spans_of(collector, trace_id, SERVICE)
    assert (span.attributes["http.response.status_code"], span.is_error) == (404, False)
    assert "error.type" not in span.attributes


def test_a_collector_that_is_away_costs_no_request_and_does_not_hold_up_the_stop(
    tmp_path: Path, variables: dict[str, str]
):
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY": "10"}
    with standing(tmp_path / "log", {**variables, **away}) as server:
        for _ in range(20):
            assert server.ask("GET", "/topics/nowhere-at-all/keys/k")[0] == 404
        eventually(lambda: "traces: " in server.log)
        assert server.stop() == 0
        assert server.log.count("Transient error") == 1
        assert "Traceback" not in server.log
