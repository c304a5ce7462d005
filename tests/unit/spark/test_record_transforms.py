"""What a topic's transform makes of rows: columns in, columns out; a function that fails is called again."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from tests.support.transform_examples import DELETED, Example, examples

from keylane.errors import BadConfig, WriterError
from keylane_spark.config.transforms import Transform
from keylane_spark.rows.record_function import read_code
from keylane_spark.rows.records import Rows
from keylane_spark.rows.transforms import TopicTransform, transform_rows

if TYPE_CHECKING:
    from pathlib import Path

NONE = np.array([], np.int64)
MODULE = """
import pyarrow as pa
import pyarrow.compute as pc

calls = []

def upper(batch):
    calls.append(batch.num_rows)
    return batch.set_column(1, "value", pc.utf8_upper(batch.column("value").cast(pa.string())))

def without_odd(batch):
    return batch.filter(pc.equal(pc.bit_wise_and(batch.column("offset"), 1), 0)).select(["offset", "value"])

def refuse_bad(batch):
    if b"bad" in batch.column("value").to_pylist():
        raise ValueError("there is\\na bad one")
    return upper(batch)

def exits_at_bad(batch):
    if b"bad" in batch.column("value").to_pylist():
        raise SystemExit(3)
    return upper(batch)

def interrupts_at_bad(batch):
    if b"bad" in batch.column("value").to_pylist():
        raise KeyboardInterrupt
    return upper(batch)

def half(batch):
    raise ValueError("half of a pair: \\ud83d")

class Wordless(Exception):
    def __str__(self):
        raise RuntimeError("there are no words")

def wordless(batch):
    raise Wordless

def null(batch):
    return pa.record_batch({"offset": batch.column("offset"), "value": pa.nulls(batch.num_rows, pa.binary())})

def other_keys(batch):
    return batch.set_column(0, "key", pc.binary_join_element_wise(batch.column("key"), b"x", b""))

def other_offsets(batch):
    return batch.set_column(4, "offset", pc.add(batch.column("offset"), 100))

def reversed_rows(batch):
    return batch.take(pa.array(range(batch.num_rows))[::-1])

def numbers(batch):
    return batch.set_column(1, "value", batch.column("offset"))

def no_batch(batch):
    return [1]

def no_value(batch):
    return batch.select(["key", "offset"])

def as_table(batch):
    return pa.table({"offset": batch.column("offset"), "value": batch.column("value")})

def given(batch):
    rows = [str(row).encode() for row in batch.to_pylist()]
    return pa.record_batch({"offset": batch.column("offset"), "value": rows})
"""


@pytest.fixture
def transform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest):
    """Make the transform of a function of MODULE, in a module of its own."""
    name = f"module_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(function: str, on_error="stop", envelope="none") -> TopicTransform:
        code = read_code(f"{name}:{function}")
        return TopicTransform(Transform(function=code.name, envelope=envelope), on_error, code)

    yield make
    sys.modules.pop(name, None)


def some_rows(*values: bytes | None, wanted=None, selected=None, first: int = 10) -> Rows:
    """Rows with the keys k0, k1, ..."""
    offsets = np.arange(first, first + len(values))
    return Rows(
        offsets,
        offsets * 1000,
        pa.array([b"k%d" % number for number in range(len(values))], pa.binary()),
        pa.array(values, pa.binary()),
        None,
        wanted and pa.array(wanted, pa.bool_()),
        wanted and pa.array(selected or [None] * len(values), pa.string()),
    )


def values_of(found) -> dict[int, bytes | None]:
    return dict(zip(found.rows.offsets.tolist(), found.rows.values.to_pylist(), strict=True))


def test_a_function_changes_values_and_tombstones_pass_unseen(transform):
    found = transform_rows(some_rows(b"a", None, b"b"), NONE, 0, transform("upper"))
    assert values_of(found) == {10: b"A", 11: None, 12: b"B"}
    assert (found.left_out, found.stopped_at, found.failed_offsets.tolist()) == (0, None, [])


def test_rows_that_a_function_leaves_out_or_makes_null_become_deletions(transform):
    found = transform_rows(some_rows(b"a", b"b", b"c"), NONE, 0, transform("without_odd"))
    assert values_of(found) == {10: b"a", 11: None, 12: b"c"}
    assert found.left_out == 1
    found = transform_rows(some_rows(b"a", b"b"), NONE, 0, transform("null"))
    assert (values_of(found), found.left_out) == ({10: None, 11: None}, 2)


def test_a_function_gets_the_documented_columns(transform):
    found = transform_rows(some_rows(b"a"), NONE, 7, transform("given"))
    assert values_of(found)[10] == (
        b"{'key': b'k0', 'value': b'a', 'timestamp': datetime.datetime(1970, 1, 1, 0, 0, 10, "
        b"tzinfo=zoneinfo.ZoneInfo(key='UTC')), 'partition': 7, 'offset': 10}"
    )


def test_a_record_without_a_timestamp_has_none_for_a_function(transform):
    rows = replace(some_rows(b"a", b"b"), timestamps_ms=np.array([-1, 0]))
    found = transform_rows(rows, NONE, 7, transform("given", "skip"))
    assert all(b"'timestamp': None" in value for value in values_of(found).values())


def test_a_function_may_return_a_table(transform):
    assert values_of(transform_rows(some_rows(b"a"), NONE, 0, transform("as_table"))) == {10: b"a"}


def test_of_change_events_a_function_sees_the_row(transform):
    event = b'{"before": null, "after": {"id": 1.50}, "op": "u"}'
    found = transform_rows(some_rows(event), NONE, 0, transform("upper", envelope="debezium"))
    assert values_of(found) == {10: b'{"ID": 1.50}'}


def test_a_partition_stops_at_the_record_on_which_its_function_fails(transform):
    rows = some_rows(b"a", b"b", b"bad", b"c", b"bad")
    found = transform_rows(rows, NONE, 0, transform("refuse_bad"))
    assert values_of(found) == {10: b"A", 11: b"B"}
    assert (found.stopped_at, found.failed_offsets.tolist()) == (12, [12])
    assert found.why == "ValueError: there is a bad one"


def test_only_the_bad_records_are_skipped_and_few_calls_find_them(transform):
    rows = some_rows(*[b"bad" if number in {300, 900} else b"a" for number in range(1000)])
    skipping = transform("refuse_bad", "skip")
    found = transform_rows(rows, NONE, 0, skipping)
    assert values_of(found) == {10 + number: b"A" for number in range(1000) if number not in {300, 900}}
    assert found.failed_offsets.tolist() == [310, 910]
    calls = sys.modules[skipping.code.name.partition(":")[0]].calls
    assert len(calls) < 25
    assert sum(calls) == 998


def test_the_bad_records_are_kept_as_they_are(transform):
    found = transform_rows(some_rows(b"a", b"bad", b"c"), NONE, 0, transform("refuse_bad", "keep"))
    assert values_of(found) == {10: b"A", 11: b"bad", 12: b"C"}
    assert (found.failed_offsets.tolist(), found.stopped_at, found.left_out) == ([11], None, 0)


def test_what_a_function_raises_that_is_no_exception_is_its_failure_too(transform):
    """A panic of a library in Rust is none, nor is the end of a script."""
    found = transform_rows(some_rows(b"a", b"bad", b"c"), NONE, 0, transform("exits_at_bad", "skip"))
    assert values_of(found) == {10: b"A", 12: b"C"}
    assert (found.failed_offsets.tolist(), found.why) == ([11], "SystemExit: 3")


def test_an_interrupt_that_a_function_raises_is_its_failure_unless_somebody_looks_on(transform):
    """In the job it would end the query of all topics, again and again."""
    rows, interrupting = some_rows(b"a", b"bad", b"c"), transform("interrupts_at_bad", "skip")
    found = transform_rows(rows, NONE, 0, interrupting)
    assert (values_of(found), found.why) == ({10: b"A", 12: b"C"}, "KeyboardInterrupt:")
    with pytest.raises(KeyboardInterrupt):
        transform_rows(rows, NONE, 0, replace(interrupting, has_onlooker=True))


@pytest.mark.parametrize(
    ("function", "why"), [("half", "ValueError: half of a pair: \\ud83d"), ("wordless", "Wordless")]
)
def test_a_failure_whose_words_nobody_can_print_is_one_as_any_other(transform, function, why):
    found = transform_rows(some_rows(b"a", b"b"), NONE, 0, transform(function, "skip"))
    assert (found.failed_offsets.tolist(), found.why) == ([10, 11], why)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("other_keys", "it returned other keys than it was given"),
        ("other_offsets", "it returned offsets that it was not given, or in another order"),
        ("numbers", "it returned values of type int64: they are binary or string"),
        ("no_batch", "it returned list, not a RecordBatch"),
        ("no_value", "it returned no column 'value', or several"),
    ],
)
def test_what_a_function_may_not_return_is_a_failure_that_says_why(transform, function, why):
    found = transform_rows(some_rows(b"a", b"b"), NONE, 0, transform(function))
    assert (found.stopped_at, found.why, len(found.rows)) == (10, why, 0)


def test_rows_in_another_order_fail_until_each_is_alone(transform):
    found = transform_rows(some_rows(b"a", b"b"), NONE, 0, transform("reversed_rows", "skip"))
    assert values_of(found) == {10: b"a", 11: b"b"}


def test_values_that_are_not_events_fail_a_transform_that_returns_values(transform):
    event = b'{"after": {"id": 1}, "op": "u"}'
    update = b'{"after":null,"updateDescription":{},"op":"u"}'
    cases = {
        b"no": "it is not a JSON object",
        update: "updateDescription",
        b"\0\0\0\0\7x": "it is not a change event",
    }
    for value, why in cases.items():
        rows = some_rows(event, value)
        found = transform_rows(rows, np.array([11]), 0, transform("upper", "skip", "debezium"))
        assert (values_of(found), found.failed_offsets.tolist()) == ({10: b'{"ID": 1}'}, [11])
        assert why in found.why


def test_a_transform_that_can_t_run_stops_its_partition_at_once():
    broken = TopicTransform(Transform(function="no:thing"), "skip", fault="there is no module")
    found = transform_rows(some_rows(b"a", None), NONE, 0, broken)
    assert (found.stopped_at, found.why, len(found.rows)) == (10, "there is no module", 0)


WHERE = TopicTransform(Transform(where="x"), "skip")
SELECT = TopicTransform(Transform(where="x", select="y"), "skip")


def test_where_keeps_deletes_and_fails():
    rows = some_rows(b"a", b"b", b"c", None, wanted=[True, False, None, False])
    found = transform_rows(rows, NONE, 0, WHERE)
    assert values_of(found) == {10: b"a", 11: None, 13: None}
    assert (found.left_out, found.failed_offsets.tolist()) == (1, [12])
    assert found.rows.wanted is None


def test_select_gives_the_values_and_null_is_a_deletion():
    rows = some_rows(
        b"a", b"b", b"c", b"d", wanted=[True, True, True, False], selected=["{}", "", None, None]
    )
    found = transform_rows(rows, NONE, 0, SELECT)
    assert values_of(found) == {10: b"{}", 11: None, 13: None}
    assert (found.left_out, found.failed_offsets.tolist()) == (2, [12])


def test_with_where_alone_values_that_are_not_events_stay_for_readers_to_be_answered_why():
    rows = some_rows(b"no", b"b", wanted=[False, False])
    assert values_of(transform_rows(rows, np.array([10]), 0, WHERE)) == {10: b"no", 11: None}


def test_rows_without_the_results_of_sql_are_never_taken_for_wanted():
    with pytest.raises(WriterError, match="without its results"):
        transform_rows(some_rows(b"a"), NONE, 0, WHERE)


def test_modules_that_are_not_there_or_fail_are_refused_with_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "broken_module.py").write_text("raise ValueError('no')")
    (tmp_path / "empty_module.py").write_text("")
    (tmp_path / "script_module.py").write_text("import sys\nsys.exit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadConfig, match="there is no module 'absent_module'"):
        read_code("absent_module:f")
    with pytest.raises(BadConfig, match="absent_package"):
        read_code("absent_package.module:f")
    with pytest.raises(BadConfig, match="fails with ValueError: no"):
        read_code("broken_module:f")
    with pytest.raises(BadConfig, match="fails with SystemExit: 3"):
        read_code("script_module:f")
    with pytest.raises(BadConfig, match="has no function 'f'"):
        read_code("empty_module:f")


def test_a_module_is_read_once_whatever_becomes_of_its_file(tmp_path, monkeypatch, transform):
    made = transform("upper")
    (tmp_path / f"{made.code.name.partition(':')[0]}.py").write_text("def upper(batch): return None")
    assert values_of(transform_rows(some_rows(b"a"), NONE, 0, made)) == {10: b"A"}
    assert read_code(made.code.name) == made.code


FUNCTIONS = [each for each in examples() if each.function]


@pytest.mark.parametrize("example", FUNCTIONS, ids=lambda example: example.function)
def test_each_function_of_the_page_returns_what_it_shows(example: Example, tmp_path, monkeypatch):
    module = f"page_{example.function}"
    (tmp_path / f"{module}.py").write_text(example.code)
    monkeypatch.syspath_prepend(str(tmp_path))
    code = read_code(f"{module}:{example.function}")
    rows = some_rows(*(before for before, _ in example.pairs))
    found = transform_rows(rows, NONE, 0, TopicTransform(Transform(function=code.name), "stop", code))
    after = [None if after == DELETED else after.encode() for _, after in example.pairs]
    assert list(values_of(found).values()) == after


def test_the_page_has_an_example_of_each_kind():
    assert {each.function for each in FUNCTIONS} == {"decode", "enrich", "masked"}
    assert {each.topic for each in examples() if each.topic} == {"customers", "orders", "users", "payments"}
