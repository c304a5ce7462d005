"""The guards of views: no record stops one, and no view stops the job."""

from __future__ import annotations

from tests.torture.guards.mutant import mutant, rare_mutant

_PARTIALS = "spark/keylane_spark/views/partials.py"
_FIELDS = "spark/keylane_spark/views/fields.py"
_WRITER = "spark/keylane_spark/views/view_writer.py"
_RUNNER = "spark/keylane_spark/views/runner.py"
_SESSION = "spark/keylane_spark/engine/session.py"
_WINDOWS = "tests/integration/job/test_partial_windows.py"
_ROWS = "spark/keylane_spark/views/table_writer.py"
_LAST_CHANGE = (
    "tests/unit/spark/test_table_writer.py"
    "::test_whatever_partition_is_read_first_a_row_is_as_its_last_change_says"
)
_WRITTEN = "tests/integration/lanes/test_view_writer.py"

MUTANTS = (
    # A deleted row leaves nothing: where a view reads the deletion first, what the row was before is counted.
    mutant(
        "markers of rows",
        _ROWS,
        "markers=list(chain.from_iterable(compress(pairs, ~is_set)))",
        "markers=[]",
        focus="grow-table",
        test=_LAST_CHANGE,
    ),
    # A change counts whatever any lane has of its row.
    mutant(
        "order of rows",
        _ROWS,
        "is_new = is_last & at.are_after(known)",
        "is_new = is_last",
        focus="grow-table",
        test=_LAST_CHANGE,
    ),
    # Windows with large `latest` values are read at once, whatever their size.
    rare_mutant(
        "windows bounded by bytes",
        _WRITER,
        "limit_bytes = MAX_STORED_BYTES if can_divide else None",
        "limit_bytes = None",
        test=f"{_WRITTEN}::test_windows_that_are_too_large_together_are_read_in_parts",
    ),
    # An error of one view ends the job, with all its topics.
    rare_mutant(
        "a view stops alone",
        _RUNNER,
        'context.metrics.count("view", name, stops=1)\n',
        'context.metrics.count("view", name, stops=1)\n                self._failed(error)\n',
        test="tests/unit/spark/test_unexpected_errors.py::test_an_error_that_does_not_pass_stops_its_view_alone",
    ),
    # A record on which `where` fails fails its batch, again and again.
    mutant(
        "a condition that fails",
        _FIELDS,
        "never_failing(f.coalesce(f.expr(where), f.lit(False)))",
        "f.expr(where)",
        test=f"{_WINDOWS}::test_records_on_which_a_condition_fails_are_counted_apart",
        configuration="documents",
    ),
    # A record on which Spark itself fails fails its batch, again and again.
    rare_mutant(
        "a record on which Spark fails",
        _WRITER,
        "if stretch.size > 1:\n                return None",
        "if stretch.size > 1:\n                raise",
        test=f"{_WRITTEN}::test_records_on_which_spark_fails_are_named_counted_and_passed_by",
    ),
    # A time in nanoseconds is a year that no later step can read.
    mutant(
        "times in their range",
        _FIELDS,
        "& number.between(_FIRST_MS, _LAST_MS)",
        "& number.isNotNull()",
        test=f"{_WINDOWS}::test_a_time_is_what_a_person_means_by_it_or_invalid",
        configuration="documents",
    ),
    # "20130704" and "2013" are milliseconds of 1970.
    rare_mutant(
        "dates of digits",
        _FIELDS,
        "_DIGITS_OF_MS = 9",
        "_DIGITS_OF_MS = 0",
        test=f"{_WINDOWS}::test_a_time_is_what_a_person_means_by_it_or_invalid",
    ),
    # `true` is 1 in a sum.
    rare_mutant(
        "truth is not a number",
        _FIELDS,
        "f.when(text_of(field).rlike(_NUMBER_TEXT), f.try",
        "f.when(f.lit(True), f.try",
        test=f"{_WINDOWS}::test_numbers_are_exact_and_what_is_no_number_is_skipped",
    ),
    # `latest` of 1e400 is a string.
    rare_mutant(
        "latest as it came",
        _PARTIALS,
        "written.alias(",
        "field.json.cast('string').alias(",
        test=f"{_WINDOWS}::test_numbers_are_exact_and_what_is_no_number_is_skipped",
    ),
    # Ids of 78 digits are one key.
    rare_mutant(
        "digits of numbers",
        "spark/keylane_spark/rows/json_values.py",
        "texts[at], _ = _as_spark_holds(texts[at])",
        "pass",
        test=f"{_WINDOWS}::test_numbers_of_many_digits_are_keys_of_their_own",
    ),
    # `latest` is ordered by nine places of `by`.
    rare_mutant(
        "all digits of `by`",
        _FIELDS,
        'ORDER = "decimal(38,18)"',
        'ORDER = "decimal(38,9)"',
        test=f"{_WINDOWS}::test_latest_is_ordered_by_all_digits",
    ),
    # An object that has a name twice has no fields.
    rare_mutant(
        "names that are there twice",
        _SESSION,
        '"spark.sql.variant.allowDuplicateKeys": "true"',
        '"spark.sql.variant.allowDuplicateKeys": "false"',
        test=f"{_WINDOWS}::test_of_a_name_that_an_object_has_twice_the_last_one_counts",
    ),
)
