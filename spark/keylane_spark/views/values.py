"""The values of a view's records, read as reads do: rows of the Kafka source -> rows with fields.

A Python worker reads them (`rows.json_values`) and hands the JVM the fields that the view names, each as a
small text of JSON; the complete value only where the view has a `where`. So Spark's parser sees no value that
readers don't call JSON, and a long value is parsed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PythonException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from keylane.adapters.registry.login import RegistrySettings
from keylane.errors import LogUnavailable, RegistryUnavailable
from keylane.state.windows import Definition
from keylane_spark.engine.record_sql import AS_IT_IS, UNREAD
from keylane_spark.rows.change_events import read_event
from keylane_spark.rows.json_values import decoded, held_by_spark, read_fields
from keylane_spark.schemas.framed_values import framed_decode

SET, GONE, INVALID = np.arange(3, dtype=np.int8)
"""What a record says of its row: it is there, it was deleted; it is no event, or nobody can decode it."""

_READ = {"partition": "int", "offset": "bigint", "timestamp": "timestamp", "key": "binary"}
_ANY = {"undecodable": "boolean", "unread": "boolean"}


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
    """A function for `mapInArrow` over rows of the Kafka source: partition, offset, timestamp, key, value.

    It returns, beside the first four:

    undecodable     no reader can decode the value
    unread          it may be JSON, and is nested too deeply
    change          what a record says of its row, where `are_changes`: of its event, where `are_events`
    value, text     the text, and the JSON for Spark, where `with_value` and `with_json`
    field N         the JSON of a path for Spark; "written N": as it came, of `latest` paths

    `registry`: where values are in a Schema Registry's wire format. Raises RegistryUnavailable.
    """

    paths: tuple[str, ...]
    latest: frozenset[str]
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
            view.has_rows,
            view.envelope != "none",
            "value" in where,
            "json" in where,
            registry if is_framed else None,
        )

    @property
    def looks_at_values(self) -> bool:
        """Whether anything of a value is asked for: a view that only counts records has none read."""
        return self.registry is not None or self.names.keys() > _READ.keys() | _ANY.keys()

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

    @property
    def schema(self) -> str:
        """As `mapInArrow` takes it."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.names.items())

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read all batches of one task."""
        names = list(self.names)
        for batch in batches:
            columns = {name: batch.column(name) for name in _READ}
            columns |= self._read(batch.column("value"))
            yield pa.RecordBatch.from_arrays([columns[name] for name in names], names)

    def _read(self, stored: pa.BinaryArray) -> dict[str, pa.Array]:
        values = stored
        made = dict.fromkeys(_ANY, pa.repeat(pa.scalar(False), len(values)))
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
            held = held_by_spark(texts, forms, documents)
            made["text"] = pc.if_else(pa.array(forms == AS_IT_IS), texts, held)
            made["unread"] = is_unread = pa.array(forms == UNREAD)
            # What is nested too deeply no function may take apart: it would end the JVM.
            made["value"] = pc.if_else(is_unread, None, texts)
        for at, field in enumerate(fields):
            made |= dict(zip(_names(at), field, strict=True))
        return made


def read_values(
    rows: DataFrame, view: Definition, registry: RegistrySettings | None
) -> tuple[DataFrame, Mapping[str, ViewField]]:
    """The rows with the columns that `where` sees, those of ReadValues, and the view's fields.

    `json` and `value` are null unless a `where` needs them. Only views of keys see tombstones.
    """
    if not view.has_rows:
        rows = rows.where("value is not null")
    read = ReadValues.of(view, registry)
    # A record without a timestamp has one before 1970.
    rows = rows.withColumn("timestamp", f.when(f.unix_millis("timestamp") > 0, f.col("timestamp")))
    if read.looks_at_values:
        rows = rows.select(*_READ, "value").mapInArrow(read, read.schema)
    else:
        rows = rows.select(*_READ, *(f.lit(False).alias(name) for name in _ANY))
    fields = {}
    for at, path in enumerate(read.paths):
        json, written = map(f.col, _names(at))
        fields[path] = ViewField(json, written if path in read.latest else None)
    nothing = f.lit(None).cast("string")
    parsed = {name: f.col(name) for name in read.names}
    parsed["json"] = f.try_parse_json(f.col("text") if read.with_json else nothing)
    parsed |= {names[0]: f.try_parse_json(f.col(names[0])) for names in map(_names, range(len(fields)))}
    parsed["value"] = f.col("value") if read.with_value else nothing
    # The number of a task is nothing that Spark computes ahead: else it would parse a value for `where`, each
    # time that this names it, and then parse it again.
    parsed["offset"] = f.when(f.spark_partition_id() >= 0, f.col("offset"))
    rows = rows.select(*(column.alias(name) for name, column in parsed.items()))
    if read.with_json:
        rows = rows.withColumn(
            "unread", f.col("unread") | (f.col("text").isNotNull() & f.col("json").isNull())
        )
    return rows, fields


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


_OF_TASKS = {f"{each.__module__}.{each.__name__}: ": each for each in (RegistryUnavailable, LogUnavailable)}


def error_of_task(error: PythonException) -> RegistryUnavailable | LogUnavailable | None:
    """The error of a registry or of Kafka that a task met; None: another one. Spark keeps the text alone."""
    for line in str(error).splitlines():
        for name, kind in _OF_TASKS.items():
            if line.startswith(name):
                return kind(line.removeprefix(name))
    return None
