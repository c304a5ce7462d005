"""Errors as problem documents: the table is whole, and nothing inside gets out."""

from __future__ import annotations

import inspect
import json
import logging
from typing import Any

import pytest

from keylane import errors
from keylane.api.http import problems

PUBLIC = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, Exception)]


def answered(error: Exception) -> tuple[int, dict[str, Any], dict[str, Any]]:
    response = problems.response_to(error, "request-1")
    assert response.headers["Content-Type"] == "application/problem+json"
    assert isinstance(response.body, str)
    document = json.loads(response.body)
    assert document["status"] == response.status_code
    assert document["instance"] == "request-1"
    return response.status_code, document, response.headers


@pytest.mark.parametrize("error", [each for each in PUBLIC if each.__base__ is errors.KeylaneError])
def test_every_branch_of_the_tree_of_errors_is_in_the_table(error: type[errors.KeylaneError]):
    assert error in problems.KINDS


@pytest.mark.parametrize("error", PUBLIC)
def test_no_error_repeats_the_kind_of_its_base(error: type[errors.KeylaneError]):
    bases = [problems.KINDS[each] for each in error.__mro__[1:] if each in problems.KINDS]
    assert error.__base__ is errors.KeylaneError or problems.KINDS.get(error) not in bases[:1]


@pytest.mark.parametrize(
    ("error", "status", "name", "code"),
    [
        (errors.BadRequest("no", "envelope"), 400, "bad-request", None),
        (errors.NullKey(), 400, "empty-key", None),
        (errors.UnknownTopic("t"), 404, "unknown-topic", "UNKNOWN_TOPIC_OR_PARTITION"),
        (errors.KeyAbsent("t"), 404, "key-absent", None),
        (errors.TooLarge("value", 2, 1), 413, "value-too-large", "MESSAGE_TOO_LARGE"),
        (errors.TooLarge("key", 2, 1), 414, "key-too-large", None),
        (errors.PositionNotReached("1:2", 1, 5), 412, "position-not-reached", None),
        (errors.StateUnavailable("away"), 503, "state-unavailable", None),
        (errors.LaneBuilding("t", 0, 1), 503, "lane-building", None),
        (errors.LogUnavailable("away"), 503, "log-unavailable", None),
        (errors.CorruptState("{0}:t", "cut"), 500, "corrupt-state", None),
        (
            errors.ProduceFailed("MESSAGE_TOO_LARGE", "no", retriable=False),
            413,
            "value-too-large",
            "MESSAGE_TOO_LARGE",
        ),
        (
            errors.ProduceFailed("TOPIC_AUTHORIZATION_FAILED", "no", retriable=False),
            403,
            "produce-failed",
            "TOPIC_AUTHORIZATION_FAILED",
        ),
        (
            errors.ProduceFailed("NOT_ENOUGH_REPLICAS", "no", retriable=True),
            503,
            "produce-failed",
            "NOT_ENOUGH_REPLICAS",
        ),
        (
            errors.ProduceFailed("UNKNOWN_SERVER_ERROR", "no", retriable=False),
            502,
            "produce-failed",
            "UNKNOWN_SERVER_ERROR",
        ),
    ],
)
def test_errors_have_their_status_type_and_code(
    error: errors.KeylaneError, status: int, name: str, code: str | None
):
    answered_status, document, headers = answered(error)
    assert (answered_status, document["type"]) == (status, f"urn:keylane:problem:{name}")
    assert document.get("code") == code
    assert document["detail"] == str(error)
    assert ("Retry-After" in headers) == (status == 503)


@pytest.mark.parametrize(
    "error", [RuntimeError("secret"), errors.Fenced("lane", 1, 2), errors.WriterError("secret")]
)
def test_unforeseen_errors_are_logged_with_their_traceback_and_not_shown(
    error: Exception, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.ERROR, "keylane"):
        status, document, _ = answered(error)
    assert (status, document["type"]) == (500, "urn:keylane:problem:internal")
    assert str(error) not in json.dumps(document)
    (record,) = caplog.records
    assert "request-1" in record.getMessage()
    assert record.exc_info
    assert record.exc_info[1] is error


def test_cause_of_an_outage_is_in_the_log(caplog: pytest.LogCaptureFixture):
    error = errors.StateUnavailable("away")
    error.__cause__ = OSError("connection refused by 10.0.0.1")
    with caplog.at_level(logging.WARNING, "keylane"):
        _, document, _ = answered(error)
    assert "10.0.0.1" in caplog.text
    assert "10.0.0.1" not in json.dumps(document)


def test_a_lane_that_is_being_built_tells_its_progress_in_numbers():
    response = problems.response_to(errors.LaneBuilding("t", 3, 250, 1000), "request-1")
    document = json.loads(response.body)
    assert (document["next_offset"], document["log_end"], document["percent"]) == (250, 1000, 25)
    unknown = json.loads(problems.response_to(errors.LaneBuilding("t", 3, None), "request-1").body)
    assert "percent" not in unknown
