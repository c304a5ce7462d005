"""Cursors: they give back what was put in, and nothing else is one."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane.api.http import cursors
from keylane.errors import BadRequest

ASKED = cursors.digest("keys", b"a", None)
PLACES = st.binary(max_size=200)


@given(PLACES)
def test_a_cursor_gives_the_place_back(place: bytes):
    text = cursors.encode("flights", ASKED, place)
    assert cursors.decode(text, "flights", ASKED) == place
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_its_bytes_stay_as_they_are():
    text = cursors.encode("t", cursors.digest("keys", b"", None, None), b"key")
    assert text == "AQF00FIslkSvxPZrZXk8sYb-lCqosw"


@given(place=PLACES, data=st.data())
def test_a_changed_cursor_is_refused(place: bytes, data: st.DataObject):
    raw = bytearray(base64.urlsafe_b64decode(cursors.encode("t", ASKED, place) + "=="))
    number = data.draw(st.integers(0, len(raw) - 1))
    raw[number] ^= data.draw(st.integers(1, 255))
    refused(base64.urlsafe_b64encode(raw).rstrip(b"=").decode())


@given(place=PLACES, data=st.data())
def test_a_cut_cursor_is_refused(place: bytes, data: st.DataObject):
    text = cursors.encode("t", ASKED, place)
    refused(text[: data.draw(st.integers(0, len(text) - 1))])
    refused(text + "A")


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


def test_a_cursor_of_another_topic_or_other_bounds_says_so():
    text = cursors.encode("t", ASKED, b"k")
    with pytest.raises(BadRequest, match="another topic") as caught:
        cursors.decode(text, "u", ASKED)
    assert caught.value.parameter == "cursor"
    with pytest.raises(BadRequest, match="other bounds") as caught:
        cursors.decode(text, "t", cursors.digest("keys", b"a", b"b"))
    assert caught.value.parameter == "cursor"


def refused(text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        cursors.decode(text, "t", ASKED)
    assert caught.value.parameter == "cursor"
