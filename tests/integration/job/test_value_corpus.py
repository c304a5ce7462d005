"""A corpus of values by all that reads them: one verdict each, which docs/contribute/values.md shows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from tests.records.values import corpus

from keylane.api.http.rendering import as_json
from keylane.formats.change_events import parse_event
from keylane.model.records import Options, Record
from keylane.state.windows import Column, Definition
from keylane_local.tools import project_root
from keylane_spark.config.transforms import Transform
from keylane_spark.engine.record_sql import with_results
from keylane_spark.rows.change_events import apply_events
from keylane_spark.rows.fields import field_entries
from keylane_spark.rows.record_function import read_code
from keylane_spark.rows.records import Rows
from keylane_spark.rows.transforms import TopicTransform, transform_rows
from keylane_spark.schemas.event_schemas import judge_none
from keylane_spark.stream.sql_rows import JSON_COLUMNS, SqlRows, WithJson, to_arrow
from keylane_spark.views.partials import parse_partials, partials
from keylane_spark.views.table_rows import row_changes
from keylane_spark.views.values import SparkRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from tests.records.values import Value

    from keylane.adapters.registry.login import RegistrySettings

VALUES = [value.data for value in corpus()]
NAMES = [value.name for value in corpus()]
SIZES = (1, 16, 17, 1_000)
SOURCE = ("t", 0)
NONE = np.array([], np.int64)
PAGE = project_root() / "docs" / "contribute" / "values.md"
IS_JSON = Transform(where="json is not null")
WHOLE = Transform(select="json")
REFUSED = "Spark can't read it"
MOST_GROUPS = 12
"""In a line of the page."""


def rows_of(values: Sequence[bytes], first: int = 0) -> Rows:
    offsets = np.arange(first, first + len(values))
    keys = pa.array([b"k%d" % offset for offset in offsets], pa.binary())
    return Rows(offsets, offsets, keys, pa.array(values, pa.binary()))


def in_batches(size: int) -> Iterator[Rows]:
    for first in range(0, len(VALUES), size):
        yield rows_of(VALUES[first : first + size], first)


def read(value: bytes) -> str:
    """What a plain read shows."""
    return as_json(Record(b"k", value, 0, 0, 0))[1]


def stored(found: Rows, definition: Transform) -> dict[int, bytes | str | None]:
    """What becomes of each row: its value, None for a deletion, REFUSED where it fails."""
    invalid = NONE
    if definition.envelope != "none":
        applied = apply_events(found, judge_none)
        found, invalid = applied.rows, applied.invalid_offsets
    made = transform_rows(found, invalid, 0, TopicTransform(definition, "skip"))
    kept = dict(zip(made.rows.offsets.tolist(), made.rows.values.to_pylist(), strict=True))
    return kept | dict.fromkeys(made.failed_offsets.tolist(), REFUSED)


def in_driver(spark: SparkSession, definition: Transform, rows: Rows) -> dict[int, Any]:
    evaluated = SqlRows(spark, {"t": definition}).evaluated(each for each in [(SOURCE, rows)])
    with closing(evaluated):
        return {at: each for _, found in evaluated for at, each in stored(found, definition).items()}


def in_task(spark: SparkSession, definition: Transform) -> dict[int, Any]:
    """As a task computes it: rows of Spark, through a Python worker and the JVM."""
    rows = rows_of(VALUES)
    with_json = WithJson.of({"t": definition})
    frame = spark.createDataFrame(pa.Table.from_batches([to_arrow(SOURCE, rows)]))
    frame = frame.repartition(2, "offset").mapInArrow(with_json, JSON_COLUMNS)
    found = with_results(frame, {"t": definition}).sort("offset").select("wanted", "selected").collect()
    wanted = pa.array([row.wanted for row in found], pa.bool_())
    selected = pa.array([row.selected for row in found], pa.string())
    together = Rows(rows.offsets, rows.timestamps_ms, rows.keys, rows.values, None, wanted, selected)
    return stored(together, definition)


def of_kafka(spark: SparkSession, values: Sequence[bytes] = VALUES) -> DataFrame:
    """Rows of the Kafka source, each value in a partition of its own."""
    rows = rows_of(values)
    times = pa.array(np.zeros(len(values), np.int64), pa.timestamp("us", "UTC"))
    partitions = pa.array(np.arange(len(values), dtype=np.int32))
    names = ["partition", "offset", "timestamp", "key", "value"]
    columns = [partitions, pa.array(rows.offsets), times, rows.keys, rows.values]
    return spark.createDataFrame(pa.Table.from_arrays(columns, names)).repartition(2, "offset")


def by_view(
    frame: DataFrame, view: Definition, count: int, registry: RegistrySettings | None = None
) -> list[str]:
    found = ["no record"] * count
    for each in parse_partials(partials(SparkRows(frame), view, 0, registry).toArrow(), view):
        found[each.partition] = "failed" if each.failed else "invalid" if each.key is None else "counted"
    return found


def exact(text: str | bytes) -> Any:
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


@pytest.fixture(scope="module")
def reads() -> list[str]:
    return [read(value) for value in VALUES]


@pytest.fixture(scope="module")
def conditions(spark: SparkSession) -> list[str]:
    """What `where` makes of each value, one of a batch of all."""
    found = in_driver(spark, IS_JSON, rows_of(VALUES))
    names = {None: "not JSON", REFUSED: REFUSED}
    return [names.get(found[at], "JSON") for at in range(len(VALUES))]


def test_the_corpus_has_more_than_four_hundred_values_of_many_kinds():
    groups = Counter(value.group for value in corpus())
    assert len(VALUES) == len(set(VALUES)) >= 400
    assert len(groups) >= 20


@pytest.mark.parametrize("size", SIZES)
def test_fields_call_json_what_reads_do(reads: list[str], size: int):
    options = Options(index=1, fields=(("absent", "text"),))
    invalid = [field_entries(rows.values, options)[1] for rows in in_batches(size)]
    wanted = [sum(each != "json" for each in reads[at : at + size]) for at in range(0, len(reads), size)]
    empty = VALUES.index(b"")  # has no fields, and is not counted
    wanted[empty // size] -= 1
    assert invalid == wanted


def test_sql_calls_json_what_reads_do(reads: list[str], conditions: list[str]):
    wrong = [
        (name, shown, found)
        for name, shown, found in zip(NAMES, reads, conditions, strict=True)
        if found not in {"JSON" if shown == "json" else "not JSON", REFUSED}
    ]
    assert not wrong
    refused = {value.group for value, found in zip(corpus(), conditions, strict=True) if found == REFUSED}
    # Half a pair, a name of 65,537 characters, an exponent of 100,000, and what has more than 500 levels.
    numbers = {"number", "number in a string"}
    assert refused == {"half a pair", "size", "depth", "depth cut off", "event", *numbers}


@pytest.mark.parametrize("size", [17, 1])
def test_sql_does_not_depend_on_what_comes_together(spark: SparkSession, conditions: list[str], size: int):
    names = {None: "not JSON", REFUSED: REFUSED}
    for rows in list(in_batches(size))[:: 29 if size == 1 else 5]:
        found = in_driver(spark, IS_JSON, rows)
        assert {at: names.get(each, "JSON") for at, each in found.items()} == {
            at: conditions[at] for at in rows.offsets.tolist()
        }


@pytest.mark.parametrize(
    "definition",
    [IS_JSON, WHOLE, Transform(select="json", envelope="debezium")],
    ids=["where", "select", "events"],
)
def test_sql_is_the_same_in_tasks(spark: SparkSession, definition: Transform):
    assert in_task(spark, definition) == in_driver(spark, definition, rows_of(VALUES))


def test_select_keeps_documents_and_the_digits_of_their_numbers(spark: SparkSession, conditions: list[str]):
    found = in_driver(spark, WHOLE, rows_of(VALUES))
    ambiguous = []
    for at, (value, condition) in enumerate(zip(VALUES, conditions, strict=True)):
        if condition == "JSON" and found[at] == REFUSED:
            ambiguous.append(value[:8])
        elif condition == "JSON" and value != b"null":
            assert exact(found[at]) == exact(value), NAMES[at]
        else:
            assert found[at] == (REFUSED if condition == REFUSED else None) or value == b"null", NAMES[at]
    assert ambiguous == [b'{"v":111', b'{"111111']


def test_a_function_gets_each_value_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "corpus_same.py").write_text("def same(batch):\n    return batch\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    code = read_code("corpus_same:same")
    transform = TopicTransform(Transform(function=code.name), "skip", code)
    for size in SIZES:
        for rows in in_batches(size):
            assert transform_rows(rows, NONE, 0, transform).rows.values.equals(rows.values)


def verdict(value: bytes) -> int:
    """0: the event has a row, 1: it deletes it, 2: it is none."""
    try:
        return int(parse_event(value.decode()).row is None)
    except ValueError:
        return 2


def test_events_have_one_verdict_in_topics_and_views(spark: SparkSession):
    wanted = [verdict(value) for value in VALUES]
    for size in SIZES:
        found = [
            (2 if at in applied.invalid_offsets else int(not applied.rows.values[number].is_valid))
            for rows in in_batches(size)
            for applied in [apply_events(rows, judge_none)]
            for number, at in enumerate(rows.offsets.tolist())
        ]
        assert found == wanted, size
    view = Definition("t", (Column("n", "count"),), envelope="debezium")
    changes = row_changes(SparkRows(of_kafka(spark)), view).select("partition", "kind").toArrow()
    kinds = dict(zip(*(changes.column(name).to_pylist() for name in ("partition", "kind")), strict=True))
    assert [kinds[at] for at in range(len(VALUES))] == wanted


def test_views_count_or_pass_by_each_value_and_the_page_shows_what_becomes_of_it(
    spark: SparkSession, reads: list[str], conditions: list[str]
):
    frame = of_kafka(spark)
    count = (Column("n", "count"), Column("l", "latest", "v"))
    by_key = by_view(frame, Definition("t", count, key="v"), len(VALUES))
    by_time = by_view(frame, Definition("t", count, time="v", size_ms=86_400_000), len(VALUES))
    by_where = by_view(frame, Definition("t", count, where="json is not null"), len(VALUES))
    for at, shown in enumerate(reads):
        if shown != "json":
            assert (by_key[at], by_time[at]) == ("invalid", "invalid"), NAMES[at]
        wanted = {"JSON": "counted", "not JSON": "no record", REFUSED: "failed"}[conditions[at]]
        assert by_where[at] == wanted, NAMES[at]
    check_page(0, page_of(list(zip(reads, conditions, by_key, by_time, strict=True))))


def check_page(part: int, lines: list[str]) -> None:
    """Compare a part of the page, and write it where it was another one."""
    parts = PAGE.read_text().split("\n\n## ")
    found, text = "\n\n## ".join(parts), "\n".join(lines)
    parts[part : part + 1] = [text]
    if (page := "\n\n## ".join(parts).strip() + "\n") != found:
        PAGE.write_text(page)
        pytest.fail(f"{PAGE} was another one: it is written, look at what has changed")


def verdict_lines(values: Sequence[Value], verdicts: Sequence[tuple[str, ...]]) -> list[str]:
    groups = defaultdict[tuple[str, ...], Counter[str]](Counter)
    for value, found in zip(values, verdicts, strict=True):
        groups[found][value.group] += 1
    lines = []
    for found, counts in sorted(groups.items()):
        shown = [f"{group} {count}" for group, count in sorted(counts.items())]
        for first in range(0, len(shown), MOST_GROUPS):
            some = ", ".join(shown[first : first + MOST_GROUPS])
            lines.append(f"| {' | '.join(found)} | {some} |")
    return lines


def page_of(verdicts: list[tuple[str, ...]]) -> list[str]:
    return [
        "# What becomes of a value",
        "",
        (
            f"`tests/records/values.py` makes {len(VALUES)} values by rule, and "
            "`tests/integration/job/test_value_corpus.py` sends each through everything that reads values: "
            "plain reads, fields, `where` and `select` in the driver and in tasks, functions, views by key "
            "and by time, rows of tables, in batches of 1, 16, 17 and all. Ways that differ fail the test, "
            "which writes this page. [What is JSON](../use/transforms.md#what-is-json)"
        ),
        "",
        "| a read shows | `where` sees | a view by its key | a view by its time | values |",
        "| --- | --- | --- | --- | --- |",
        *verdict_lines(corpus(), verdicts),
    ]
