"""API Gateway's events as requests: what only malformed or unusual events have."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.support.builders import an_event
from tests.support.fakes import FakeTime

from keylane.api.http.gateway import MARGIN_MS, deadline_of, request_of

EVENT = {
    "httpMethod": "GET",
    "path": "/topics/flights/keys/a",
    "headers": {"Accept": "b/b", "X-One": "1"},
    "multiValueHeaders": {"Accept": ["a/a", "b/b"], "X-One": ["1"]},
}


def test_a_repeated_header_is_a_list_and_names_are_in_lower_case():
    assert request_of(EVENT).headers == {"accept": "a/a, b/b", "x-one": "1"}


@pytest.mark.parametrize("several", [None, {}])
def test_headers_without_their_lists_count(several):
    assert request_of(EVENT | {"multiValueHeaders": several}).headers == {"accept": "b/b", "x-one": "1"}


def test_an_event_without_headers_query_and_body_has_none():
    request = request_of({"httpMethod": "GET", "path": "/", "headers": None, "multiValueHeaders": None})
    assert (request.headers, request.query, request.body) == ({}, {}, b"")


def test_a_repeated_parameter_has_all_its_values_in_their_order():
    event = an_event("GET", "/", query={"a": "2"}) | {"multiValueQueryStringParameters": {"a": ["1", "2"]}}
    assert request_of(event).query == {"a": ["1", "2"]}


def test_work_ends_before_lambda_ends_the_function():
    time = FakeTime()
    context = SimpleNamespace(get_remaining_time_in_millis=lambda: 29_000)
    deadline = deadline_of(context, time.clock)
    assert deadline is not None
    assert deadline.remaining_s * 1000 == 29_000 - MARGIN_MS
    assert deadline_of(None, time.clock) is None
