"""The order-preserving forms of values, against Python's own order of them."""

import itertools
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keylane.state import ordered

TEXTS = st.text(
    st.one_of(st.sampled_from("\0\1\2aé\uffff\U0010ffff"), st.characters(codec="utf-8")), max_size=90
)
DIGITS = st.text("0123456789", min_size=1, max_size=60)
NUMBERS = st.builds(
    lambda sign, whole, fraction, exponent: f"{sign}{whole}{fraction}{exponent}",
    st.sampled_from(["", "-"]),
    DIGITS,
    st.one_of(st.just(""), DIGITS.map(".{}".format)),
    st.one_of(st.just(""), st.integers(-9_000, 9_000).map("e{}".format)),
)


def sign_of(left, right):
    return (left > right) - (left < right)


def members(value, keys=(b"", b"\0", b"a", b"\xff")):
    return [value + ordered.END + key for key in keys]


@given(TEXTS, TEXTS)
@example("a", "a\0")
@example("a\0", "a\1")
@example("a" * 64, "a" * 65)
@example("", "\0")
def test_texts_are_in_the_order_of_their_utf_8(left, right):
    forms = [ordered.encode_text(each) for each in (left, right)]
    assert not any(b"\0" in form for form in forms)
    if not all(map(ordered.is_cut, forms)):
        assert sign_of(*forms) == sign_of(left.encode(), right.encode())
        # With keys behind them, too, whatever the keys are.
        if left != right:
            smaller, larger = sorted(forms)
            assert max(members(smaller)) < min(members(larger))
    elif forms[0] != forms[1]:
        assert sign_of(*forms) == sign_of(left.encode(), right.encode())


@given(NUMBERS, NUMBERS)
@example("1", "1.0")
@example("-1", "-1.01")
@example("0", "-0.0e5")
@example("1e400", "1e401")
@example("-0.12", "-0.1201")
def test_numbers_are_in_their_order_and_equal_ones_have_one_form(left, right):
    forms = [ordered.encode_number(each) for each in (left, right)]
    with localcontext() as context:
        context.prec = 400
        assert sign_of(*forms) == sign_of(Decimal(left), Decimal(right))
    assert not any(b"\0" in form for form in forms)
    if forms[0] != forms[1]:
        smaller, larger = sorted(forms)
        assert max(members(smaller)) < min(members(larger))


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
def test_integers_near_zero_are_in_their_order(left, right):
    assert sign_of(ordered.encode_number(str(left)), ordered.encode_number(str(right))) == sign_of(
        left, right
    )


def test_all_numbers_of_three_digits_and_a_few_exponents_are_in_their_order():
    texts = [
        f"{sign}{digits}e{exponent}"
        for sign in ("", "-")
        for digits in range(1000)
        for exponent in (-3, 0, 2)
    ]
    forms: dict[Decimal, set[bytes]] = {}
    for text in texts:
        forms.setdefault(Decimal(text), set()).add(ordered.encode_number(text))
    assert all(len(each) == 1 for each in forms.values())
    in_order = [forms[number].pop() for number in sorted(forms)]
    assert all(left < right for left, right in itertools.pairwise(in_order))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("0", "80"), ("-0.0", "80"), ("1", "8180020b"), ("10", "8180030b"), ("12.5", "8180030d33"),
        ("-12.5", "7f7ffcf2ccff"),
    ],
)  # fmt: skip
def test_numbers_have_these_bytes(text, form):
    assert ordered.encode_number(text).hex() == form


def test_texts_have_these_bytes():
    assert ordered.encode_text("a\0\1") == b"a\1\1\1\2"
    assert ordered.encode_text("x" * 65) == b"x" * 64 + b"\xff"
    assert ordered.encode_text("") == b""


@pytest.mark.parametrize("text", ["1e400", "-1e-400", "9" * 120, "0." + "1" * 120])
def test_numbers_that_no_double_has_are_kept(text):
    assert len(ordered.encode_number(text)) <= 64


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("NaN", "type"), ("Infinity", "type"), ("", "type"), ("1_000", "type"), ("٣", "type"),
        (" 1", "type"), ("9" * 121, "long"), ("1e99999", "long"), ("1e" + "9" * 1_000_000, "long"),
        ("-1e-99999", "long"),
    ],
)  # fmt: skip
def test_what_is_no_number_or_too_long_is_refused(text, reason):
    with pytest.raises(ordered.NotOrdered) as caught:
        ordered.encode_number(text)
    assert caught.value.reason == reason


def test_a_number_of_a_million_digits_is_refused_and_zeros_do_not_count():
    with pytest.raises(ordered.NotOrdered):
        ordered.encode_number("1" * 1_000_000)
    assert ordered.encode_number("0" * 1_000_000 + "1") == ordered.encode_number("1")
    assert ordered.encode_number("1" + "0" * 400) == ordered.encode_number("1e400")
    assert ordered.encode_number("1e+0000000000000002") == ordered.encode_number("100")


def test_a_text_of_a_megabyte_is_cut():
    assert ordered.is_cut(ordered.encode_text("é" * 1_000_000))
    assert not ordered.is_cut(ordered.encode_text("x" * 64))


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(ordered.NotOrdered):
        ordered.encode_text("\ud800")


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_is_the_number_of_its_milliseconds(when):
    micros = (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    with localcontext() as context:
        context.prec = 60
        milliseconds = str(Decimal(micros) / 1000)
    assert ordered.encode_time(when.isoformat()) == ordered.encode_number(milliseconds)


def test_times_of_other_spellings_are_the_same_time():
    spellings = ["2013-01-01T05:00:00Z", "2013-01-01T06:00+01:00", "2013-01-01 05:00", "1357016400000"]
    assert len({ordered.encode_time(each) for each in spellings}) == 1


@pytest.mark.parametrize("text", ["today", "", "2013-13-01", "9" * 30 + "x", "2013-01-01" + " " * 100])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ordered.NotOrdered):
        ordered.encode_time(text)


def test_false_is_before_true():
    assert ordered.encode_boolean("false") < ordered.encode_boolean("true")
    with pytest.raises(ordered.NotOrdered):
        ordered.encode_boolean("1")


@given(TEXTS, TEXTS)
def test_an_interval_has_what_begins_with_its_bytes_and_what_is_equal(prefix, text):
    form, bytes_ = ordered.encode_text(text), ordered.encode_text(prefix)
    if not ordered.is_cut(form) and not ordered.is_cut(bytes_):
        assert ordered.beginning_with(bytes_).has(form) == text.startswith(prefix)
        assert ordered.equal_to(bytes_).has(form) == (text == prefix)
