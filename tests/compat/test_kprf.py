"""kprf's documented requests, and what its code does with others, over fakes and over HTTP."""

from __future__ import annotations

import json

import pytest
from tests.compat.cases import check_answer, load_cases
from tests.e2e.client import Client
from tests.servers.own import create_topic
from tests.support.builders import a_topic, headers_of, load_produce
from tests.support.fakes import FakeLog, FakeRateLimiter

from keylane.produce.guards import Guards
from keylane.produce.rate_limits import Rate, RateLimits, Rule

CASES = list(load_cases("kprf").values())
LARGE = "x" * 1_048_577
JSON = {"Content-Type": "application/json"}


def by_name(case):
    return case.name.replace(" ", "-")


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_the_function_answers_as_documented(case):
    log = FakeLog()
    names = {"topic": "some", "limited": "limited-some", "unknown": "nowhere", "large": LARGE}
    for each in ("some", "limited-some"):
        log.create(each, 3)
    limiter = FakeRateLimiter({("limited-some", "records"): 0})
    limits = RateLimits((Rule("limited-*", (Rate("records", 6, 6),)),), (), limiter)
    post = load_produce(log, guards=Guards(limits=limits), pushes_as_kprf=case.mode == "kprf")
    found = post(case.path, case.request_body(names), method=case.method, headers=JSON)
    check_answer(case, names, found["statusCode"], headers_of(found)["Content-Type"], found["body"].encode())
    assert ("Retry-After" in headers_of(found)) == (case.status == 429)


@pytest.mark.e2e
@pytest.mark.parametrize("case", [each for each in CASES if not each.mode], ids=by_name)
def test_the_server_answers_as_documented(case, stack):
    names = {"topic": a_topic(), "limited": f"limited-{a_topic()}", "unknown": a_topic(), "large": LARGE}
    for each in ("topic", "limited"):
        create_topic(stack.kafka_bootstrap, names[each], 3)
    client = Client(stack.http_url)
    if "{limited}" in json.dumps(case.body):
        # A full limit admits a larger push, and is empty for twice as long then.
        spent = {"records": [{"topic": names["limited"], "data": "1"}] * 12}
        assert client.request("POST", "/push", json.dumps(spent).encode()).status == 200
    found = client.request(case.method, case.path, case.request_body(names), Content_Type="application/json")
    client.close()
    check_answer(case, names, found.status, found.headers["Content-Type"], found.body)
