"""The values of a view's records, read as reads do: rows of the log -> rows with fields.

A Python worker reads them (`rows.json_values`) and hands the JVM the fields that the view names, each as a
small text of JSON; the complete value only where the view has a `where`. So Spark's parser sees no value that
readers don't call JSON, and a long value is parsed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PythonException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from keylane.adapters.registry.login import RegistrySettings
from keylane.errors import LogUnavailable, RegistryUnavailable
from keylane.state.windows import Definition
from keylane_spark.engine.record_sql import AS_IT_IS, UNREAD, timestamp
from keylane_spark.rows.change_events import read_event
from keylane_spark.rows.json_values import LONGEST_FIELD, JsonFields, decoded, held_by_spark, read_fields
from keylane_spark.rows.records import ArrowFunction, leave_large, lengths_of
from keylane_spark.schemas.framed_values import framed_decode

SET, GONE, INVALID = np.arange(3, dtype=np.int8)
"""What a record says of its row: it is there, it was deleted; it is no event, or nobody can decode it."""

LARGEST_TEXT = 4 * 1024 * 1024
"""Of a JSON for `where`, and of a field for `latest`: the JVM makes several copies of each."""
LATEST_BYTES = 64 * 1024 * 1024
"""Of the fields for `latest` in one task: the JVM keeps those of all keys until the end."""
_LONG_FIELD = '"..."'
"""Stands for a field over LONGEST_FIELD in a column: it is there, and no number."""

_READ = {"partition": "int", "offset": "bigint", "ms": "bigint", "key": "binary"}
_ANY = {"undecodable": "boolean", "unread": "boolean"}


class StretchTooLarge(Exception):
    """A task has read more for `latest` than the JVM should keep: the stretch is to be read in parts."""


class ViewField(NamedTuple):
    """A field of the values. `json`: a variant, null where there is none.

    `written`: its JSON as it came, of `latest` fields.
    """

    json: Column
    written: Column | None

    @property
    def columns(self) -> list[Column]:
        """All of it."""
        return [self.json] if self.written is None else [self.json, self.written]


@dataclass(frozen=True, slots=True)
class ReadValues:
    """A function for `mapInArrow` over rows of a log: partition, offset, ms (the timestamp), key, value.

    It returns, beside the first four, of the records with a value, and of tombstones where `are_changes`:

    undecodable     no reader can decode the value
    unread          it may be JSON, and is nested too deeply, or has more than LARGEST_TEXT bytes
    change          what a record says of its row, where `are_changes`: of its event, where `are_events`
    value, text     the text, and the JSON for Spark, where `with_value` and `with_json`
    field N         the JSON of a path for Spark; "written N": as it came, of `latest` paths

    `registry`: where values are in a Schema Registry's wire format. Raises RegistryUnavailable,
    StretchTooLarge.
    """

    paths: tuple[str, ...]
    latest: frozenset[str]
    key: str | None
    are_changes: bool
    are_events: bool
    with_value: bool
    with_json: bool
    registry: RegistrySettings | None

    @classmethod
    def of(cls, view: Definition, registry: RegistrySettings | None) -> Self:
        """What a view needs. A condition that sees a column has its name in it."""
        where = (view.where or "").lower()
        latest = frozenset(column.path for column in view.columns if column.kind == "latest")
        is_framed = view.value_format == "registry"
        return cls(
            tuple(dict.fromkeys(_paths(view))),
            latest,
            view.key,
            view.has_rows,
            view.envelope != "none",
            "value" in where,
            "json" in where,
            registry if is_framed else None,
        )

    @property
    def names(self) -> dict[str, str]:
        """The columns that it returns, and their types in Spark's words."""
        names = _READ | _ANY
        if self.are_changes:
            names["change"] = "tinyint"
        texts = [name for name, has in (("value", self.with_value), ("text", self.with_json)) if has]
        for at, path in enumerate(self.paths):
            texts += _names(at) if path in self.latest else _names(at)[:1]
        return names | dict.fromkeys(texts, "string")

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read all batches of one task."""
        names = list(self.names)
        count = latest_bytes = 0
        for batch in batches:
            rows, values = batch, batch.column("value")
            if values.null_count and not self.are_changes:
                rows = batch.filter(values.is_valid())
            columns = {name: rows.column(name) for name in _READ}
            columns |= self._read(rows.column("value"))
            count += len(rows)
            latest_bytes += sum(columns[_names(self.paths.index(path))[1]].nbytes for path in self.latest)
            if latest_bytes > LATEST_BYTES and count > 1:
                raise StretchTooLarge(f"{latest_bytes:,} bytes for `latest`")
            yield pa.RecordBatch.from_arrays([columns[name] for name in names], names)

    def _read(self, stored: pa.BinaryArray) -> dict[str, pa.Array]:
        made = dict.fromkeys(_ANY, pa.repeat(pa.scalar(False), len(stored)))
        if self.registry is None and self.names.keys() == _READ.keys() | _ANY.keys():
            return made  # nothing of a value is asked for
        values = stored
        if self.registry is not None:
            decode = framed_decode(self.registry)
            values = pa.array(decode(stored, are_events=self.are_events).documents, pa.binary())
            made["undecodable"] = pc.and_(values.is_null(), stored.is_valid())
        texts = decoded(values)
        documents: Sequence[str | None] = texts.to_pylist()
        if self.are_events:
            found = [_row_of(text) for text in documents]
            documents = [row for row, _ in found]
            texts = pa.array(documents, pa.string())
            changes = np.array([change for _, change in found], np.int8)
        elif self.are_changes:
            changes = np.where(np.asarray(made["undecodable"]), INVALID, SET)
        if self.are_changes:
            changes[np.asarray(stored.is_null())] = GONE
            made["change"] = pa.array(changes)
        made["value"] = texts
        forms, fields = read_fields(documents, [_names_of(path) for path in self.paths])
        if self.with_json or self.with_value:
            texts, left_bytes = leave_large(texts, LARGEST_TEXT)
            if left_bytes is not None:
                forms[left_bytes > 0] = UNREAD
            held = held_by_spark(texts, forms, documents)
            made["text"] = pc.if_else(pa.array(forms == AS_IT_IS), texts, held)
            made["unread"] = is_unread = pa.array(forms == UNREAD)
            # What is nested too deeply no function may take apart: it would end the JVM.
            made["value"] = pc.if_else(is_unread, None, texts)
        for at, (path, field) in enumerate(zip(self.paths, fields, strict=True)):
            made |= dict(zip(_names(at), self._bounded(path, field), strict=True))
        return made

    def _bounded(self, path: str, field: JsonFields) -> JsonFields:
        """The field without what is too long for what the view makes of it."""
        texts, written = field
        longest = pc.max(pc.binary_length(written)).as_py() or 0
        if longest <= LONGEST_FIELD:
            return field
        sizes = np.asarray(lengths_of(written))
        replaced = None if path == self.key else _LONG_FIELD
        texts = pc.if_else(pa.array(sizes > LONGEST_FIELD), replaced, texts)
        # Unlike `if_else`, `take` leaves no bytes behind a null.
        return JsonFields(texts, written.take(pa.array(np.arange(len(sizes)), mask=sizes > LARGEST_TEXT)))


class LogRows(Protocol):
    """Rows of a topic's log, which a Python worker reads."""

    def through(self, function: ArrowFunction, schema: str) -> DataFrame:
        """What a function for `mapInArrow` makes of partition, offset, ms, key and value."""


@dataclass(frozen=True, slots=True)
class SparkRows:
    """Rows of Spark's Kafka source."""

    rows: DataFrame

    def through(self, function: ArrowFunction, schema: str) -> DataFrame:
        """As LogRows."""
        ms = f.unix_millis("timestamp").alias("ms")
        return self.rows.select("partition", "offset", ms, "key", "value").mapInArrow(function, schema)


def _without_values(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(list(_READ))


def read_keys(rows: LogRows) -> DataFrame:
    """The rows as partition, offset, ms and key: nothing looks at their values."""
    return rows.through(_without_values, _schema_of(_READ))


def read_values(
    rows: LogRows, view: Definition, registry: RegistrySettings | None
) -> tuple[DataFrame, Mapping[str, ViewField]]:
    """The rows with the columns that `where` sees, those of ReadValues, and the view's fields.

    `json` and `value` are null unless a `where` needs them. Only views of keys see tombstones.
    """
    read = ReadValues.of(view, registry)
    found = rows.through(read, _schema_of(read.names)).withColumn("timestamp", timestamp())
    fields = {}
    for at, path in enumerate(read.paths):
        json, written = map(f.col, _names(at))
        fields[path] = ViewField(json, written if path in read.latest else None)
    nothing = f.lit(None).cast("string")
    parsed = {name: f.col(name) for name in (*read.names, "timestamp")}
    parsed["json"] = f.try_parse_json(f.col("text") if read.with_json else nothing)
    parsed |= {names[0]: f.try_parse_json(f.col(names[0])) for names in map(_names, range(len(fields)))}
    parsed["value"] = f.col("value") if read.with_value else nothing
    # The number of a task is nothing that Spark computes ahead: else it would parse a value for `where`, each
    # time that this names it, and then parse it again.
    parsed["offset"] = f.when(f.spark_partition_id() >= 0, f.col("offset"))
    found = found.select(*(column.alias(name) for name, column in parsed.items()))
    if read.with_json:
        found = found.withColumn(
            "unread", f.col("unread") | (f.col("text").isNotNull() & f.col("json").isNull())
        )
    return found, fields


def _schema_of(names: Mapping[str, str]) -> str:
    """Columns as `mapInArrow` takes them."""
    return ", ".join(f"`{name}` {kind}" for name, kind in names.items())


def _paths(view: Definition) -> Iterator[str]:
    yield from (path for path in (view.key, view.time) if path is not None)
    for column in view.columns:
        if column.path or column.kind == "latest":
            yield column.path
        if column.by:
            yield column.by


def _names_of(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()


def _names(at: int) -> tuple[str, str]:
    """The columns of a field: its JSON as Spark holds it, and as it came."""
    return f"field {at}", f"written {at}"


def _row_of(event: str | None) -> tuple[str | None, np.int8]:
    try:
        row = read_event(event or "").row
    except ValueError:
        return None, INVALID
    return row, GONE if row is None else SET


_OF_TASKS = {
    f"{each.__module__}.{each.__name__}: ": each
    for each in (RegistryUnavailable, LogUnavailable, StretchTooLarge)
}


def error_of_task(error: PythonException) -> Exception | None:
    """One of these errors, which a task met; None: another one. Spark keeps the text alone."""
    for line in str(error).splitlines():
        for name, kind in _OF_TASKS.items():
            if line.startswith(name):
                return kind(line.removeprefix(name))
    return None
