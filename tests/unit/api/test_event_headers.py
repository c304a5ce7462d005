"""The headers of an event, which a request reads several times."""

from __future__ import annotations

from copy import deepcopy

from keylane.api.event import headers_of, with_headers_read

EVENT = {
    "httpMethod": "GET",
    "path": "/topics/flights/keys/a",
    "headers": {"Accept": "b/b", "X-One": "1"},
    "multiValueHeaders": {"Accept": ["a/a", "b/b"], "X-One": ["1"]},
}


def test_a_repeated_header_is_a_list_and_names_are_in_lower_case():
    assert headers_of(EVENT) == {"accept": "a/a, b/b", "x-one": "1"}


def test_an_event_whose_headers_were_read_has_the_same_ones_and_they_are_not_read_again():
    read = with_headers_read(EVENT)
    assert headers_of(read) == headers_of(EVENT)
    assert headers_of(read) is headers_of(read)


def test_the_event_of_the_caller_stays_as_it_was():
    event = deepcopy(EVENT)
    with_headers_read(event)
    assert event == EVENT


def test_an_event_without_headers_has_none():
    assert headers_of(with_headers_read({"headers": None, "multiValueHeaders": None})) == {}
