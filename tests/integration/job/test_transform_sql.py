"""`where` and `select` as Spark computes them, beside the rows of a log."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from tests.support.transform_examples import DELETED, examples

from keylane_spark.config.transforms import Transform
from keylane_spark.engine.record_sql import why_invalid
from keylane_spark.rows.records import Rows
from keylane_spark.rows.transforms import TopicTransform, transform_rows
from keylane_spark.stream.sql_rows import SqlRows

SOURCE = ("orders", 0)


def stored(spark, values: list[bytes | None], **definition: str) -> dict[int, bytes | None]:
    """What is stored of these values, by offset; those on which the SQL fails are skipped."""
    transform = Transform(**definition)
    offsets = np.arange(len(values))
    keys = pa.array([b"k%d" % offset for offset in offsets], pa.binary())
    rows = Rows(offsets, offsets, keys, pa.array(values, pa.binary()))
    evaluated = SqlRows(spark, {"orders": transform}).evaluated(each for each in [(SOURCE, rows)])
    with closing(evaluated):
        ((source, found),) = evaluated
    assert source == SOURCE
    made = transform_rows(found, np.array([], np.int64), 0, TopicTransform(transform, "skip")).rows
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


@pytest.mark.parametrize(
    ("event", "row"),
    [
        (b'{"before":{"a":1},"after":{"a":2},"op":"u"}', b'{"a":2}'),
        (b'{"payload":{"after":{"a":2},"op":"r"},"schema":{}}', b'{"a":2}'),
        (b'{"a":2,"op":null,"__deleted":"false"}', b'{"__deleted":"false","a":2,"op":null}'),
    ],
)
def test_of_a_change_event_sql_sees_the_row(spark, event, row):
    assert stored(spark, [event], select="json", envelope="debezium") == {0: row}
    assert stored(spark, [event], select="value as v", envelope="debezium") == {
        0: b'{"v":"%s"}' % row.replace(b'"', b'\\"')
    }


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
        ("select", "explode(array(1)) as x", "select: Spark can't compute it: [UNSUPPORTED_GENERATOR"),
        ("select", "row_number() over (order by offset) as n", "select: Spark can't compute it: [WINDOW"),
    ],
)
def test_sql_that_is_not_of_one_record_is_refused_with_a_reason(spark, option, text, why):
    assert why_invalid(spark, Transform(**{option: text})).startswith(why)
