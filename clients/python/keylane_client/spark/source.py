"""A topic as a data source of Spark: `spark.read.format("keylane").option("topic", "orders").load()`.

    1. `load()` asks where the topic is (`position_of`), and which fields it has.
    2. A query is planned: filters become a prefix and conditions, the lanes are divided among tasks.
    3. Each task reads its lanes, each exactly as of one position behind that of `load()`.

Options: `url`, `topic`, `token`, `value` (the type of the column, as in STRUCT<dest: STRING>), `tasks` (how
many read at a time).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

from keylane_client.answers import TopicVector
from keylane_client.auth import Bearer
from keylane_client.client import Client
from keylane_client.context import ClientOptions
from keylane_client.errors import AccessDenied, InvalidArgument, KeylaneError
from keylane_client.json_text import parse_exactly, parse_json
from keylane_client.snapshots import SnapshotPart
from keylane_client.spark.columns import TableColumns
from keylane_client.spark.filters import PushedFilters, TopicFields

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from keylane_client.answers import Record

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
TASKS = 4
"""`keylane serve` reads eight snapshots at a time in each of its processes."""
BATCH_ROWS = 10_000
_AT = re.compile(r"as of (\S+) of (\S+)")
_TYPES = {
    "number": "DOUBLE",
    "time": "TIMESTAMP",
    "boolean": "BOOLEAN",
    "texts": "ARRAY<STRING>",
}
"""Of a field's column, by its kind; others are STRING."""


def register(spark: SparkSession) -> None:
    """Register the format `keylane`, and let the session's sources written in Python take filters."""
    spark.dataSource.register(KeylaneDataSource)
    spark.conf.set(PUSHDOWN, "true")


def position_of(table: DataFrame) -> TopicVector:
    """Return where the topic was at `load()`: its stream of changes from there lacks nothing of the table.

    Raises InvalidArgument for a table that does not say it: another one, or one with a `schema` of its own.
    """
    for each in table.schema:
        found = _AT.fullmatch(each.metadata.get("comment", "")) if each.name == "key" else None
        if found:
            return TopicVector.parse(found[1])
    raise InvalidArgument("the table has no column `key` that says where it is: load it without schema(...)")


@dataclass(frozen=True, slots=True)
class TopicSource:
    """Where a topic is read, and as whom."""

    url: str
    topic: str
    token: str | None
    tasks: int

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> TopicSource:
        """Return what the options of `load` say. Raises InvalidArgument."""
        unknown = options.keys() - {"url", "topic", "token", "tasks", "value"}
        if unknown:
            raise InvalidArgument(f"there is no option {min(unknown)!r}")
        url, topic, tasks = options.get("url"), options.get("topic"), options.get("tasks", str(TASKS))
        if not url or not topic:
            raise InvalidArgument("give the options url and topic")
        if not (tasks.isdecimal() and int(tasks)):
            raise InvalidArgument("the option tasks is a number from 1 on")
        return cls(url, topic, options.get("token"), int(tasks))

    def open(self, *, is_exact: bool = False) -> Client:
        """Return a client."""
        loads = parse_exactly if is_exact else parse_json
        auth = Bearer(self.token) if self.token else None
        return Client(self.url, auth, options=ClientOptions(loads=loads))

    def fields(self, client: Client) -> TopicFields:
        """Return what can be asked of the topic: nothing, where the caller may not know."""
        try:
            options = client.topic(self.topic).layout().document["options"]
        except AccessDenied:
            return TopicFields()
        is_typed = options["key_fields"] or options["key_schema"] or options["key_format"] != "text"
        return TopicFields(dict(options["fields"]), not is_typed)

    def parts(self, client: Client, pushed: PushedFilters | None = None) -> list[SnapshotPart]:
        """Begin a snapshot, and return its parts."""
        pushed = pushed or PushedFilters()
        snapshot = client.topic(self.topic).snapshot(prefix=pushed.prefix, where=pushed.conditions)
        return list(snapshot.parts(self.tasks))


class KeylaneDataSource(DataSource):
    """The format `keylane`."""

    _loaded: TopicVector | None = None

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "keylane"

    def schema(self) -> str:
        """Return the columns of the topic, and where it is, as the comment of the key's."""
        source = TopicSource.of_options(self.options)
        with source.open() as client:
            self._loaded = source.parts(client)[0].at
            value = self.options.get("value") or _value_type(source.fields(client))
        return (
            f"key STRING COMMENT 'as of {self._loaded} of {source.topic}', value {value},"
            " partition INT, offset BIGINT, timestamp TIMESTAMP"
        )

    def reader(self, schema: StructType) -> KeylaneReader:
        """Return what reads the topic. Raises InvalidArgument."""
        return KeylaneReader(TopicSource.of_options(self.options), schema, self._loaded)


class LanesPartition(InputPartition):
    """The lanes of one task."""

    def __init__(self, part: SnapshotPart) -> None:
        super().__init__(part)
        self.part = part


class KeylaneReader(DataSourceReader):
    """Reads a topic for one query. `loaded`: where it was when the table was loaded, None if nobody asked."""

    def __init__(self, source: TopicSource, schema: StructType, loaded: TopicVector | None) -> None:
        TableColumns(schema)  # what can't be read is known before a task begins
        self._source = source
        self._schema = schema
        self._loaded = loaded
        self._pushed = PushedFilters()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Take what the service can answer; Spark applies all filters again."""
        if filters:
            with self._source.open() as client:
                self._pushed.add(filters, self._source.fields(client), self._schema)
        return filters

    def partitions(self) -> list[LanesPartition]:
        """Divide the lanes among tasks. Raises InvalidArgument if the topic has been created again."""
        with self._source.open() as client:
            parts = self._source.parts(client, self._pushed)
        if self._loaded is not None:
            if parts and parts[0].at.incarnation != self._loaded.incarnation:
                raise InvalidArgument(f"topic {self._source.topic!r} was created again: load the table again")
            parts = [replace(each, at=self._loaded) for each in parts]
        return [LanesPartition(each) for each in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task's lanes. Raises as a snapshot; ValueMismatch for what fits no column."""
        part = partition.part  # type: ignore[attr-defined]
        columns = TableColumns(self._schema)
        with self._source.open(is_exact=columns.is_exact) as client:
            topic = client.topic(self._source.topic).reading(fields=columns.fields)
            snapshot = topic.snapshot(prefix=self._pushed.prefix, where=self._pushed.conditions).part(part)
            rows: list[Record] = []
            next_offset = 0
            with closing(iter(snapshot)) as found:  # type: ignore[type-var]  # a generator
                for record in found:
                    if rows and (len(rows) >= BATCH_ROWS or snapshot.next_offset != next_offset):
                        yield columns.batch(rows, next_offset)
                        rows = []
                    next_offset = snapshot.next_offset
                    rows.append(record)
            if snapshot.at != part.at:
                raise KeylaneError(
                    f"the state of topic {self._source.topic!r} went back to {snapshot.at} while it was read:"
                    " a failover has lost writes, which the job is reading again"
                )
            if rows:
                yield columns.batch(rows, next_offset)


def _value_type(fields: TopicFields) -> str:
    """Return the type of the values, as DDL: their declared fields, objects within objects as structs."""
    tree: dict[str, Any] = {}
    for name, kind in fields.kinds.items():
        *above, last = name.split(".")
        level = tree
        for each in above:
            below = level.setdefault(each, {})
            level[each] = level = below if isinstance(below, dict) else {}
        level.setdefault(last, _TYPES.get(kind, "STRING"))
    return _struct_of(tree) if tree else "STRING"


def _struct_of(tree: dict[str, Any]) -> str:
    quoted = {name.replace("`", "``"): found for name, found in tree.items()}
    types = {name: _struct_of(found) if isinstance(found, dict) else found for name, found in quoted.items()}
    return f"STRUCT<{', '.join(f'`{name}`: {kind}' for name, kind in types.items())}>"
