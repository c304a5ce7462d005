"""The files that `keylane new` writes: keylane.toml, keylane.env, samconfig.toml."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from keylane.formats.connect_keys import keys_with_schema
from keylane.model.records import KeyFields
from keylane_cli.new_project import NewProject, TopicFound
from keylane_cli.survey.key_memory import BYTES_PER_ENTRY
from keylane_cli.survey.lane_balance import FULLEST, Proposal
from keylane_local.env_file import KAFKA, REDIS

NEW_PARTITIONS = 9
_BARE = re.compile(r"[A-Za-z0-9_-]+")
"""A name that TOML takes without quotes."""
_EXAMPLES = 3
_COST_OF_FIELDS = f"{BYTES_PER_ENTRY} bytes of Redis + the key, each"


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
