"""`keylane.toml`: the topics that are served and how the job writes them.

docs/configuration/topics.md says what each option does. Durations are kept in ms. There are no addresses and
no secrets: they come from the environment, as for the functions.
"""

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from keylane.formats.connect_keys import keys_with_schema
from keylane.model.kafka import NewTopic
from keylane.model.records import (
    COMPRESSIONS,
    ENVELOPES,
    KEY_FORMATS,
    KEY_KINDS,
    MOST_INDEXES,
    MOST_TOGETHER,
    NOT_JSON,
    VALUE_FORMATS,
    WHOLE_KEY,
    Options,
    is_topic_name,
)
from keylane.routing import PARTITIONERS, separator_of
from keylane.state.field_types import FIELD_TYPES
from keylane.state.windows import KEYS, LOG, NAME_LIMIT, Definition, state_name
from keylane_spark.config.job import JobConfig
from keylane_spark.config.table import ConfigTable, Milliseconds, OneOf, SomeMilliseconds
from keylane_spark.config.transforms import OnError, Transform
from keylane_spark.config.views import ViewConfig

SparkValue = str | int | float | bool
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
DEFAULT_PARTITIONS = 9
"""Of a topic that is created."""


def _partition_by(text: str) -> str:
    separator_of(text)
    return text


def _key_schema(text: str) -> str:
    keys_with_schema(text)
    return text


def _function(text: str) -> str:
    if not _FUNCTION.fullmatch(text):
        raise ValueError('a transform is a module and a function, as in "transforms:masked"')
    return text


def _field_types(tables: Any) -> dict[str, str]:
    """Return types by names as in a.b, of tables in tables: that is what TOML makes of a dotted key."""
    if not isinstance(tables, dict):
        raise ValueError('this is a table of fields, as in status = "text"')  # noqa: TRY004 (pydantic's)
    types: dict[str, str] = {}
    for name, given in tables.items():
        if isinstance(given, dict):
            types |= {f"{name}.{inner}": kind for inner, kind in _field_types(given).items()}
        elif isinstance(given, str) and given in FIELD_TYPES:
            types[name] = given
        else:
            raise ValueError(f"the field {name} is one of {', '.join(FIELD_TYPES)}, not {given!r}")
    if not all(part for name in types for part in name.split(".")):
        raise ValueError("a field has no name")
    return dict(sorted(types.items()))


class TopicConfig(ConfigTable):
    """One topic."""

    partitioner: Annotated[str, OneOf(PARTITIONERS)] = "murmur2"
    partition_by: Annotated[str, AfterValidator(_partition_by)] = WHOLE_KEY
    stripes: Annotated[int, Field(ge=1, le=16384)] = 1
    partitions: Annotated[int, Field(ge=1, le=16384)] | None = None
    kafka: Annotated[dict[str, SparkValue], Field(default_factory=dict)]
    ttl: SomeMilliseconds | None = None
    history_count: Annotated[int, Field(ge=1, le=100_000)] | None = None
    history_age: SomeMilliseconds | None = None
    index: bool = False
    index_parts: Annotated[int, Field(ge=1, le=256)] = 1
    insert_once: bool = False
    headers: bool = False
    guarded: bool = False
    compression: Annotated[str, OneOf(COMPRESSIONS)] = "none"
    max_value_bytes: Annotated[int, Field(ge=1, le=512 * 1024 * 1024 - 1024)] = Options().max_value_bytes
    tombstone_marker: Milliseconds = Options().marker_ms
    value_format: Annotated[str, OneOf(VALUE_FORMATS)] = "auto"
    envelope: Annotated[str, OneOf(ENVELOPES)] = "none"
    key_fields: dict[str, Annotated[str, OneOf(KEY_KINDS)]] = Field(default_factory=dict)
    key_schema: Annotated[str, AfterValidator(_key_schema)] = ""
    key_format: Annotated[str, OneOf(KEY_FORMATS)] = "text"
    where: Annotated[str, Field(min_length=1)] | None = None
    select: Annotated[str, Field(min_length=1)] | None = None
    transform: Annotated[str, AfterValidator(_function)] | None = None
    transform_version: str | None = None
    on_error: OnError = "stop"
    fields: Annotated[dict[str, str], BeforeValidator(_field_types)] = Field(default_factory=dict)
    indexes: dict[str, Annotated[tuple[str, ...], Field(strict=False)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.insert_once and (self.history_count or self.history_age):
            raise ValueError("insert_once keeps only the first value: remove history_count and history_age")
        if self.envelope != "none" and self.value_format in NOT_JSON:
            raise ValueError('change events are JSON, or of value_format = "registry"')
        if self.transform and (self.where or self.select):
            raise ValueError(
                "transform replaces where and select: the function can leave out and change values"
            )
        if self.transform_version is not None and not self.transform:
            raise ValueError("transform_version is that of a transform: add transform")
        if "on_error" in self.model_fields_set and self.definition is None:
            raise ValueError(
                "on_error is for records on which where, select or transform fails: add one of them"
            )
        if self.definition is not None and self.value_format == "registry":
            raise ValueError("where, select and transform do not read values of a Schema Registry yet")
        if self.select and self.value_format in NOT_JSON:
            raise ValueError('select gives JSON: remove value_format, or set it to "json"')
        if self.index_parts > 1 and not (self.index or self.fields):
            raise ValueError("index_parts divides an index: add index = true")
        if bool(self.key_fields) + bool(self.key_schema) + (self.key_format == "registry") > 1:
            raise ValueError('keys are of one kind: key_fields, key_schema or key_format = "registry"')
        return self

    @model_validator(mode="after")
    def _has_fields(self) -> Self:
        if self.fields and self.value_format in NOT_JSON:
            raise ValueError('fields are of JSON, or of value_format = "registry"')
        for name, parts in self.indexes.items():
            if name in self.fields:
                raise ValueError(f"the index {name} has the name of a field")
            if len(set(parts)) != len(parts) or not 1 < len(parts) <= MOST_TOGETHER:
                raise ValueError(f"the index {name} is of 2 to {MOST_TOGETHER} different fields")
            for part in parts:
                if part not in self.fields:
                    raise ValueError(f"the index {name} is of {part}, which is not one of the topic's fields")
                if FIELD_TYPES[self.fields[part]].is_many:
                    raise ValueError(f"the index {name} is of {part}, which has several values")
        if len(self.fields) + len(self.indexes) > MOST_INDEXES:
            raise ValueError(f"a topic has at most {MOST_INDEXES} fields and indexes")
        return self

    @property
    def created_as(self) -> NewTopic:
        """How the topic is created if Kafka does not have it."""
        settings = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.kafka.items()
        }
        return NewTopic(self.partitions or DEFAULT_PARTITIONS, settings)

    @property
    def definition(self) -> Transform | None:
        """The topic's transform."""
        if not (self.where or self.select or self.transform):
            return None
        texts = self.where, self.select, self.transform, self.transform_version
        return Transform(*texts, envelope=self.envelope)

    @property
    def options(self) -> Options:
        """The part of this table that is stored in the layout: what has the same name there, as it is."""
        definition = self.definition
        stores_rows = definition is not None and definition.stores_other_values
        alike = {each.name for each in fields(Options)} & type(self).model_fields.keys()
        return replace(
            Options(**{name: getattr(self, name) for name in alike}),
            ttl_ms=self.ttl,
            history_age_ms=self.history_age,
            index=self.index_parts if self.index or self.fields else 0,
            marker_ms=self.tombstone_marker,
            envelope="none" if stores_rows else self.envelope,
            transform=definition.to_json() if definition else None,
            key_fields=tuple(self.key_fields.items()),
            fields=tuple(self.fields.items()),
            indexes=tuple(sorted(self.indexes.items())),
        )


_NO_KEYS = {
    "ttl": "the topic's records expire (ttl), and the view would go on counting them",
    "insert_once": "the topic keeps each key's first value (insert_once), and the view would have its latest",
    "where": "the topic's where decides which keys it has, and views read the records before it",
    "select": "the topic's select decides what its values are, and views read the records before it",
    "transform": "the topic's transform decides what its values are, and views read the records before it",
}
"""Options of topics with which a view of keys would not be of what readers find."""


class Config(ConfigTable):
    """All settings of keylane.toml."""

    job: JobConfig = JobConfig()
    spark: Annotated[dict[str, SparkValue], Field(default_factory=dict)]
    """Settings of Spark, as in "spark.executor.memory" = "4g"; they override Keylane's."""
    topics: Annotated[dict[str, TopicConfig], Field(min_length=1)]
    views: Annotated[dict[str, ViewConfig], Field(default_factory=dict)]

    @field_validator("topics")
    @classmethod
    def _names(cls, topics: dict[str, TopicConfig]) -> dict[str, TopicConfig]:
        for name in topics:
            if not is_topic_name(name):
                raise ValueError(f"{name!r} is not a valid topic name: use letters, digits, . _ -")
        return topics

    @field_validator("views")
    @classmethod
    def _view_names(cls, views: dict[str, ViewConfig]) -> dict[str, ViewConfig]:
        for name, view in views.items():
            if not is_topic_name(view.topic):
                raise ValueError(f"{view.topic!r} is not a valid topic name")
            if not is_topic_name(name) or len(name) > NAME_LIMIT:
                raise ValueError(f"{name!r} is not a valid view name: use letters, digits, . _ -")
        return views

    @model_validator(mode="after")
    def _forgets_what_is_unused(self) -> Self:
        for setting, named, served in (
            ("forget_topics", self.job.forget_topics, self.topics.keys()),
            ("forget_views", self.job.forget_views, self.views.keys()),
        ):
            for name in named:
                if not is_topic_name(name):
                    raise ValueError(f"[job] {setting}: {name!r} is not a valid name")
                if name in served:
                    raise ValueError(f"[job] {setting}: {name!r} has a table in this file: remove that first")
        return self

    @property
    def has_sql(self) -> bool:
        """Whether Spark computes anything of the topics' records."""
        return any(each.where or each.select for each in self.topics.values())

    @property
    def plans_only(self) -> bool:
        """Whether no record passes through the JVM, which is started otherwise then."""
        return self.job.reader == "direct" and not self.views and not self.has_sql

    def why_not_after(self, former: Self) -> str:
        """Return why a process that serves the former settings can't go on with these; empty: it can."""
        if (self.job, self.spark) != (former.job, former.spark):
            return "settings of the job changed"
        if former.plans_only and not self.plans_only:
            return "Spark was started for settings without SQL and views"
        if any(table.transform for config in (self, former) for table in config.topics.values()):
            return "the modules of functions are loaded"
        return ""

    @property
    def needs_registry(self) -> bool:
        """Whether the job reads schemas: those of change events, of values with fields, and of views'."""
        viewed = {view.topic for view in self.views.values()}
        return any(
            table.value_format == "registry" and (table.envelope != "none" or table.fields or name in viewed)
            for name, table in self.topics.items()
        )

    def definition(self, view: str) -> Definition:
        """What the view computes, of values that are as its topic's table says."""
        config = self.views[view]
        topic = self.topics.get(config.topic)
        if topic is None:
            return config.definition
        value_format = topic.value_format if topic.value_format == "registry" else "auto"
        of = config.of if config.of and topic.envelope == "none" else LOG  # a table's view is always of keys
        return replace(config.definition, value_format=value_format, envelope=topic.envelope, of=of)

    def refusals_of_views(self) -> Iterator[tuple[list[str], str]]:
        """What views can't have of their topics: the fields, and the reasons."""
        for name, view in self.views.items():
            topic = self.topics.get(view.topic)
            refused = list(view.refusals_of_rows(of_table=False)) if view.of == KEYS else []
            if topic is None:
                if view.of == KEYS:
                    refused.append((["of"], f"a view of keys needs a table [topics.{view.topic}]"))
            elif topic.envelope != "none":
                refused = list(view.refusals_of_rows(of_table=True))
            elif view.of == KEYS:
                refused += [(["of"], reason) for option, reason in _NO_KEYS.items() if getattr(topic, option)]
            yield from ((["views", name, *field], reason) for field, reason in refused)

    @property
    def state_names(self) -> frozenset[str]:
        """The names in Redis of all topics and views."""
        return frozenset([*self.topics, *map(state_name, self.views)])

    @property
    def forgotten(self) -> list[str]:
        """The names in Redis of the topics and views whose state is removed."""
        return [*self.job.forget_topics, *map(state_name, self.job.forget_views)]
