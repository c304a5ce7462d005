"""What `keylane new` finds out about a cluster, and the files that it writes."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from keylane.errors import UnknownTopic
from keylane.formats.connect_keys import keys_with_schema
from keylane.model.records import KeyFields
from keylane_cli.survey.cluster import PARTITIONS, Survey, describe_missing, reach
from keylane_cli.survey.compression_saving import CompressionSaving, find_saving
from keylane_cli.survey.key_memory import BYTES_PER_ENTRY
from keylane_cli.survey.lane_balance import FULLEST, WORTH_BYTES, Proposal, propose_stripes
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
NEW_PARTITIONS = 9
_INTERNAL = "_"
_BARE = re.compile(r"[A-Za-z0-9_-]+")
"""A name that TOML takes without quotes."""
_TIMES = ("time", "time_us", "time_ns")
"""The types of times that are proposed: what may be seconds, days or years may be any other number."""
_EXAMPLES = 3
_COST_OF_FIELDS = f"{BYTES_PER_ENTRY} bytes of Redis + the key, each"
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
        missing = describe_missing(names, survey.topics)
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


def render_topics(found: Mapping[str, TopicFound]) -> str:
    """Return the text of keylane.toml."""
    lines = [
        "# The topics to serve, and their options: `keylane help configuration/topics` has all of them.",
        "# Addresses and secrets are in keylane.env, or in the environment: `keylane help settings`.",
        "",
    ]
    if any(each.partitions == 0 for each in found.values()):
        lines += ["[job]", "create_topics = true # those that Kafka does not have yet", ""]
    if not any(each.has_keys for each in found.values()):
        lines += ["# No topic has records with keys. One of these is needed:", ""]
    return "\n".join(lines) + "\n".join(_render_topic(name, each) for name, each in found.items())


def _render_topic(name: str, found: TopicFound) -> str:
    header = f"[topics.{name}]" if "." not in name else f'[topics."{name}"]'
    if not found.has_keys:
        return f"# {header} # its first records have no keys: nothing could be found by one\n"
    lines = [header, f"# {found.guess.reason}", f'partitioner = "{found.guess.partitioner}"']
    if found.guess.is_guarded:
        lines.append("guarded = true # producers with several partitioners are expected")
    if found.partitions == 0:
        lines.append(f"partitions = {NEW_PARTITIONS}")
    if found.stripes is not None:
        lines.append(_render_stripes(found.stripes))
    if found.has_schemas:
        lines.append('value_format = "registry" # needs KEYLANE_SCHEMA_REGISTRY_URL')
        if not found.has_events and not found.event_fault:
            lines.append('# envelope = "debezium"  # if the values are change events of a table')
    if found.has_events:
        lines.append('envelope = "debezium" # rows of a table (`keylane help databases`)')
    elif found.event_fault:
        lines.append(f'# envelope = "debezium" # {_comment(found.event_fault)}')
    lines += _render_keys(found)
    lines += [
        "# index = true         # keys in order: ranges and prefixes",
        "# history_count = 100  # of each key",
        *(
            [f'# compression = "zstd" # {found.saving}']
            if found.saving and found.saving.is_worth_saying
            else []
        ),
        f"# fields = {{ {_example_fields(found)} }}  # to find by: {_COST_OF_FIELDS}",
    ]
    return "\n".join(lines) + "\n"


def _example_fields(found: TopicFound) -> str:
    fields = [*found.others[:_EXAMPLES], *found.times[:_EXAMPLES]] or [("status", "text")]
    return ", ".join(f'{".".join(map(_toml_name, name.split(".")))} = "{kind}"' for name, kind in fields)


def _render_keys(found: TopicFound) -> Iterator[str]:
    """Yield the line that says how keys are asked for by their values."""
    if found.key_fields:
        fields = ", ".join(f'{_toml_name(name)} = "{kind}"' for name, kind in found.key_fields)
        yield f"key_fields = {{ {fields} }} # {_example(found.key_fields)}"
    if found.key_schema:
        # TOML's basic strings are JSON's, but for a character that JSON may have as it is.
        schema = json.dumps(found.key_schema).replace("\x7f", "\\u007f")
        yield f"key_schema = {schema} # {_example(keys_with_schema(found.key_schema).fields)}"
    if found.has_registry_keys and not found.key_fault:
        yield 'key_format = "registry" # keys by their values: /keys/7, or a JSON object'
    if found.key_fault:
        yield f"# keys are asked for as they are in Kafka: {_comment(found.key_fault)}"


def _comment(text: str) -> str:
    """Return a text that ends no comment of TOML."""
    return "".join(each if each.isprintable() else " " for each in text)[:300]


def _toml_name(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _example(fields: KeyFields) -> str:
    if len(fields) == 1:
        return "keys by its value: /keys/7"
    return "keys by a JSON object of these"


def render_environment(
    project: NewProject, found: Mapping[str, TopicFound], environment: Mapping[str, str]
) -> str:
    """Return the text of keylane.env, without passwords."""
    given = {
        name: environment[name]
        for name in _LOGIN
        if environment.get(name) and not name.endswith("_PASSWORD") and "\n" not in environment[name]
    }
    lines = [
        "# Read by `keylane up`, `job`, `serve` and `doctor` here, by systemd and by containers.",
        "# The environment wins. `keylane help settings` has every variable.",
        f"{KAFKA}={project.bootstrap}",
    ]
    lines.append(
        f"{REDIS}={project.redis_nodes}"
        if project.redis_nodes
        else f"# {REDIS}=redis-1:6379 # without it, `keylane up` starts a Redis Cluster of its own"
    )
    lines += [
        "# Which topics are served, and that none is written over HTTP. The second line, instead, allows it.",
        *_render_served([name for name, each in found.items() if each.has_keys]),
    ]
    lines += [f"{name}={value}" for name, value in given.items()]
    lines += [f"# {name}={example}" for name, example in _LOGIN.items() if name not in given and example]
    return "\n".join(lines) + "\n"


def _render_served(topics: Sequence[str]) -> Iterator[str]:
    yield f"KEYLANE_TOPICS={json.dumps({'read': topics, 'write': []})}"
    yield f"# KEYLANE_TOPICS={json.dumps({'read': topics, 'write': topics})}"


_LOGIN = {
    "KEYLANE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "KEYLANE_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
    "KEYLANE_KAFKA_SASL_USERNAME": "...",
    "KEYLANE_KAFKA_SASL_PASSWORD": "...",
    "KEYLANE_KAFKA_SSL_CA": "/etc/ssl/kafka-ca.pem",
    "KEYLANE_REDIS_TLS": "true",
    "KEYLANE_REDIS_USERNAME": "...",
    "KEYLANE_REDIS_PASSWORD": "...",
    "KEYLANE_SCHEMA_REGISTRY_URL": "https://registry:8081",
}
"""How to log in, with what an example has."""


def _render_stripes(proposed: Proposal) -> str:
    line = f"stripes = {proposed.stripes} # "
    most = f"{proposed.fullest:.2f} times its share"
    if proposed.fullest > FULLEST:
        return f"{line}the fullest shard has {most}: no number gives less here (`keylane help sizing`)"
    return f"{line}no shard has more than {most}, up to {proposed.most_shards} shards (`keylane help sizing`)"


def render_deployment(
    project: NewProject, found: Mapping[str, TopicFound], environment: Mapping[str, str]
) -> str:
    """Return the text of samconfig.toml."""
    partitioners = {each.guess.partitioner for each in found.values()}
    given = {
        "KafkaBootstrap": project.bootstrap,
        "KafkaSecurityProtocol": environment.get("KEYLANE_KAFKA_SECURITY_PROTOCOL", ""),
        "KafkaSaslMechanism": environment.get("KEYLANE_KAFKA_SASL_MECHANISM", ""),
        "RedisNodes": project.redis_nodes,
        "RedisTls": environment.get("KEYLANE_REDIS_TLS", "false").lower(),
        "Partitioner": partitioners.pop() if len(partitioners) == 1 else "",
        "Authorization": "API_KEY",
    }
    more = "" if project.redis_nodes else " RedisNodes, unless a cache is to be created."
    overrides = "".join(f'  "{name}={value}",\n' for name, value in given.items() if value)
    return f"""\
# `sam deploy`: `keylane help deploy` describes the parameters.
version = 0.1

[default.global.parameters]
stack_name = "{project.stack}"

[default.build.parameters]
cached = false
parallel = true

[default.deploy.parameters]
resolve_s3 = true
s3_prefix = "{project.stack}"
capabilities = ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"]
confirm_changeset = true
# Still to be added: SubnetIds and SecurityGroupIds, in which the functions reach Kafka and Redis; and where
# they log in, KafkaSaslUsername, KafkaSaslPassword, RedisUsername and RedisPassword as references to secrets,
# with their SecretArns.{more}
parameter_overrides = [
{overrides}]
tags = "project={project.stack}"
"""
