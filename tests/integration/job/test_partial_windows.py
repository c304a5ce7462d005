"""What Spark makes of a batch for a view: partial windows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import functions as f

from keylane.state.windows import Column, Definition
from keylane_spark.engine.session import REFUSALS
from keylane_spark.engine.value_errors import is_about_a_value
from keylane_spark.views.partials import parse_partials, partials
from keylane_spark.views.values import SparkRows

GAP_MS = 20_000
VISITS = Definition("clicks", (Column("n", "count"),), time="at", size_ms=GAP_MS, is_session=True)


def partials_of_each(spark, view, cases):
    """The partial windows of each case's values, in a list by case: all cases are one query of Spark.

    Each case is a partition of its own, and no window has records of two partitions.
    """
    rows = [
        (number, offset, value if isinstance(value, bytes) else value.encode())
        for number, values in enumerate(cases)
        for offset, value in enumerate(values)
    ]
    frame = spark.createDataFrame(rows, "partition int, offset long, value binary").select(
        "partition",
        "offset",
        f.timestamp_millis(f.lit(0)).alias("timestamp"),
        f.lit("anna").cast("binary").alias("key"),
        "value",
    )
    found = parse_partials(partials(SparkRows(frame), view).toArrow(), view)
    return [[each for each in found if each.partition == number] for number in range(len(cases))]


def partials_of(spark, view, *values):
    [found] = partials_of_each(spark, view, [values])
    return found


def sessions_of(spark, *times):
    """Start, end and records of each session of one key's records, in the order of their starts."""
    found = partials_of(spark, VISITS, *(f'{{"at": {time}}}' for time in times))
    return sorted((each.start_ms, each.end_ms, each.records) for each in found)


def test_records_within_the_gap_are_one_session(spark):
    assert sessions_of(spark, 1000, 20_999) == [(1000, 40_999, 2)]


def test_records_exactly_one_gap_apart_are_two_sessions(spark):
    assert sessions_of(spark, 1000, 21_000) == [(1000, 21_000, 1), (21_000, 41_000, 1)]


def test_times_are_cut_to_milliseconds_before_they_are_compared(spark):
    early, late = '"2026-11-22T12:00:00.000900Z"', '"2026-11-22T12:00:20.000100Z"'
    (first, second) = sessions_of(spark, early, late)
    assert first[1] == second[0] == first[0] + GAP_MS


DAILY = Definition("clicks", (Column("n", "count"),), time="at", size_ms=86_400_000)
JULY_4TH = 1_372_896_000_000


TIMES = [
    ('"2013-07-04"', JULY_4TH), ('"20130704"', JULY_4TH), ('"20130704T050000Z"', JULY_4TH),
    ('"2013-07-04T05:00:00+02:00"', JULY_4TH), ('"2013"', 1_356_998_400_000),
    ('"0001-01-01T00:00:00Z"', -62_135_596_800_000), ("1372896000001", JULY_4TH),
    ("1.3728960000e12", JULY_4TH), ('"1372896000001"', JULY_4TH), ("-1", -86_400_000),
    ("1372896000000000000", None), ("9223372036854775", None), ("-9223372036854775", None),
    ('"+200000-01-01T00:00:00Z"', None), ("true", None), ("{}", None), ('"some day"', None),
    ('"10:15:00"', None), ('"T10:15"', None), ('"1:5"', None), ('"now"', None),
]  # fmt: skip


@pytest.fixture(scope="module")
def daily(spark):
    """The partial windows of one record of each of TIMES."""
    found = partials_of_each(spark, DAILY, [[f'{{"at": {at}}}'] for at, _ in TIMES])
    return dict(zip((at for at, _ in TIMES), found, strict=True))


@pytest.mark.parametrize(("at", "start_ms"), TIMES)
def test_a_time_is_what_a_person_means_by_it_or_invalid(daily, at, start_ms):
    [found] = daily[at]
    assert (found.key is None, found.failed) == (start_ms is None, False)
    assert start_ms is None or found.start_ms == start_ms


NUMBERS = Definition(
    "clicks",
    (Column("s", "sum", "v"), Column("a", "avg", "v"), Column("m", "max", "v"), Column("l", "latest", "v")),
)


VALUES = [
    ("0.1", "0.1", "0.1"),
    ('"1e3"', "1000", '"1e3"'),
    ("9007199254740993", "9007199254740993", "9007199254740993"),
    ("123456789012345678901", "123456789012345678901", "123456789012345678901"),
    ("12345678901234567890.5", "12345678901234567890.5", "12345678901234567890.5"),
    ("true", None, "true"),
    ('"NaN"', None, '"NaN"'),
    ("1e400", None, "1e400"),
    ("1e30", None, "1e30"),
    ("null", None, None),
]


@pytest.fixture(scope="module")
def numbers(spark):
    """The partial windows of one record of each of VALUES."""
    found = partials_of_each(spark, NUMBERS, [[f'{{"v": {value}}}'] for value, *_ in VALUES])
    return dict(zip((value for value, *_ in VALUES), found, strict=True))


@pytest.mark.parametrize(("value", "total", "latest"), VALUES)
def test_numbers_are_exact_and_what_is_no_number_is_skipped(numbers, value, total, latest):
    [found] = numbers[value]
    states = found.states
    assert (states[0], states[1], states[2]) == (total, [total, int(total is not None)], total)
    assert (states[3] and states[3][3]) == latest


DEEP = '{"a":' * 900 + "1" + "}" * 900


def test_a_field_beside_one_that_is_nested_deeply_is_not_counted_either(spark):
    [found] = partials_of(spark, NUMBERS, f'{{"v": 1, "other": {DEEP}}}', '{"v": 2}')
    assert found.states[0] == "2"


KEYS = Definition("clicks", (Column("n", "count"), Column("s", "sum", "id")), key="id")
LONG = "1" * 77


def test_numbers_of_many_digits_are_keys_of_their_own(spark):
    ids = [f"{LONG}4", f"{LONG}5", "9007199254740992", "9007199254740993", "1e400", "1e401", f"0.{LONG}"]
    found = partials_of(spark, KEYS, *(f'{{"id": {each}}}' for each in [*ids, "1.50e1", "15"]))
    assert {each.key.decode(): each.records for each in found} == dict.fromkeys(ids, 1) | {"15": 2}
    assert {each.key: each.states[1] for each in found}[f"0.{LONG}".encode()] == "0.111111111"


def test_a_condition_fails_on_json_that_spark_can_not_read(spark):
    view = replace(KEYS, where="json:id::int > 0")
    found = partials_of(
        spark, view, '{"id": 1, "x": "\\ud83d"}', f'{{"id": 1, "x": {"[" * 501 + "]" * 501}}}', '{"id": 2}'
    )
    assert sorted((each.key, each.records, each.failed) for each in found if each.key) == [(b"2", 1, False)]
    assert [(each.records, each.failed) for each in found if not each.key] == [(2, True)]


def test_of_a_name_that_an_object_has_twice_the_last_one_counts(spark):
    [found] = partials_of(spark, NUMBERS, '{"v": 1, "v": 2}')
    assert found.states[0] == "2"


@pytest.mark.parametrize(
    ("older", "newer"),
    [("1", "12345678901234567890"), ("1.0000000001", "1.00000000049")],
)
def test_latest_is_ordered_by_all_digits(spark, older, newer):
    view = Definition("clicks", (Column("l", "latest", "v", "by"),))
    [found] = partials_of(spark, view, f'{{"v": "new", "by": {newer}}}', f'{{"v": "old", "by": {older}}}')
    assert found.states[0][3] == '"new"'


@pytest.mark.parametrize(
    ("where", "values", "wanted", "failed"),
    [
        ("variant_get(json, '$.v', 'int') > 0", ['{"v": 1}', '{"v": "abc"}', '{"v": -1}', "{}"], 1, [1]),
        ("cast(value as int) > 0", ["1", "x", "2", "y"], 2, [1, 3]),
        ("cast(value as int) > 0 or cast(value as int) < -5", ["1", "x", "-9", "-1", "y"], 2, [1, 4]),
        (
            "variant_get(json, '$.v', 'string') = 'SFO'",
            ['{"v": "SFO"}', '{"v": {"a": 1}}', "[1]", "no json"],
            1,
            [],
        ),
    ],
)
def test_records_on_which_a_condition_fails_are_counted_apart(spark, where, values, wanted, failed):
    found = partials_of(spark, Definition("clicks", (Column("n", "count"),), where=where), *values)
    assert sum(each.records for each in found if each.key) == wanted
    lost = [each for each in found if each.key is None]
    assert sum(each.records for each in lost) == len(failed)
    assert all(each.failed for each in lost)
    assert max((each.last_offset for each in lost), default=None) == max(failed, default=None)


def test_an_exception_of_java_about_a_value_is_about_a_value(spark):
    """Spark's Kafka source has it for a record's time that is no microseconds in 64 bits."""
    time = f.timestamp_millis(f.col("id") + f.lit(2**62))
    for rows, is_of_value in (
        (spark.range(1).select(time), True),
        (spark.range(1).select(f.expr("cast(concat('x', id) as int)")), True),
        (spark.range(1).select(f.expr("raise_error('no')")), False),
    ):
        with pytest.raises(REFUSALS) as caught:
            rows.toArrow()
        assert is_about_a_value(caught.value) is is_of_value


@pytest.mark.parametrize(
    ("definition", "starts"),
    [
        ({"size_ms": 1000}, [None, None, 5000]),
        ({"size_ms": 1000, "is_session": True}, [None, None, 5001]),
        ({}, [0, 0, 0]),
        ({"size_ms": 1000, "time": "at"}, [7000, 7000, 7000]),
    ],
    ids=["windows", "sessions", "no windows", "a field"],
)
def test_a_record_without_a_timestamp_is_in_no_window_by_record_times(spark, definition, starts):
    view = Definition("clicks", (Column("n", "count"),), **definition)
    frame = spark.createDataFrame(
        [(partition, 0, ms) for partition, ms in enumerate((-1, 0, 5001))],
        "partition int, offset long, ms long",
    ).select(
        "partition",
        "offset",
        f.timestamp_millis("ms").alias("timestamp"),
        f.lit("anna").cast("binary").alias("key"),
        f.lit('{"at": 7000}').cast("binary").alias("value"),
    )
    found = sorted(
        parse_partials(partials(SparkRows(frame), view).toArrow(), view), key=lambda each: each.partition
    )
    assert [each.start_ms if each.key else None for each in found] == starts
