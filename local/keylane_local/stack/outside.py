"""A Kafka and a Redis Cluster that the stack did not start: reached with the settings of the environment.

Nothing here writes to them.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane.adapters.aws import references
from keylane.adapters.kafka.admin import KafkaAdmin, KafkaMetadata
from keylane.adapters.kafka.reader import KafkaReader
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import ExploreSettings, redis_settings
from keylane.errors import ask_meant
from keylane.explore.health import check_health
from keylane.metrics.meter import NO_METER
from keylane.model.clusters import DEFAULT
from keylane.ports import Clock
from keylane_local.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

TIMEOUT_MS = 10_000
_ADVICE = {
    "kafka": (
        "Is {option} right, and do KEYLANE_KAFKA_SECURITY_PROTOCOL and KEYLANE_KAFKA_SASL_MECHANISM, "
        "..._USERNAME and ..._PASSWORD fit?"
    ),
    "redis": (
        "Is {option} a node of a Redis Cluster, and do KEYLANE_REDIS_TLS, KEYLANE_REDIS_USERNAME and "
        "KEYLANE_REDIS_PASSWORD fit?"
    ),
}


class PartUnreachable(StackError):
    """Kafka or Redis does not answer."""

    exit_code = 5


@dataclass(frozen=True, slots=True)
class Outside:
    """Clients of what was reached; `state` is None without a Redis."""

    metadata: KafkaMetadata
    reader: KafkaReader
    state: RedisState | None
    clock: Clock


@contextmanager
def reach(environment: Mapping[str, str], options: Mapping[str, str]) -> Iterator[Outside]:
    """Give clients of Kafka, and of Redis if KEYLANE_REDIS_NODES is set, once both have answered.

    `options` names, by part, where its address came from. Raises PartUnreachable, KeylaneError.
    """
    # Kafka's client logs each attempt to connect. The error that is raised says it once.
    logging.getLogger("keylane").addHandler(logging.NullHandler())
    complete = references.resolved(environment)
    settings = ExploreSettings.from_environment(complete)
    clock = Clock()
    with ExitStack() as opened:
        admin = KafkaAdmin(settings.clusters.default)
        opened.callback(admin.close)
        state = None
        if settings.has_redis:
            cluster = Cluster(redis_settings(complete), NO_METER)
            opened.callback(cluster.close)
            state = RedisState(cluster)
        metadata = KafkaMetadata(admin)
        for part, health in check_health({DEFAULT: metadata}, state, clock, TIMEOUT_MS, TIMEOUT_MS).items():
            if health.why:
                advice = _ADVICE[part].format(option=options.get(part, f"--{part}"))
                raise PartUnreachable(f"{part}: {health.why}. {advice}")
        reader = KafkaReader(admin)
        opened.callback(reader.close)
        yield Outside(metadata, reader, state, clock)


def describe_missing(wanted: Iterable[str], present: Collection[str]) -> list[str]:
    """Return a sentence for each topic that is wanted and not present, with the name that was meant."""
    missing = sorted(set(wanted) - set(present))
    return [f"Kafka has no topic {name!r}{ask_meant(name, present, quoted=True)}" for name in missing]
