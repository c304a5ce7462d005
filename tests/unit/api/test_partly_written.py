"""A push of which a part was written does not invite clients to send that part again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import urllib3
from tests.support.builders import headers_of, load_produce
from tests.support.fakes import FakeLog, FakeRateLimiter
from tests.support.http_function import over_http

from keylane.errors import LogUnavailable, ProduceFailed
from keylane.produce.guards import Guards
from keylane.produce.rate_limits import Rate, RateLimits, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.errors import KeylaneError

FULL = RateLimits(
    (Rule("limited", (Rate("records", 1, 1),)),), (), FakeRateLimiter({("limited", "records"): 0})
)
GOOD, LIMITED = {"topic": "good", "data": "1"}, {"topic": "limited", "data": "1"}
STOCK = urllib3.Retry(
    3,
    allowed_methods=None,
    status_forcelist=(429, 500, 502, 503, 504),
    raise_on_status=False,
    retry_after_max=0,
)
"""What urllib3's documentation shows, for POST too. It does not wait, to save the test's time."""
REFUSALS = [
    LogUnavailable("Kafka is away"),
    ProduceFailed("NOT_ENOUGH_REPLICAS", "Kafka refused the record", retriable=True),
    ProduceFailed("UNKNOWN_SERVER_ERROR", "Kafka refused the record", retriable=False),
]


@pytest.fixture
def post(log: FakeLog) -> Callable[..., dict[str, Any]]:
    return load_produce(log, guards=Guards(limits=FULL))


def test_a_stock_retry_sends_no_record_twice(log: FakeLog):
    post = load_produce(log, guards=Guards(limits=FULL))
    handler = lambda event, _: post(event["path"], event["body"].encode())  # noqa: E731
    with over_http(handler) as url, urllib3.PoolManager(retries=STOCK) as client:
        answer = client.request(
            "POST", f"{url}/push", json={"records": [GOOD, LIMITED], "wait_for_send": True}
        )
    assert [entry["error"] for entry in answer.json()["errors"]] == [False, True]
    assert [record.topic for record in log.sent] == ["good"]


def test_a_stock_retry_repeats_a_push_of_which_nothing_was_written(log: FakeLog):
    post = load_produce(log, guards=Guards(limits=FULL))
    calls: list[Any] = []
    handler = lambda event, _: calls.append(1) or post(event["path"], event["body"].encode())  # noqa: E731
    with over_http(handler) as url, urllib3.PoolManager(retries=STOCK) as client:
        answer = client.request("POST", f"{url}/push", json={"records": [LIMITED]})
    assert (answer.status, len(calls), log.sent) == (429, 4, [])


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: str(refusal).partition(":")[0])
def test_a_partly_written_push_has_a_status_that_no_client_retries(
    post: Callable[..., dict[str, Any]], log: FakeLog, refusal: KeylaneError
):
    log.refusals = {"away": refusal}
    answer = post("/push", {"records": [GOOD, {"topic": "away", "data": "1"}], "wait_for_send": True})
    assert answer["statusCode"] == 422
    assert "Retry-After" not in headers_of(answer)
    document = json.loads(answer["body"])
    assert (document["status"], document["positions"]) == ("err", ["0:0", None])
    assert post("/push", {"records": [{"topic": "away", "data": "1"}]})["statusCode"] in {502, 503}


def test_a_fault_of_the_request_keeps_its_status_where_a_part_was_written(
    post: Callable[..., dict[str, Any]],
):
    assert post("/push", {"records": [GOOD, {"topic": "nowhere", "data": "1"}]})["statusCode"] == 404
