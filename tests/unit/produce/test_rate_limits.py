"""Rate limits: which rules hold, who is refused, what the answer reports; counted by a fake."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import headers_of, load_produce
from tests.support.fakes import FakeLog, FakeRateLimiter

from keylane.config.guards import GuardSettings
from keylane.errors import RateLimited, SettingsError, StateUnavailable
from keylane.model.patterns import fits
from keylane.model.records import NewRecord
from keylane.produce.guards import Guards
from keylane.produce.rate_limits import UNRULED, Rate, RateLimits, Rule, rule_of

if TYPE_CHECKING:
    from collections.abc import Callable

REDIS = {"KEYLANE_REDIS_NODES": "one:7001"}
TEN = (Rate("records", 10, 10),)
REST_JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}


@pytest.fixture
def limiter() -> FakeRateLimiter:
    return FakeRateLimiter()


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog()
    log.create("orders", 1)
    log.create("other", 1)
    return log


@pytest.fixture
def post(log: FakeLog, limiter: FakeRateLimiter) -> Callable[..., dict[str, Any]]:
    """A function with 10 records a minute for `orders`, and 20 for each caller."""
    limits = RateLimits((Rule("orders", TEN),), (Rule("*", (Rate("records", 20, 20),)),), limiter)
    return load_produce(log, guards=Guards(limits=limits))


def records(count: int, topic: str = "orders") -> list[dict[str, str]]:
    return [{"topic": topic, "key": "k", "data": "1"}] * count


def settings(limits: Any, **more: str) -> GuardSettings:
    return GuardSettings.from_environment(REDIS | {"KEYLANE_RATE_LIMITS": json.dumps(limits)} | more)


def test_a_push_reports_the_limit_with_the_least_left(post: Callable[..., dict[str, Any]]):
    answer = post("/push", {"records": records(4)})
    assert answer["statusCode"] == 200
    told = headers_of(answer)
    assert (told["RateLimit-Limit"], told["RateLimit-Remaining"], told["RateLimit-Reset"]) == (
        "10",
        "6",
        "31",
    )
    assert told["RateLimit-Policy"] == '10;w=60;burst=10;comment="records"'
    assert "Retry-After" not in told


def test_topic_over_its_limit_refuses_all_its_records_and_no_others(
    post: Callable[..., dict[str, Any]], log: FakeLog, limiter: FakeRateLimiter
):
    answer = post("/push", {"records": [*records(2, "other"), *records(11), *records(1, "other")]})
    assert (answer["statusCode"], "Retry-After" in headers_of(answer)) == (422, False), "a part was written"
    document = json.loads(answer["body"])
    assert [entry["error"] for entry in document["errors"]] == [False] * 2 + [True] * 11 + [False]
    refused = document["errors"][2]
    told = (refused["index"], refused["field"], refused["code"], refused["retriable"])
    assert told == (2, "topic", "THROTTLING_QUOTA_EXCEEDED", True)
    assert "topic 'orders' takes 10 records a minute" in refused["message"]
    assert [record.topic for record in log.sent] == ["other"] * 3
    assert limiter.left == {("anonymous", "records"): 17, ("orders", "records"): 10}, "only what was written"


def test_caller_over_its_limit_is_refused_whole_and_takes_nothing_from_the_topics(
    post: Callable[..., dict[str, Any]], log: FakeLog, limiter: FakeRateLimiter
):
    answer = post("/push", {"records": [*records(20, "other"), *records(3)]})
    document = json.loads(answer["body"])
    assert (answer["statusCode"], document["type"]) == (429, "urn:keylane:problem:rate-limited")
    assert (document["code"], headers_of(answer)["Retry-After"]) == ("THROTTLING_QUOTA_EXCEEDED", "13")
    assert "this caller may send 20 records a minute" in document["detail"]
    assert (headers_of(answer)["RateLimit-Limit"], headers_of(answer)["RateLimit-Remaining"]) == ("20", "20")
    assert not log.sent
    assert limiter.left == {("anonymous", "records"): 20}, "the topic's limit is not even looked at"


def test_a_refused_key_is_429_in_every_form(post: Callable[..., dict[str, Any]], log: FakeLog):
    assert post("/push", {"records": records(10)})["statusCode"] == 200
    for answer in (
        post("/topics/orders/keys/k", b"v", method="PUT"),
        post("/topics/orders/keys/k", b"", method="DELETE"),
        post("/topics/orders", {"records": [{"value": 1}]}, headers=REST_JSON),
    ):
        document = json.loads(answer["body"])
        assert (answer["statusCode"], document["code"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
        assert (headers_of(answer)["Retry-After"], headers_of(answer)["RateLimit-Remaining"]) == ("13", "0")
    assert (document["error_code"], len(document["offsets"])) == (429, 1)
    assert len(log.sent) == 10


def test_what_can_not_be_counted_is_let_through_or_refused_as_the_settings_say(log: FakeLog):
    limiter = FakeRateLimiter(away={"orders"})
    rules = ((Rule("orders", TEN),), (Rule("*", TEN),))
    some = [NewRecord("orders", b"k", b"v")]
    assert RateLimits(*rules, limiter).admit("ann", some).refused == {}
    assert limiter.left == {("ann", "records"): 9}
    with pytest.raises(StateUnavailable, match="nothing was written"):
        RateLimits(*rules, limiter, open_on_failure=False).admit("ann", some)
    assert limiter.left == {("ann", "records"): 9}, "given back"


def test_bytes_are_those_of_keys_values_and_headers():
    limits = RateLimits((Rule("t", (Rate("bytes", 100, 100),)),), (), limiter := FakeRateLimiter())
    limits.admit("ann", [NewRecord("t", b"key", b"value", headers=(("name", b"1"), ("n", None)))])
    assert limiter.left == {("t", "bytes"): 100 - 3 - 5 - 5 - 1}
    limits.admit("ann", [NewRecord("t", None, None)])
    assert limiter.left == {("t", "bytes"): 86}


def test_names_that_no_topic_can_have_are_not_counted():
    limits = RateLimits((Rule("*", TEN),), (), limiter := FakeRateLimiter())
    limits.admit("ann", [NewRecord("no topic", b"k", b"v"), NewRecord("", b"k", b"v")])
    assert limiter.left == {}


def test_a_caller_that_is_refused_hears_of_the_longest_wait():
    rates = (Rate("requests", 60, 1), Rate("records", 600, 1))
    limits = RateLimits((), (Rule("*", rates),), FakeRateLimiter(left={("ann", "requests"): 0}))
    with pytest.raises(RateLimited, match="60 requests a minute") as caught:
        limits.admit("ann", [NewRecord("t", b"k", b"v")])
    assert caught.value.retry_after_s == 13


@pytest.mark.parametrize(
    ("pattern", "name", "does"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders*", "orders.eu", True),
        ("*.eu", "orders.eu", True),
        ("a*b*c", "a-b-b-c", True),
        ("orders.eu", "orders-eu", False),
        ("*", "", True),
        ("a[b]?", "ab", False),
        ("arn:aws:iam::*:user/ann", "arn:aws:iam::12:user/ann", True),
        ("*" * 500 + "x", "a" * 5_000, False),
    ],
)
def test_stars_stand_for_anything(pattern: str, name: str, does: bool):
    assert fits(pattern, name) is does


def test_the_first_rule_that_fits_holds():
    rules = settings({"topics": {"a": {"records_per_minute": 1}, "*": {"records_per_minute": 2}}}).topics
    assert [rule_of(rules, name).rates[0].per_minute for name in ("a", "b")] == [1, 2]
    assert rule_of((), "a") == UNRULED


def test_limits_are_read_with_their_bursts_and_kprfs_name_for_records():
    given = {
        "topics": {"orders": {"max_requests_per_minute": 42}},
        "callers": {"*": {"requests_per_minute": 600, "bytes_per_minute": 7, "burst_s": 2}},
    }
    found = settings(given, KEYLANE_RATE_LIMIT_FAILURE="closed", KEYLANE_CALLER="iam, source-ip")
    assert found.topics == (Rule("orders", (Rate("records", 42, 42),)),)
    assert found.callers == (Rule("*", (Rate("requests", 600, 20), Rate("bytes", 7, 1))),)
    assert (found.open_on_failure, found.caller) == (False, ("iam", "source-ip"))


@pytest.mark.parametrize(
    "limits",
    [
        [],
        {"topic": {}},
        {"topics": []},
        {"topics": {"a": 5}},
        {"topics": {"a": {"records": 5}}},
        {"topics": {"a": {"records_per_minute": 0}}},
        {"topics": {"a": {"records_per_minute": "5"}}},
        {"topics": {"a": {"records_per_minute": True}}},
        {"topics": {"a": {"records_per_minute": 10**13}}},
        {"callers": {"a": {"records_per_minute": 5, "burst_s": 0}}},
    ],
)
def test_invalid_limits_name_their_variable(limits: Any):
    with pytest.raises(SettingsError) as caught:
        settings(limits)
    assert caught.value.variable == "KEYLANE_RATE_LIMITS"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KEYLANE_RATE_LIMITS", "{"),
        ("KEYLANE_RATE_LIMIT_FAILURE", "ajar"),
        ("KEYLANE_RATE_LIMIT_TIMEOUT_MS", "0"),
        ("KEYLANE_CALLER", "x-forwarded-for"),
        ("KEYLANE_IDEMPOTENCY_EXPIRY_S", "-1"),
        ("KEYLANE_IDEMPOTENCY_IN_PROGRESS_S", "901"),
    ],
)
def test_wrong_settings_name_their_variable(variable: str, value: str):
    with pytest.raises(SettingsError) as caught:
        GuardSettings.from_environment(REDIS | {variable: value})
    assert caught.value.variable == variable


def test_limits_need_a_redis():
    with pytest.raises(SettingsError) as caught:
        GuardSettings.from_environment(
            {"KEYLANE_RATE_LIMITS": '{"topics": {"*": {"records_per_minute": 1}}}'}
        )
    assert caught.value.variable == "KEYLANE_REDIS_NODES"
    assert not GuardSettings.from_environment({}).has_redis


def test_a_claim_that_a_write_may_outlast_is_refused_with_what_contradicts_it():
    claim = "KEYLANE_IDEMPOTENCY_IN_PROGRESS_S"
    times = {
        "KEYLANE_PRODUCE_TIMEOUT_MS": "27000",
        "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS": "2000",
        "KEYLANE_STATE_TIMEOUT_MS": "1000",
    }
    with pytest.raises(SettingsError, match=r"KEYLANE_PRODUCE_TIMEOUT_MS.*30000 ms") as caught:
        GuardSettings.from_environment(REDIS | times)
    assert caught.value.variable == claim
    assert GuardSettings.from_environment(REDIS | times | {claim: "31"}).in_progress_s == 31
    for each in times:
        assert GuardSettings.from_environment(REDIS | times | {each: "500"}).in_progress_s == 30
    assert GuardSettings.from_environment(times).in_progress_s == 30
