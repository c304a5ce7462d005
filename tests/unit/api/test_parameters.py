"""Parameters and cursors: what is taken, what is refused by name, and that nothing crashes them."""

from __future__ import annotations

import base64
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane.api.http import cursors, parameters
from keylane.api.http.request import Request
from keylane.errors import BadRequest
from keylane.model.records import Position


def asked(name: str = "", value: str = "", **headers: str) -> Request:
    """Return a request with one parameter in its query."""
    return Request("GET", "/", {name: [value]} if name else {}, headers)


LIMIT = parameters.integer("limit", "how many", 1, 1000, 100)


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("1000", 1000), ("0010", 10)])
def test_integers_within_their_bounds_are_accepted(text: str, value: int):
    assert LIMIT.of(asked("limit", text)) == value
    assert LIMIT.of(asked()) == 100


@pytest.mark.parametrize("text", ["", "0", "1001", "-1", "1.0", "1e2", " 1", "\u0661", "9" * 5000])
def test_other_numbers_are_refused_with_their_bounds(text: str):
    with pytest.raises(BadRequest, match=r"limit is .*not an integer from 1 to 1000") as caught:
        LIMIT.of(asked("limit", text))
    assert caught.value.parameter == "limit"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1357034400000", 1_357_034_400_000),
        ("2013-01-01T10:00:00Z", 1_357_034_400_000),
        ("2013-01-01T10:00:00", 1_357_034_400_000),
        ("2013-01-01T11:00:00+01:00", 1_357_034_400_000),
        ("2013-01-01T11:00:00 01:00", 1_357_034_400_000),
        ("2013-01-01T05:00:00-05:00", 1_357_034_400_000),
        ("2013-01-01T10:00:00.250Z", 1_357_034_400_250),
        ("2013-01-01", 1_356_998_400_000),
    ],
)
def test_times_are_milliseconds_or_iso_8601_and_utc_where_no_zone_is_named(text: str, milliseconds: int):
    assert parameters.moment("from", "").of(asked("from", text)) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "soon", "-1", "1e3", "1969-12-31", "9" * 16, "2013-13-01", "0001-01-01T00:00:00+23:00"]
)
def test_invalid_time_is_refused(text: str):
    with pytest.raises(BadRequest, match="neither milliseconds") as caught:
        parameters.moment("to", "").of(asked("to", text))
    assert caught.value.parameter == "to"


def test_a_moment_may_be_a_position():
    assert parameters.read_as_of("3:1042") == Position(3, 1042)
    assert parameters.read_as_of("2013-01-01T10:00:00Z") == 1_357_034_400_000
    for wrong in ("3:", "3:x", ":1", "3:1:2", "9" * 20 + ":1"):
        with pytest.raises(ValueError, match="position"):
            parameters.read_as_of(wrong)


def test_fields_are_paths():
    assert parameters.read_fields("a, b.c") == (("a",), ("b", "c"))


@pytest.mark.parametrize("text", ["", ",", "a,", "a..b", ".", "a," * 50 + "a", "x" * 201])
def test_what_names_no_field_or_too_many_is_refused(text: str):
    with pytest.raises(ValueError, match="field"):
        parameters.read_fields(text)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str):
    for read in (parameters.read_moment, parameters.read_as_of, parameters.read_fields, LIMIT.read):
        with suppress(ValueError):
            assert read(text) is not None


@given(st.integers(0, parameters.LAST_MS))
def test_every_time_in_milliseconds_is_itself(milliseconds: int):
    assert parameters.read_moment(str(milliseconds)) == milliseconds


def test_a_long_text_is_not_a_time_and_is_refused_at_once():
    with pytest.raises(ValueError, match="ISO 8601"):
        parameters.read_moment("T0" * 500_000)


ASKED = cursors.digest("keys", b"a", None)
PLACES = st.binary(max_size=200)


def test_its_bytes_stay_as_they_are():
    text = cursors.encode("t", cursors.digest("keys", b"", None, None), b"key")
    assert text == "AQF00FIslkSvxPZrZXk8sYb-lCqosw"


@given(place=PLACES, data=st.data())
def test_a_changed_cursor_is_refused(place: bytes, data: st.DataObject):
    raw = bytearray(base64.urlsafe_b64decode(cursors.encode("t", ASKED, place) + "=="))
    number = data.draw(st.integers(0, len(raw) - 1))
    raw[number] ^= data.draw(st.integers(1, 255))
    refused(base64.urlsafe_b64encode(raw).rstrip(b"=").decode())


@given(st.text(max_size=80))
def test_any_other_text_is_refused(text: str):
    refused(text)


@given(st.binary(max_size=80))
def test_any_other_bytes_are_refused(data: bytes):
    refused(base64.urlsafe_b64encode(data).rstrip(b"=").decode())


def test_a_cursor_has_one_rendering():
    text = cursors.encode("t", ASKED, b"12")
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for other in last:
        if other != text[-1]:
            refused(text[:-1] + other)
    refused(text + "=")


def refused(text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        cursors.decode(text, "t", ASKED)
    assert caught.value.parameter == "cursor"
