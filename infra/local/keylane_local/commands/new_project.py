"""What `keylane new` finds out about a cluster, and the files that it writes."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from keylane.adapters.aws import references
from keylane.adapters.kafka.admin import KafkaAdmin, KafkaMetadata
from keylane.adapters.kafka.reader import KafkaReader
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import ExploreSettings, redis_settings
from keylane.errors import UnknownTopic
from keylane.explore.health import check_health
from keylane.explore.log import read_records
from keylane.metrics.meter import NO_METER
from keylane.model.clusters import DEFAULT
from keylane.model.kafka import EARLIEST, READ_COMMITTED, KafkaTopic, LogRange
from keylane.ports import Clock, Deadline
from keylane.routing import SLOTS
from keylane_local.commands.lane_balance import FULLEST, Proposal, propose_stripes
from keylane_local.commands.partitioner_guess import USUAL, PartitionerGuess, guess_partitioner
from keylane_local.errors import StackError

TIMEOUT_MS = 10_000
_PARTITIONS, _RECORDS, _BYTES = 20, 200, 1 << 20
"""The records that are looked at: these of each of the first partitions."""
NEW_PARTITIONS = 9


class PartUnreachable(StackError):
    """Kafka or Redis does not answer."""

    exit_code = 5


@dataclass(frozen=True, slots=True)
class NewProject:
    """The answers to the four questions."""

    bootstrap: str
    redis_nodes: str
    topic: str
    stack: str


@dataclass(frozen=True, slots=True)
class TopicFound:
    """What is known of the topic. `partitions`: 0 if Kafka does not have it, None if nobody has looked.

    `stripes`: how many keep the shards of the Redis Cluster evenly filled; None if nobody has looked.
    """

    partitions: int | None
    guess: PartitionerGuess
    stripes: Proposal | None = None


UNCHECKED = TopicFound(None, PartitionerGuess(USUAL, is_guarded=False, reason="nothing was looked at"))


def look_at(project: NewProject, environment: Mapping[str, str]) -> TopicFound:
    """Reach Kafka and Redis, and look at the topic's first records.

    The environment has what else is needed to log in, as for the functions. Raises PartUnreachable,
    KeylaneError.
    """
    addresses = {"KEYLANE_KAFKA_BOOTSTRAP": project.bootstrap, "KEYLANE_REDIS_NODES": project.redis_nodes}
    # Kafka's client logs each attempt to connect. The error that is raised says it once.
    logging.getLogger("keylane").addHandler(logging.NullHandler())
    complete = references.resolved({**environment, **addresses})
    settings = ExploreSettings.from_environment(complete)
    clock = Clock()
    with ExitStack() as opened:
        admin = KafkaAdmin(settings.clusters.default)
        opened.callback(admin.close)
        metadata = KafkaMetadata(admin)
        cluster = Cluster(redis_settings(complete), NO_METER)
        opened.callback(cluster.close)
        state = RedisState(cluster)
        for part, health in check_health({DEFAULT: metadata}, state, clock, TIMEOUT_MS, TIMEOUT_MS).items():
            if health.why:
                raise PartUnreachable(f"{part}: {health.why}. {_advise(part)}")
        shards = _shards(state, clock)
        reader = KafkaReader(admin)
        opened.callback(reader.close)
        try:
            topic = metadata.topic(project.topic, Deadline.after_ms(TIMEOUT_MS, clock))
        except UnknownTopic:
            reason = "Kafka does not have the topic yet: this is that of Java clients"
            guess = PartitionerGuess(USUAL, is_guarded=False, reason=reason)
            return TopicFound(0, guess, propose_stripes(NEW_PARTITIONS, shards))
        count = len(topic.partitions)
        guess = guess_partitioner(_placed(metadata, reader, topic, clock), count)
        return TopicFound(count, guess, propose_stripes(count, shards))


def _shards(state: RedisState, clock: Clock) -> list[int]:
    """Return the number of the shard that has each slot."""
    hosts = state.hosts(range(SLOTS), Deadline.after_ms(TIMEOUT_MS, clock))
    numbers = {host: number for number, host in enumerate(dict.fromkeys(hosts))}
    return [numbers[host] for host in hosts]


def _placed(
    metadata: KafkaMetadata, reader: KafkaReader, topic: KafkaTopic, clock: Clock
) -> Iterator[tuple[int, bytes | None]]:
    for partition in topic.partitions[:_PARTITIONS]:
        wanted = LogRange(topic.name, partition.number, 0, 0, _RECORDS, _BYTES, READ_COMMITTED)
        page = read_records(metadata, reader, wanted, EARLIEST, Deadline.after_ms(TIMEOUT_MS, clock))
        yield from ((partition.number, record.key) for record in page.batch.records)


def _advise(part: str) -> str:
    if part == "redis":
        return (
            "Is --redis a node of a Redis Cluster, and do KEYLANE_REDIS_TLS, KEYLANE_REDIS_USERNAME and "
            "KEYLANE_REDIS_PASSWORD fit?"
        )
    return (
        "Is --kafka right, and do KEYLANE_KAFKA_SECURITY_PROTOCOL and KEYLANE_KAFKA_SASL_MECHANISM, "
        "..._USERNAME and ..._PASSWORD fit?"
    )


def render_topics(project: NewProject, found: TopicFound) -> str:
    """Return the text of keylane.toml."""
    lines = [
        "# The topics to serve, and their options: docs/configuration/topics.md has all of them.",
        "# Addresses and secrets come from the environment: docs/configuration/settings.md.",
        "",
    ]
    if found.partitions == 0:
        lines += ["[job]", "create_topics = true # Kafka does not have the topic yet", ""]
    name = project.topic if "." not in project.topic else f'"{project.topic}"'
    lines += [f"[topics.{name}]", f"# {found.guess.reason}", f'partitioner = "{found.guess.partitioner}"']
    if found.guess.is_guarded:
        lines.append("guarded = true # producers with several partitioners are expected")
    if found.partitions == 0:
        lines.append(f"partitions = {NEW_PARTITIONS}")
    if found.stripes is not None:
        lines.append(_render_stripes(found.stripes))
    lines += [
        "# index = true         # keys in order: ranges and prefixes",
        "# history_count = 100  # of each key",
    ]
    return "\n".join(lines) + "\n"


def _render_stripes(proposed: Proposal) -> str:
    line = f"stripes = {proposed.stripes} # the fullest shard has {proposed.fullest:.2f} times the mean"
    if proposed.fullest > FULLEST:
        return f"{line}: no number gives less here (docs/operate/sizing.md)"
    return f"{line} at most, up to {proposed.most_shards} shards (docs/operate/sizing.md)"


def render_deployment(project: NewProject, found: TopicFound, environment: Mapping[str, str]) -> str:
    """Return the text of samconfig.toml."""
    given = {
        "KafkaBootstrap": project.bootstrap,
        "KafkaSecurityProtocol": environment.get("KEYLANE_KAFKA_SECURITY_PROTOCOL", ""),
        "KafkaSaslMechanism": environment.get("KEYLANE_KAFKA_SASL_MECHANISM", ""),
        "RedisNodes": project.redis_nodes,
        "RedisTls": environment.get("KEYLANE_REDIS_TLS", "false").lower(),
        "Partitioner": found.guess.partitioner,
        "Authorization": "API_KEY",
    }
    overrides = "".join(f'  "{name}={value}",\n' for name, value in given.items() if value)
    return f"""\
# `sam deploy`: docs/operate/deploy.md describes the parameters.
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
# with their SecretArns.
parameter_overrides = [
{overrides}]
tags = "project={project.stack}"
"""
