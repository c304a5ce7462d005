"""What `keylane check` finds in Kafka: its topics, their first records, and the memory that they need."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pyarrow as pa

from keylane.errors import ask_meant
from keylane.model.records import MAX_LANES
from keylane.state.field_index import indexes_of, split_entries
from keylane_cli.check_config import CheckFinding, ValidConfig
from keylane_cli.survey.cluster import describe_missing, reach
from keylane_cli.survey.key_memory import (
    END_BYTES,
    LARGEST_PART_MB,
    MEMORY_USED,
    REBUILD,
    bytes_of_fields,
    bytes_of_key,
    count_index_parts,
    index_megabytes,
)
from keylane_cli.survey.lane_balance import FULLEST, count_lanes, fullness, propose_stripes
from keylane_cli.survey.sample import TopicSample
from keylane_cli.survey.table_guess import (
    find_event_faults,
    find_key_faults,
    guess_key_schema,
    has_registry_keys,
)
from keylane_spark.preview import field_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from keylane.model.kafka import LogRecord
    from keylane.model.records import Options
    from keylane_spark.config.topics import TopicConfig
    from keylane_spark.config.views import ViewConfig

_KEY_SETTINGS = ("key_fields", "key_schema", "key_format")
_GIB = 1 << 30


class InFields(NamedTuple):
    """Of records, on average: in how many indexes of fields one is, and the bytes of its values in them.

    `members`: the bytes of its members, by the numbers of the indexes.
    """

    entries: float
    values: float
    members: Mapping[int, float]

    @classmethod
    def of(cls, options: Options, keyed: Sequence[LogRecord]) -> Self:
        """Read the records as the job does."""
        if not options.fields:
            return cls(0, 0, {})
        found, _ = field_entries(pa.array([record.value for record in keyed], pa.binary()), options)
        entries, values, members = 0, 0, Counter[int]()
        for record, own in zip(keyed, found.to_pylist(), strict=True):
            for number, value in split_entries(own):
                entries += 1
                values += len(value)
                members[number] += len(value) + END_BYTES + len(record.key or b"")
        count = len(keyed)
        return cls(entries / count, values / count, {each: size / count for each, size in members.items()})


def look_at(valid: ValidConfig, environment: Mapping[str, str]) -> list[CheckFinding]:
    """Compare the file with Kafka, and with the shards of Redis if there is one.

    Raises PartUnreachable, KeylaneError.
    """
    with reach(environment) as survey:
        found = list(_find_missing(valid, survey.topics))
        shards = survey.find_shards()
        used = {*valid.config.topics, *(view.topic for view in valid.config.views.values())}
        samples = {name: survey.sample(name, counts=True) for name in sorted(used & survey.topics.keys())}
    for name, topic in valid.config.topics.items():
        if name in samples:
            found += check_topic(valid, name, topic, samples[name], shards)
    for name, view in valid.config.views.items():
        if view.topic in samples:
            found += check_view(valid, name, view, samples[view.topic])
    return found


def _find_missing(valid: ValidConfig, present: Mapping[str, int]) -> Iterator[CheckFinding]:
    creates = valid.config.job.create_topics
    for name in valid.config.topics:
        for sentence in describe_missing([name], present):
            place = valid.place("topics", name)
            if creates:
                yield CheckFinding("note", place, f"{sentence}: the job creates it")
            else:
                yield CheckFinding("wrong", place, sentence)
    for name, view in valid.config.views.items():
        if view.topic not in valid.config.topics:
            for sentence in describe_missing([view.topic], present):
                yield CheckFinding("wrong", valid.place("views", name, "topic"), sentence)


def check_topic(
    valid: ValidConfig, name: str, topic: TopicConfig, sample: TopicSample, shards: Sequence[int]
) -> Iterator[CheckFinding]:
    """Yield what a topic's records say of its table. `shards`: the shard of each slot, [] if not known."""
    place = valid.place("topics", name)
    partitions = sample.partition_count
    if partitions * topic.stripes > MAX_LANES:
        what = f"{partitions} partitions x {topic.stripes} stripes are more than {MAX_LANES} lanes"
        yield CheckFinding("wrong", valid.place("topics", name, "stripes"), what)
        return
    keyed = sample.keyed
    if sample.records and not keyed.records:
        yield CheckFinding("warning", place, "the first records have no keys: nothing can be found by one")
        return
    if keyed.records and topic.partition_by == "key":
        guess = sample.guess_partitioner()
        if guess.reason.startswith("it explains") and guess.partitioner != topic.partitioner:
            what = f"{guess.partitioner!r} is the partitioner of the producers, not {topic.partitioner!r}"
            yield CheckFinding(
                "warning", valid.place("topics", name, "partitioner"), f"{what}: {guess.reason}"
            )
    if keyed.records:
        yield from _check_memory(valid, name, topic, keyed)
        yield from _check_table(valid, name, topic, keyed)
    if shards:
        yield from _check_balance(valid, name, topic, partitions, shards)


def _check_table(
    valid: ValidConfig, name: str, topic: TopicConfig, keyed: TopicSample
) -> Iterator[CheckFinding]:
    """Yield what does not fit the options of a database's table."""
    values, keys = keyed.values, keyed.keys
    if topic.envelope != "none":
        if faults := list(find_event_faults(values)):
            what = f"{len(faults)} of {len(values)} values are not change events: {faults[0]}"
            yield CheckFinding("warning", valid.place("topics", name, "envelope"), what)
    elif keyed.has_events:
        what = 'the values are change events of a table: envelope = "debezium" serves its rows'
        yield CheckFinding("note", valid.place("topics", name), what)
    options = topic.options
    if faults := list(find_key_faults(options, keys)):
        what = f"{len(faults)} of {len(keys)} keys can't be found by their values: {faults[0]}"
        setting = next(each for each in _KEY_SETTINGS if getattr(options, each))
        yield CheckFinding("warning", valid.place("topics", name, setting), what)
    elif not options.has_typed_keys and (has_registry_keys(keys) or guess_key_schema(keys)):
        setting = 'key_format = "registry"' if has_registry_keys(keys) else "key_schema"
        what = f"the keys have a schema: with {setting} they are found by their values"
        yield CheckFinding("note", valid.place("topics", name), what)


def _check_memory(
    valid: ValidConfig, name: str, topic: TopicConfig, keyed: TopicSample
) -> Iterator[CheckFinding]:
    """Yield the memory that the topic needs at most: each of its records may have a key of its own."""
    records = [record for _, record in keyed.records]
    key_bytes = sum(len(record.key or b"") for record in records) / len(records)
    value_bytes = sum(len(value) for value in keyed.values) / len(records)
    options, in_fields = topic.options, InFields.of(topic.options, records)
    of_fields = bytes_of_fields(key_bytes, in_fields.entries, in_fields.values)
    of_key = bytes_of_key(len(name), key_bytes, value_bytes, indexed=options.index > 0) + of_fields
    total = keyed.record_count * of_key * REBUILD / MEMORY_USED
    size = f"{of_key:.0f} bytes" + (f" ({of_fields:.0f} of them for its fields)" if of_fields else "")
    what = f"at most {keyed.record_count:,} keys of {size}: {total / _GIB:.2f} GiB of nodes"
    yield CheckFinding("note", valid.place("topics", name), f"{what} (docs/operate/sizing.md)")
    if topic.definition is None:  # else other values than these are stored
        yield from _check_fields(valid, name, options, in_fields, [record.value for record in records])
    if not options.index:
        return
    lanes = keyed.partition_count * topic.stripes
    megabytes = index_megabytes(keyed.record_count / lanes, max(key_bytes, *in_fields.members.values(), 0))
    if megabytes / topic.index_parts > LARGEST_PART_MB:
        what = (
            f"an index of a lane may reach {megabytes / topic.index_parts:.0f} MB, and ElastiCache"
            f" moves no key above {LARGEST_PART_MB} MB: more stripes, or"
            f" index_parts = {count_index_parts(megabytes)}"
        )
        setting = "index" if topic.index else "fields"
        yield CheckFinding("warning", valid.place("topics", name, setting), what)


def _check_fields(
    valid: ValidConfig, name: str, options: Options, found: InFields, values: Sequence[bytes | None]
) -> Iterator[CheckFinding]:
    """Yield the fields by which no record would be found."""
    documents = [value for each in values if (value := _json_object(each)) is not None]
    paths = {path for value in documents for path in _paths(value)} if options.envelope == "none" else set()
    for field in indexes_of(options).fields:
        if field.number not in found.members:
            what = f"none of {len(values)} records has a value of the type {field.kind} in {field.name!r}"
            meant = "" if field.name in paths else ask_meant(field.name, paths, quoted=True)
            yield CheckFinding("warning", valid.place("topics", name, "fields", field.name), what + meant)


def _check_balance(
    valid: ValidConfig, name: str, topic: TopicConfig, partitions: int, shards: Sequence[int]
) -> Iterator[CheckFinding]:
    full = fullness(count_lanes(shards, max(shards) + 1, partitions, topic.stripes))
    if full <= FULLEST:
        return
    proposed = propose_stripes(partitions, shards)
    if proposed.stripes != topic.stripes and proposed.fullest < full:
        now = f"the fullest shard has {full:.2f} times the mean"
        uneven = "a shard has no lane" if math.isinf(full) else now
        what = f"{uneven}: with stripes = {proposed.stripes} it has {proposed.fullest:.2f} times"
        yield CheckFinding("warning", valid.place("topics", name, "stripes"), what)


def check_view(
    valid: ValidConfig, name: str, view: ViewConfig, sample: TopicSample
) -> Iterator[CheckFinding]:
    """Yield the fields that a view names and no record has."""
    values = [value for each in sample.values if (value := _json_object(each)) is not None]
    if sample.values and not values:
        what = f"no first record of topic {view.topic!r} is a JSON object: a view reads its fields"
        yield CheckFinding("warning", valid.place("views", name, "topic"), what)
        return
    paths = Counter(path for value in values for path in _paths(value))
    wanted: list[tuple[tuple[str, ...], str | None]] = [(("key",), view.key), (("time",), view.time)]
    for column, each in view.columns.items():
        wanted += [(("columns", column), each.path or None), (("columns", column), each.by)]
    for field, path in wanted:
        if path is None or not values or path in paths:
            continue
        what = f"none of {len(values)} records has the field {path!r}{ask_meant(path, paths, quoted=True)}"
        yield CheckFinding("warning", valid.place("views", name, *field), what)


def _json_object(value: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(value or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _paths(value: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, inner in value.items():
        yield f"{above}{name}"
        if isinstance(inner, dict):
            yield from _paths(inner, f"{above}{name}.")
