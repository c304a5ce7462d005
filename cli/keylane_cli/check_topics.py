"""What `keylane check` finds in Kafka: its topics, their first records, and the memory that they need."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pyarrow as pa

from keylane.errors import ask_meant
from keylane.model.records import MAX_LANES
from keylane.state.field_index import indexes_of, split_entries
from keylane_cli.check_config import CheckFinding, ValidConfig
from keylane_cli.survey.cluster import Survey, TopicRefused, reach
from keylane_cli.survey.compression_saving import find_saving
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
from keylane_cli.survey.lane_balance import FULLEST, WORTH_BYTES, count_lanes, fullness, propose_stripes
from keylane_cli.survey.sample import TopicSample
from keylane_cli.survey.table_guess import (
    UNITS,
    decode_registered,
    explain_events,
    explain_keys,
    find_event_faults,
    find_key_faults,
    guess_key_fields,
    guess_key_schema,
    guess_times,
    has_registry_keys,
    json_object,
    paths_of,
)
from keylane_spark.preview import field_entries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from keylane.model.records import Options
    from keylane_spark.config.topics import TopicConfig

from keylane_cli.check_views import check_view

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
    def of(cls, options: Options, keyed: TopicSample) -> Self:
        """Read the records as the job does."""
        records = [record for _, record in keyed.records if record.value is not None]
        if not options.fields or not keyed.documents:
            return cls(0, 0, {})
        if keyed.decoded is not None:
            options, records = replace(options, value_format="auto"), records[: len(keyed.decoded)]
        found, _ = field_entries(pa.array(keyed.documents, pa.binary()), options)
        entries, values, members = 0, 0, Counter[int]()
        for record, own in zip(records, found.to_pylist(), strict=True):
            for number, value in split_entries(own):
                entries += 1
                values += len(value)
                members[number] += len(value) + END_BYTES + len(record.key or b"")
        count = len(records) if keyed.decoded is not None else len(keyed.records)
        return cls(entries / count, values / count, {each: size / count for each, size in members.items()})


def look_at(valid: ValidConfig, environment: Mapping[str, str]) -> list[CheckFinding]:
    """Compare the file with Kafka, and with the shards of Redis if there is one.

    Raises PartUnreachable, KeylaneError.
    """
    with reach(environment) as survey:
        found = list(_find_missing(valid, survey))
        shards = survey.find_shards()
        used = {*valid.config.topics, *(view.topic for view in valid.config.views.values())}
        samples = {}
        for name in sorted(used & survey.topics.keys()):
            try:
                samples[name] = survey.sample(name, counts=True)
            except TopicRefused as error:
                found.append(CheckFinding("wrong", _place_of(valid, name), str(error)))
    for name, sample in samples.items():
        if sample.has_schemas:
            decoded, fault = decode_registered(sample.values, environment)
            samples[name] = replace(sample, decoded=decoded)
            if fault:
                what = (
                    f"the values of topic {name!r} are of a Schema Registry, and were not looked at: {fault}"
                )
                found.append(CheckFinding("warning", _place_of(valid, name), what))
    for name, topic in valid.config.topics.items():
        if name in samples:
            found += check_topic(valid, name, topic, samples[name], shards)
    counts = {name: samples[name].partition_count for name in valid.config.topics if name in samples}
    found += check_joins(valid, counts)
    for name, view in valid.config.views.items():
        if view.topic in samples:
            found += check_view(valid, name, view, samples[view.topic])
    return found


def _place_of(valid: ValidConfig, topic: str) -> str:
    return valid.place("topics", topic) if topic in valid.config.topics else valid.place("views")


def _find_missing(valid: ValidConfig, survey: Survey) -> Iterator[CheckFinding]:
    creates = valid.config.job.create_topics
    for name in valid.config.topics:
        for sentence in survey.describe_missing([name]):
            place = valid.place("topics", name)
            if creates:
                yield CheckFinding("note", place, f"{sentence}: the job creates it")
            else:
                yield CheckFinding("wrong", place, sentence)
    for name, view in valid.config.views.items():
        if view.topic not in valid.config.topics:
            for sentence in survey.describe_missing([view.topic]):
                yield CheckFinding("wrong", valid.place("views", name, "topic"), sentence)


def check_joins(valid: ValidConfig, counts: Mapping[str, int]) -> Iterator[CheckFinding]:
    """Yield the topics that can't be joined with others for their partitions alone, as one that grew."""
    alike: dict[tuple[Any, ...], dict[int, str]] = {}
    for name, count in counts.items():
        table = valid.config.topics[name]
        by_count = alike.setdefault((table.partitioner, table.partition_by, table.stripes), {})
        first = next(iter(by_count.items()), None)
        if first is not None and count not in by_count:
            what = f"it has {count} partitions, topic {first[1]!r} has {first[0]}: /join does not read both"
            yield CheckFinding("note", valid.place("topics", name), what)
        by_count.setdefault(count, name)


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
    strays = keyed.count_strays(topic.partitioner, topic.partition_by)
    if keyed.records and topic.partition_by == "key":
        guess = sample.guess_partitioner()
        if guess.is_found and guess.partitioner != topic.partitioner:
            what = f"{guess.partitioner!r} is the partitioner of the producers, not {topic.partitioner!r}"
            yield CheckFinding(
                "warning", valid.place("topics", name, "partitioner"), f"{what}: {guess.reason}"
            )
            strays = 0
    if strays and not topic.guarded:
        rule = f"{topic.partitioner!r} and partition_by = {topic.partition_by!r}"
        what = f"{strays} of {len(keyed.records)} records are not where producers with {rule} put them"
        setting = "partitioner" if topic.partition_by == "key" else "partition_by"
        yield CheckFinding("warning", valid.place("topics", name, setting), f"{what}: they are strays")
    if keyed.records:
        yield from _check_memory(valid, name, topic, keyed)
        yield from _check_table(valid, name, topic, keyed)
    if shards and sample.memory_bytes >= WORTH_BYTES:
        yield from _check_balance(valid, name, topic, partitions, shards)


def _check_table(
    valid: ValidConfig, name: str, topic: TopicConfig, keyed: TopicSample
) -> Iterator[CheckFinding]:
    """Yield what does not fit the options of a database's table."""
    values, keys = keyed.documents, keyed.keys
    if topic.envelope != "none":
        if faults := list(find_event_faults(values)):
            what = f"{len(faults)} of {len(values)} values are not change events: {faults[0]}"
            yield CheckFinding("warning", valid.place("topics", name, "envelope"), what)
    elif keyed.has_events:
        what = 'the values are change events of a table: envelope = "debezium" serves its rows'
        yield CheckFinding("note", valid.place("topics", name), what)
    elif what := explain_events(values):
        yield CheckFinding("note", valid.place("topics", name), what)
    options = topic.options
    if faults := list(find_key_faults(options, keys)):
        what = f"{len(faults)} of {len(keys)} keys can't be found by their values: {faults[0]}"
        setting = next(each for each in _KEY_SETTINGS if getattr(options, each))
        yield CheckFinding("warning", valid.place("topics", name, setting), what)
    elif not options.has_typed_keys and (what := _explain_keys(keys)):
        yield CheckFinding("note", valid.place("topics", name), what)


def _explain_keys(keys: Collection[bytes]) -> str:
    """Return how keys could be asked for by their values, or why they can't; "" where they have none."""
    guesses = {
        'key_format = "registry"': has_registry_keys,
        "key_schema": guess_key_schema,
        "key_fields": guess_key_fields,
    }
    for setting, guess in guesses.items():
        if guess(keys):
            return f"with {setting} keys are found by their values"
    fault = explain_keys(keys)
    return f"keys are asked for as they are in Kafka: {fault}" if fault else ""


def _check_memory(
    valid: ValidConfig, name: str, topic: TopicConfig, keyed: TopicSample
) -> Iterator[CheckFinding]:
    """Yield the memory that the topic needs at most: each of its records may have a key of its own."""
    records = [record for _, record in keyed.records]
    key_bytes = sum(len(record.key or b"") for record in records) / len(records)
    value_bytes = sum(len(value) for value in keyed.values) / len(records)
    options, in_fields = topic.options, InFields.of(topic.options, keyed)
    of_fields = bytes_of_fields(key_bytes, in_fields.entries, in_fields.values)
    of_key = bytes_of_key(len(name), key_bytes, value_bytes, indexed=options.index > 0) + of_fields
    saving = find_saving(keyed, of_key) if topic.definition is None else None
    compressed = ""
    if saving is not None and options.compression != "none":
        compressed = f"; compression: {saving}"
        of_key = saving.after
    elif saving is not None and saving.is_worth_saying:
        compressed = f'; compression = "zstd": {saving}'
    total = keyed.record_count * of_key * REBUILD / MEMORY_USED
    size = f"{of_key:.0f} bytes" + (f" ({of_fields:.0f} of them for its fields)" if of_fields else "")
    what = f"at most {keyed.record_count:,} keys of {size}: {total / _GIB:.2f} GiB of nodes{compressed}"
    yield CheckFinding("note", valid.place("topics", name), f"{what} (`keylane help sizing`)")
    if topic.definition is None:  # else other values than these are stored
        yield from _check_fields(valid, name, options, in_fields, keyed)
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
    valid: ValidConfig, name: str, options: Options, found: InFields, keyed: TopicSample
) -> Iterator[CheckFinding]:
    """Yield the fields by which no record would be found, and those whose unit is another one."""
    values = keyed.documents
    if keyed.decoded is not None and not values:
        return
    documents = [value for each in values if (value := json_object(each)) is not None]
    paths = {path for value in documents for path in paths_of(value)} if options.envelope == "none" else set()
    for field in indexes_of(options).fields:
        if field.number not in found.members:
            count = len(values) if keyed.decoded is not None else len(keyed.records)
            what = f"none of {count} records has a value of the type {field.kind} in {field.name!r}"
            meant = "" if field.name in paths else ask_meant(field.name, paths, quoted=True)
            yield CheckFinding("warning", valid.place("topics", name, "fields", field.name), what + meant)
    # The schemas of a registry say the units.
    guessed = guess_times(values).guessed if keyed.decoded is None else {}
    for field in indexes_of(options).fields:
        fits = guessed.get(field.name, field.kind)
        if field.kind.startswith("time") and fits != field.kind:
            what = f"the numbers in {field.name!r} look like {UNITS[fits]}, not {UNITS[field.kind]}"
            place = valid.place("topics", name, "fields", field.name)
            yield CheckFinding("warning", place, f'{what}: its type is "{fits}"')


def _check_balance(
    valid: ValidConfig, name: str, topic: TopicConfig, partitions: int, shards: Sequence[int]
) -> Iterator[CheckFinding]:
    full = fullness(count_lanes(shards, max(shards) + 1, partitions, topic.stripes))
    if full <= FULLEST:
        return
    proposed = propose_stripes(partitions, shards)
    if proposed.stripes != topic.stripes and proposed.fullest < full:
        now = f"the fullest shard has {full:.2f} times its share"
        uneven = "a shard has no lane" if math.isinf(full) else now
        what = f"{uneven}: with stripes = {proposed.stripes} it has {proposed.fullest:.2f} times"
        yield CheckFinding("warning", valid.place("topics", name, "stripes"), what)
