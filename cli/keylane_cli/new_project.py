"""What `keylane new` finds out about the topics of a Kafka."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from keylane.errors import UnknownTopic
from keylane.model.records import KeyFields
from keylane_cli.survey.cluster import PARTITIONS, Survey, reach
from keylane_cli.survey.compression_saving import CompressionSaving, find_saving
from keylane_cli.survey.lane_balance import WORTH_BYTES, Proposal, propose_stripes
from keylane_cli.survey.partitioner_guess import USUAL, PartitionerGuess
from keylane_cli.survey.sample import TopicSample
from keylane_cli.survey.table_guess import (
    decode_registered,
    explain_events,
    explain_keys,
    explain_registered,
    guess_fields,
    guess_key_fields,
    guess_key_schema,
    guess_times,
    has_change_events,
    has_registry_keys,
)
from keylane_local.env_file import KAFKA, REDIS
from keylane_local.errors import BadInput

_READS = 200
"""Of many topics, fewer partitions of each are looked at: so many in all."""
_INTERNAL = "_"
_TIMES = ("time", "time_us", "time_ns")
"""The types of times that are proposed: what may be seconds, days or years may be any other number."""
OPTIONS = {"kafka": "--kafka", "redis": "--redis"}


@dataclass(frozen=True, slots=True)
class NewProject:
    """What was asked for. No topics: all that Kafka has. `redis_nodes`: "" for a Redis of the local stack.

    `stack`: that of CloudFormation, None where nothing is deployed.
    """

    bootstrap: str
    redis_nodes: str
    topics: Sequence[str]
    stack: str | None = None


@dataclass(frozen=True, slots=True)
class TopicFound:
    """What is known of a topic. `partitions`: 0 if Kafka does not have it, None if nobody has looked.

    `stripes`: how many keep the shards of the Redis Cluster evenly filled; None if nobody has looked, or
    the topic is small.
    `has_keys`: whether a record had one; a topic without records may get some. `has_schemas`: whether all
    values begin as those of a Schema Registry do; `has_registry_keys`: all keys. `has_events`: whether all
    values are change events, as far as their schemas are known. `key_fields`: of keys that are JSON objects
    alike; `key_schema`: the schema that all keys have in them. `event_fault`, `key_fault`: why nothing is
    proposed though some values are change events, or the keys are objects. `times`: fields that may be times,
    `others`: further ones that records can be found by; with their types. `saving`: what compression saves;
    None of too few records to say.
    """

    partitions: int | None
    guess: PartitionerGuess
    stripes: Proposal | None = None
    has_keys: bool = True
    has_schemas: bool = False
    has_events: bool = False
    key_fields: KeyFields = ()
    key_schema: str = ""
    has_registry_keys: bool = False
    event_fault: str = ""
    key_fault: str = ""
    times: Sequence[tuple[str, str]] = ()
    others: Sequence[tuple[str, str]] = ()
    saving: CompressionSaving | None = None


_NOT_LOOKED_AT = TopicFound(None, PartitionerGuess(USUAL, is_guarded=False, reason="nothing was looked at"))


def without_a_look(project: NewProject) -> dict[str, TopicFound]:
    """Return the topics that were named, of which nothing is known."""
    return dict.fromkeys(project.topics, _NOT_LOOKED_AT)


def look_at(
    project: NewProject, environment: Mapping[str, str], *, creates: bool = False
) -> dict[str, TopicFound]:
    """Reach Kafka, and Redis if there is one, and look at the topics' first records.

    The environment has what else is needed to log in, as for the functions. `creates`: topics may be named
    that Kafka does not have. Raises PartUnreachable, KeylaneError, BadInput.
    """
    given = {**environment, KAFKA: project.bootstrap, REDIS: project.redis_nodes}
    with reach(given, OPTIONS) as survey:
        names = project.topics or sorted(name for name in survey.topics if not name.startswith(_INTERNAL))
        missing = survey.describe_missing(names)
        if missing and not creates:
            raise BadInput(f"{'; '.join(missing)} (--create-topics lets the job create it)")
        if not names:
            raise BadInput("Kafka has no topics yet: name one with --topic, and add --create-topics")
        shards = survey.find_shards()
        partitions = max(1, min(PARTITIONS, _READS // len(names)))
        found = {name: _look_at_topic(survey, name, partitions, shards) for name in names}
    return {name: _with_schemas(name, *each, environment) for name, each in found.items()}


def _with_schemas(
    name: str, topic: TopicFound, sample: TopicSample | None, environment: Mapping[str, str]
) -> TopicFound:
    """Return what is known, with what a registry's schemas say of the values and keys."""
    if sample is None:
        return topic
    values, _ = decode_registered(sample.values, environment) if topic.has_schemas else (sample.values, "")
    guessed, typed = guess_times(values)
    times = {*typed, *(name for name, kind in guessed.items() if kind in _TIMES)}
    topic = replace(
        topic,
        has_events=has_change_events(values),
        event_fault=explain_events(values),
        others=[each for each in guess_fields(values) if each[0] not in times],
        times=[
            *((name, "time") for name in typed),
            # The schemas of a registry say the units.
            *(
                (name, "time" if topic.has_schemas else kind)
                for name, kind in guessed.items()
                if kind in _TIMES
            ),
        ],
    )
    if topic.has_registry_keys:
        return replace(topic, key_fault=explain_registered(name, sorted(sample.keys), environment))
    is_proposed = topic.key_fields or topic.key_schema
    return topic if is_proposed else replace(topic, key_fault=explain_keys(sample.keys))


def _look_at_topic(
    survey: Survey, name: str, partitions: int, shards: list[int]
) -> tuple[TopicFound, TopicSample | None]:
    """Return what is known of a topic, and its first records."""
    try:
        sample = survey.sample(name, partitions, counts=True)
    except UnknownTopic:
        reason = "Kafka does not have the topic yet: this is that of Java clients"
        guess = PartitionerGuess(USUAL, is_guarded=False, reason=reason)
        return TopicFound(0, guess), None
    keys = sample.keys
    found = TopicFound(
        sample.partition_count,
        sample.guess_partitioner(),
        propose_stripes(sample.partition_count, shards)
        if shards and sample.memory_bytes >= WORTH_BYTES
        else None,
        has_keys=not sample.records or bool(sample.keys),
        has_schemas=sample.has_schemas,
        key_fields=guess_key_fields(keys),
        key_schema=guess_key_schema(keys),
        has_registry_keys=has_registry_keys(keys),
        saving=find_saving(sample, sample.bytes_per_key) if sample.records else None,
    )
    return found, sample


def summarize(found: Mapping[str, TopicFound]) -> list[dict[str, object]]:
    """Return what is known of each topic, for `--json`."""
    return [
        {
            "topic": name,
            "partitions": each.partitions,
            "stripes": each.stripes and each.stripes.stripes,
            "partitioner": each.guess.partitioner,
            "guarded": each.guess.is_guarded,
            "why": each.guess.reason,
            "has_keys": each.has_keys,
            "has_schemas": each.has_schemas,
            "has_events": each.has_events,
            "key_fields": dict(each.key_fields),
            "key_schema": each.key_schema or None,
            "has_registry_keys": each.has_registry_keys,
            "event_fault": each.event_fault or None,
            "key_fault": each.key_fault or None,
            "times": dict(each.times),
            "compressed_share": each.saving and round(each.saving.share, 3),
        }
        for name, each in found.items()
    ]
