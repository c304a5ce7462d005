"""The settings of worlds: those with which everything is well, and what a world has instead."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.servers.aws import REGION

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.hosts.case import Names
    from tests.contract.hosts.servers import Servers

    Changes = Callable[[Servers, Names], dict[str, str | None]]


def usual(servers: Servers) -> dict[str, str]:
    """Settings with which everything is well; times that no busy machine needs, and waits that are short."""
    return {
        "KEYLANE_REDIS_NODES": servers.redis,
        "KEYLANE_KAFKA_BOOTSTRAP": servers.kafka,
        "KEYLANE_SCHEMA_REGISTRY_URL": servers.registry,
        "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS": "20000",
        "KEYLANE_STATE_TIMEOUT_MS": "10000",
        "KEYLANE_PRODUCE_TIMEOUT_MS": "20000",
        "KEYLANE_IDEMPOTENCY_IN_PROGRESS_S": "60",
        "KEYLANE_EXPLORE_TIMEOUT_MS": "20000",
        "KEYLANE_HEALTH_TIMEOUT_MS": "10000",
        "KEYLANE_RATE_LIMIT_TIMEOUT_MS": "10000",
        "KEYLANE_WAIT_DEFAULT_MS": "5",
        "KEYLANE_WAIT_MAX_MS": "20",
    }


QUICK = {
    "KEYLANE_STATE_TIMEOUT_MS": "150",
    "KEYLANE_PRODUCE_TIMEOUT_MS": "300",
    "KEYLANE_EXPLORE_TIMEOUT_MS": "300",
    "KEYLANE_HEALTH_TIMEOUT_MS": "300",
    "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS": "300",
    "KEYLANE_RATE_LIMIT_TIMEOUT_MS": "100",
}
"""How long is waited for what never answers."""


def changed(**variables: str | None) -> Changes:
    """Settings by their names without KEYLANE_."""
    named = {f"KEYLANE_{name}": value for name, value in variables.items()}

    def changes(servers: Servers, names: Names) -> dict[str, str | None]:
        return {**named}

    return changes


def without(part: str, *, hanging: bool = False) -> Changes:
    """Redis, Kafka or the registry is away: nothing listens, or what listens does not answer."""

    def changes(servers: Servers, names: Names) -> dict[str, str | None]:
        address = servers.hole if hanging else servers.away
        values = {
            "redis": {"KEYLANE_REDIS_NODES": address},
            "kafka": {"KEYLANE_KAFKA_BOOTSTRAP": address},
            "registry": {"KEYLANE_SCHEMA_REGISTRY_URL": f"http://{address}"},
        }
        timeouts = {
            "redis": ("STATE", "RATE"),
            "kafka": ("PRODUCE", "EXPLORE", "HEALTH"),
            "registry": ("SCHEMA",),
        }
        quick = {
            name: value
            for name, value in QUICK.items()
            if any(f"KEYLANE_{each}" in name for each in timeouts[part])
        }
        return {**values[part], **quick}

    return changes


def queued(*, fifo: bool = True, **more: str | None) -> Changes:
    """A write-ahead log of its own for each run."""

    def changes(servers: Servers, names: Names) -> dict[str, str | None]:
        return {
            **servers.aws.environment,
            "KEYLANE_QUEUE_URL": servers.aws.queue(fifo=fifo),
            "KEYLANE_DLQ_URL": servers.aws.queue(fifo=fifo),
            "KEYLANE_QUEUE_BUCKET": servers.aws.bucket(),
            **changed(**more)(servers, names),
        }

    return changes


def failing_queue(servers: Servers, names: Names) -> dict[str, str | None]:
    """A queue that does not exist."""
    url = f"{servers.aws.url}/000000000000/nothing.fifo"
    return {**servers.aws.environment, "KEYLANE_QUEUE_URL": url, "KEYLANE_PRODUCE_TIMEOUT_MS": "3000"}


def saved_by_queue(servers: Servers, names: Names) -> dict[str, str | None]:
    """Kafka is away, and what it does not acknowledge goes into the queue, for which there is time."""
    own = queued(QUEUE_ON_FAILURE="true", PRODUCE_TIMEOUT_MS="2500")(servers, names)
    return {**without("kafka")(servers, names), **own}


def limits(servers: Servers, names: Names) -> dict[str, str | None]:
    """Limits whose tokens come back after the run: one a minute."""
    servers.forget_limits()
    rates = {
        "topics": {
            f"*{names.tag}-limited": {"records_per_minute": 1, "burst_s": 300},
            f"*{names.tag}-hidden": {"bytes_per_minute": 1, "burst_s": 3_600},
        },
        "callers": {"*": {"records_per_minute": 1, "burst_s": 2_400}},
    }
    return {"KEYLANE_RATE_LIMITS": json.dumps(rates)}


def spent_limits(servers: Servers, names: Names) -> dict[str, str | None]:
    """Limits for the documented requests, the first of which takes more than there is."""
    return {"KEYLANE_RATE_LIMITS": json.dumps({"topics": {"*-limited": {"records_per_minute": 1}}})}


def closed_limits(servers: Servers, names: Names) -> dict[str, str | None]:
    """Limits that can't be counted, and then refuse."""
    return {
        **without("redis")(servers, names),
        **limits(servers, names),
        "KEYLANE_RATE_LIMIT_FAILURE": "closed",
    }


def two_clusters(servers: Servers, names: Names) -> dict[str, str | None]:
    """Some topics of this run are in a cluster of their own, which is the same one."""
    second = {"topics": [f"hosts-{names.tag}-t*"], "bootstrap": servers.kafka}
    return {"KEYLANE_KAFKA_CLUSTERS": json.dumps({"second": second})}


def cluster_away(servers: Servers, names: Names) -> dict[str, str | None]:
    """A second cluster is away."""
    second = {"topics": ["hosts-nowhere"], "bootstrap": servers.away}
    return {"KEYLANE_KAFKA_CLUSTERS": json.dumps({"second": second}), **QUICK}


def secrets_away(servers: Servers, names: Names) -> dict[str, str | None]:
    """Settings refer to a secret, and nothing answers for it."""
    reference = "secretsmanager:hosts#password"
    away = {
        **servers.aws.environment,
        "AWS_ENDPOINT_URL": f"http://{servers.away}",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_DEFAULT_REGION": REGION,
    }
    return {**away, "KEYLANE_REDIS_PASSWORD": reference, "KEYLANE_KAFKA_CLIENT_ID": reference}


def overlapping(servers: Servers, names: Names) -> dict[str, str | None]:
    """A write takes long enough for another one to come."""
    return {**without("kafka", hanging=True)(servers, names), "KEYLANE_PRODUCE_TIMEOUT_MS": "1500"}


def rules(servers: Servers, names: Names) -> dict[str, str | None]:
    """Values are validated, by schemas of the settings and of the registry."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    given = {
        names.out("json"): {"schema": schema},
        names.out("three"): {"schema": {"type": "object", "required": ["n"]}},
        names.out("avro"): {"subject": "hosts-avro-value"},
        names.out("jsonschema"): {"subject": "hosts-json-value", "plain": True},
        names.out("limited"): {"subject": "hosts-nowhere-value"},
    }
    return {"KEYLANE_SCHEMAS": json.dumps(given)}


def narrowed(servers: Servers, names: Names) -> dict[str, str | None]:
    """Some topics are served, some of them to readers alone."""
    read = ["hosts-f*", "hosts-j*", "__transaction_state"]
    served = {"read": read, "write": [names.out("json"), "hosts-flights"]}
    return {"KEYLANE_TOPICS": json.dumps(served)}
