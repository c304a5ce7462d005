"""`/metrics` of the server, after real requests, as Prometheus' own parsers read it."""

from __future__ import annotations

import json
import re

from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from tests.e2e.client import Client
from tests.servers.own import eventually

from keylane import __version__
from keylane_local.process.ports import HOST
from keylane_local.tools import project_root

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def samples_of(client, accept=OPENMETRICS, read=read_openmetrics):
    answer = client.request("GET", "/metrics", Accept=accept)
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith(accept.partition(";")[0])
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in read(answer.body.decode())
        for sample in family.samples
    }


def push(client, topic, count, *, waits=True):
    records = [{"topic": topic, "data": "1"} for _ in range(count)]
    body = json.dumps({"records": records, "wait_for_send": waits}).encode()
    return client.request("POST", "/push", body).status


def growth(before, after, *place):
    return after.get(place, 0) - before.get(place, 0)


def test_pushes_and_what_became_of_them_are_told_under_kprfs_names(client):
    before = samples_of(client)
    assert push(client, "flights", 3) == 200
    assert push(client, "nowhere", 2) == 404
    assert push(client, "flights", 1, waits=False) == 200
    after = samples_of(client)
    method = ("method", "push/sync")
    for place, count in {
        ("http_requests_duration_ms_count", ("code", "200"), method): 1,
        ("http_requests_duration_ms_count", ("code", "404"), method): 1,
        ("http_requests_duration_ms_bucket", ("code", "200"), ("le", "+Inf"), method): 1,
        ("http_requests_duration_ms_count", ("code", "200"), ("method", "push/async")): 1,
        ("kafka_messages_sent_total", ("topic", "flights")): 4,
        ("kafka_message_send_duration_count", ("topic", "flights")): 4,
        ("kafka_errors_total", ("error_code", "UNKNOWN_TOPIC_OR_PARTITION"), ("topic", "(other)")): 2,
    }.items():
        assert growth(before, after, *place) == count, place
    assert growth(before, after, "kafka_message_send_duration_sum", ("topic", "flights")) > 0
    assert after["kafka_internal_queue_size",] == 0
    assert after["keylane_app_metadata", ("version", __version__)] == 1


def test_reads_tell_how_stale_their_answers_were_and_problems_are_counted(client, key):
    position = client.put("flights", key, b"1")
    before = samples_of(client)
    assert client.get_at("flights", key, position).status == 200
    assert client.get("flights", key + b"-absent").status == 404
    after = samples_of(client)
    for place, count in {
        ("http_requests_duration_ms_count", ("code", "200"), ("method", "get_key")): 1,
        ("http_requests_duration_ms_count", ("code", "404"), ("method", "get_key")): 1,
        ("keylane_answer_age_ms_count", ("topic", "flights")): 2,
        ("keylane_problems_total", ("problem", "key-absent")): 1,
    }.items():
        assert growth(before, after, *place) == count, place
    assert after["keylane_cold_starts_total", ("function", "query")] >= 1


def test_request_that_the_api_did_not_answer_is_told_too(client):
    place = "keylane_server_refusals_total", ("code", "413")
    before = samples_of(client)
    assert client.request("POST", "/push", b"x" * 7_000_000).status == 413
    assert samples_of(client)[place] == before.get(place, 0) + 1


def test_the_page_is_prometheus_text_for_those_who_ask_for_that(client):
    push(client, "flights", 1)
    samples = samples_of(client, "text/plain; version=0.0.4", read_text)
    assert any(name == "http_requests_duration_ms_bucket" for name, *_ in samples)
    assert ("kafka_messages_sent_total", ("topic", "flights")) in samples


def test_metrics_are_no_lines_of_the_log(client, stack):
    push(client, "flights", 1)
    assert ("kafka_messages_sent_total", ("topic", "flights")) in samples_of(client)
    log = stack.data / "logs" / "server.log"
    eventually(lambda: "/push" in log.read_text())
    assert '{"_aws"' not in log.read_text()


def test_the_board_of_grafana_has_data_of_the_stack_s_job(applied_stack):
    board = json.loads((project_root() / "infra" / "monitoring" / "grafana-dashboard.json").read_text())
    queries = " ".join(target["expr"] for panel in board["panels"] for target in panel["targets"])
    shown = set(re.findall(r"\bkeylane_(?:topic|view)_\w+", queries))
    job = Client(f"http://{HOST}:{applied_stack.state.metrics_port}")

    def has_all():
        return len(shown) > 8 and shown <= {name for name, *_ in samples_of(job)}

    eventually(has_all, 60)
