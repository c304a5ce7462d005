"""`where` and `select` as Spark computes them, beside the rows of a log."""

from __future__ import annotations

import json
import logging
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from tests.support.transform_examples import DELETED, examples

from keylane.model.records import Options
from keylane_spark.config.transforms import Transform
from keylane_spark.engine.record_sql import why_invalid
from keylane_spark.engine.session import QUERY_LOGS
from keylane_spark.rows.records import Rows, stored_records
from keylane_spark.rows.transforms import TopicTransform, transform_rows
from keylane_spark.stream import sql_rows
from keylane_spark.stream.sql_rows import SqlRows

SOURCE = ("orders", 0)


def made_of(spark, values: list[bytes | None], times=None, on_error="skip", **definition: str):
    """What a transform makes of rows with these values."""
    transform = Transform(**definition)
    offsets = np.arange(len(values))
    keys = pa.array([b"k%d" % offset for offset in offsets], pa.binary())
    rows = Rows(offsets, offsets if times is None else np.array(times), keys, pa.array(values, pa.binary()))
    evaluated = SqlRows(spark, {"orders": transform}).evaluated(each for each in [(SOURCE, rows)])
    with closing(evaluated):
        ((source, found),) = evaluated
    assert source == SOURCE
    return transform_rows(found, np.array([], np.int64), 0, TopicTransform(transform, on_error))


def stored(spark, values: list[bytes | None], times=None, **definition: str) -> dict[int, bytes | None]:
    """What is stored of these values, by offset; those on which the SQL fails are skipped."""
    made = made_of(spark, values, times, **definition).rows
    return dict(zip(made.offsets.tolist(), made.values.to_pylist(), strict=True))


@pytest.mark.parametrize("example", [each for each in examples() if each.topic], ids=lambda each: each.topic)
def test_each_table_of_the_page_stores_what_it_shows(spark, example):
    definition = example.config.definition
    assert why_invalid(spark, definition) == ""
    found = stored(
        spark,
        [before for before, _ in example.pairs],
        **{name: text for name in ("where", "select") if (text := getattr(definition, name))},
    )
    after = [None if after == DELETED else after.encode() for _, after in example.pairs]
    assert list(found.values()) == after


def test_a_cast_that_fails_is_a_failure_of_its_record_alone_even_where_the_expression_is_there_twice(spark):
    number = "cast(variant_get(json, '$.n', 'string') as int)"
    values = [b'{"n":"1"}', b'{"n":"x"}', b'{"n":"3"}', b"no json", None]
    assert stored(spark, values, where=f"{number} > 0 and {number} < 3") == {
        0: b'{"n":"1"}',
        2: None,
        3: None,
        4: None,
    }
    assert stored(spark, values, where=f"{number} > 0", select=f"{number} as n, {number} as m") == {
        0: b'{"n":1,"m":1}',
        2: b'{"n":3,"m":3}',
        3: None,
        4: None,
    }


EVENTS = [
    (b'{"before":{"a":1},"after":{"a":2},"op":"u"}', b'{"a":2}', b'{"a":2}'),
    (b'{"payload":{"after":{"a":2},"op":"r"},"schema":{}}', b'{"a":2}', b'{"a":2}'),
    (
        b'{"a":2,"op":null,"__deleted":"false"}',
        b'{"a":2,"op":null,"__deleted":"false"}',
        b'{"__deleted":"false","a":2,"op":null}',
    ),
    (b'{"after":{"b": 1e0, "a": 1e99},"op":"r"}', b'{"b": 1e0, "a": 1e99}', b'{"a":1e99,"b":1}'),
    (b'{"after":"{\\"a\\": {\\"$numberLong\\": \\"2\\"}}","op":"u"}', b'{"a": 2}', b'{"a":2}'),
]
"""Change events, their rows, and those as Spark writes them."""


def test_of_a_change_event_sql_sees_the_row(spark):
    events, rows, parsed = zip(*EVENTS, strict=True)
    found = stored(spark, list(events), select="json", envelope="debezium")
    assert list(found.values()) == list(parsed)
    found = stored(spark, list(events), select="value as v", envelope="debezium")
    assert list(found.values()) == [b'{"v":"%s"}' % row.replace(b'"', b'\\"') for row in rows]


@pytest.mark.parametrize(
    ("option", "text", "why"),
    [
        ("where", "offset >", "where: Spark can't compute it: [PARSE_SYNTAX_ERROR]"),
        ("where", "offset > 1) or (true", "where: Spark can't compute it: [PARSE_SYNTAX_ERROR]"),
        ("where", "value", "where: Spark can't compute it: [DATATYPE_MISMATCH"),
        ("where", "sum(offset) > 1", "where: Spark can't compute it: [INVALID_WHERE_CONDITION]"),
        ("select", "raw_value as v", "select: Spark can't compute it: [UNRESOLVED_COLUMN"),
        ("select", "upper(value)", "select: it gives string, not an object"),
        ("select", "offset as o, upper(value)", "select: each field needs a name"),
        ("select", "key, *", "select: * is no field: name the columns"),
        ("select", "struct(*)", "select: * is no field: name the columns"),
        ("select", "explode(array(1)) as x", "select: Spark can't compute it: [UNSUPPORTED_GENERATOR"),
        ("select", "row_number() over (order by offset) as n", "select: Spark can't compute it: [WINDOW"),
        ("where", "try_variant_get(json, 'a', 'int') = 1", "where: Spark can't compute it: [INVALID_VARIANT"),
        (
            "where",
            "value rlike '('",
            "where: Spark can't compute it: java.util.regex.PatternSyntaxException: ",
        ),
        ("where", "value like '50%\\\\'", "where: Spark can't compute it: [INVALID_FORMAT.ESC_AT_THE_END]"),
        (
            "select",
            "date_format(timestamp, 'bad!') as d",
            "select: Spark can't compute it: [INVALID_DATETIME",
        ),
        (
            "select",
            "from_utc_timestamp(timestamp, 'Zone') as t",
            "select: Spark can't compute it: [INVALID_TIM",
        ),
    ],
)
def test_sql_that_is_not_of_one_record_is_refused_with_a_reason(spark, option, text, why):
    assert why_invalid(spark, Transform(**{option: text})).startswith(why)


def nested(levels: int) -> bytes:
    return b'{"status":"active","a":' + b'{"a":' * levels + b"1" + b"}" * levels + b"}"


UNREAD = [
    rb'{"status":"active","bio":"hi \ud83d"}',
    b'{"status":"active","' + b"n" * 50_001 + b'":1}',
    nested(500),
    nested(5_000),
]


@pytest.mark.parametrize(
    "definition",
    [
        {"where": "json:status::string = 'active'"},
        {"select": "json:status::string as s"},
        {"where": "json:status::string = 'active'", "select": "json:status::string as s"},
        {"where": "schema_of_variant(json) = 'x'"},
    ],
    ids=["where", "select", "both", "recursive"],
)
def test_a_value_that_is_json_for_readers_and_not_for_spark_fails_and_deletes_nothing(spark, definition):
    values = [b'{"status":"active"}', b"no json", b"{broken"]
    found = stored(spark, [*values, *UNREAD, values[0]], **definition)
    alone = stored(spark, values, **definition)
    assert found == alone | {len(values) + len(UNREAD): alone[0]}


@pytest.mark.parametrize(
    "definition", [{"where": "json:status::string = 'active'"}, {"select": "json:status as s"}]
)
def test_a_document_of_mongodb_that_spark_can_not_read_fails_and_deletes_nothing(spark, definition):
    values = [
        json.dumps({"after": document.decode(), "op": "c"}).encode()
        for document in (b'{"status":"active"}', UNREAD[1], UNREAD[3])
    ]
    assert stored(spark, values, envelope="debezium", **definition).keys() == {0}


def test_what_is_no_json_for_anyone_is_seen_by_sql_as_text(spark):
    assert stored(spark, [b"text", b"{", b"\xff"], where="value = 'text' or value = '{'") == {
        0: b"text",
        1: b"{",
        2: None,
    }
    assert stored(spark, [b"text"], select="value as v") == {0: b'{"v":"text"}'}


DIGITS = {
    **{text: text for text in ("1" * 78, "1" * 1_001, "-0." + "123456789" * 5, "1e400", "-1E-400")},
    **{text: text for text in ("9007199254740993", "1" * 38, "1." + "1" * 37)},
    "8.41E21": "8410000000000000000000",
    "1e-7": "0.0000001",
    "-1.5e2": "-150",
}
"""Numbers, and how they are shown."""


def test_numbers_keep_their_digits(spark):
    where = "json:status::string = 'active'"
    values = [
        f'{{"status":"active","n":{number},"s":"{shown}x","all":[{{"x":[{number},"a"]}}]}}'.encode()
        for number, shown in DIGITS.items()
    ]
    assert stored(spark, values, where=where) == dict(enumerate(values))
    found = stored(spark, values, where=where, select="json:n as n, json:all as all")
    assert list(found.values()) == [
        f'{{"n":{shown},"all":[{{"x":[{shown},"a"]}}]}}'.encode() for shown in DIGITS.values()
    ]
    # A string of the same digits beside it would be a failure.
    assert stored(spark, values, where="json:n::string || 'x' = json:s::string") == dict(enumerate(values))


def test_casts_take_a_number_that_a_variant_does_not_hold(spark):
    value = b'{"rate":0.1000000000000000055511151231257827021181583404541015625,"big":1e400}'
    assert stored(spark, [value], select="json:rate::double as d, json:rate::decimal(12,3) as e") == {
        0: b'{"d":0.1,"e":0.100}'
    }
    assert stored(spark, [value], select="json:big::bigint as b") == {}


def test_a_number_that_takes_a_minute_to_round_is_a_failure(spark):
    numbers = ("1e-10000000", "1e10000", "1E+99999999999999999999", "1")
    values = [f'{{"n":{number}}}'.encode() for number in numbers]
    assert stored(spark, values, select="json") == {3: values[3]}
    assert stored(spark, values, where="json:n::decimal(9,2) > 0") == {3: values[3]}


def test_a_string_that_takes_a_minute_to_round_is_a_failure(spark):
    values = [
        b'{"n":"1e-10000000"}',
        b'{"n": " +2.5E-0012345678 "}',
        b'{"n":"1e-9999"}',
        b'{"n":"7e-12-34567"}',
    ]
    assert stored(
        spark, values, where="coalesce(try_cast(json:n::string as decimal(9,2)) >= 0, true)"
    ).keys() == {2, 3}
    texts = [b"+1e-10000000", b"5"]
    assert stored(spark, texts, where="cast(value as decimal(9,2)) > 0").keys() == {1}


def test_a_number_whose_digits_are_a_string_too_is_a_failure(spark):
    number = b"1" * 39
    assert stored(spark, [b'{"id":%s,"id_str":"%s"}' % (number, number)], select="json") == {}
    assert stored(spark, [b'{"id":%s,"id_str":"%s"}' % (number, number)], where="true").keys() == {0}


def test_many_objects_beside_each_other_are_not_deep(spark):
    value = b'{"status":"active","all":[' + b",".join([b'{"a":[1,{"b":"}{[\\""}]}'] * 2_000) + b"]}"
    assert stored(spark, [value], where="json:status::string = 'active'") == {0: value}
    assert stored(spark, [nested(499)], where="json:status::string = 'active'") == {0: nested(499)}


def test_a_record_may_have_any_timestamp(spark):
    times = [-(2**63), -6_795_364_578_871_345_152, -1, 0, 2**63 - 1, 9_223_372_036_854_776]
    values: list[bytes | None] = [b'{"status":"active"}'] * (1 + len(times))
    definition = {"where": "json:status::string = 'active'", "select": "unix_millis(timestamp) as t"}
    found = stored(spark, values, [1_000, *times], **definition)
    assert list(found.values()) == [b'{"t":1000}', *[b'{"t":null}'] * len(times)]


@pytest.mark.parametrize("definition", [{"where": "json:a::int > 0"}, {"select": "json:a as a"}])
def test_a_large_value_does_not_reach_spark_and_is_a_failure(spark, monkeypatch, definition: dict[str, str]):
    monkeypatch.setattr(sql_rows, "LARGEST_VALUE", 100)
    large, small = b'{"a":1,"text":"%b"}' % (b"x" * 100), b'{"a":1}'
    made = made_of(spark, [small, large, small], on_error="keep", **definition)
    assert made.rows.values.to_pylist() == [small, b"", small]
    assert made.rows.left_bytes.tolist() == [0, len(large), 0]
    assert (made.failed_offsets.tolist(), made.why) == ([1], "it has more than 16,777,216 bytes")
    kept = stored_records(made.rows, Options(max_value_bytes=5))
    assert kept.values.to_pylist() == [b"", b"", b""]
    assert kept.left_bytes.tolist() == [len(small), len(large), len(small)]


@pytest.mark.parametrize("definition", [{"select": "key, value as v"}, {"select": "nowhere(value) as v"}])
def test_no_stack_trace_of_java_is_logged_of_sql_that_is_right_or_wrong(
    spark, definition: dict[str, str], monkeypatch
):
    lines: list[str] = []
    for log in QUERY_LOGS:
        for handler in logging.getLogger(log).handlers:
            monkeypatch.setattr(handler, "emit", lambda record: lines.append(record.getMessage()))
    reason = why_invalid(spark, Transform(**definition))
    assert reason == "" or reason.startswith("select: Spark can't compute it: [UNRESOLVED_ROUTINE]")
    assert not lines
