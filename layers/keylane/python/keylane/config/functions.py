"""Settings from the environment: read in one call, checked, the variable at fault named.

Each kind of settings imports its adapter where it is read, so that a function carries no client but its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from keylane.config.env import nodes, number, switch
from keylane.errors import SettingsError

__all__ = [
    "ExploreSettings",
    "ProduceSettings",
    "QuerySettings",
    "SettingsError",
    "redis_settings",
    "registry_settings",
]

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.adapters.kafka.admin import ReaderSettings
    from keylane.adapters.kafka.options import KafkaSettings
    from keylane.adapters.redis.cluster import RedisSettings
    from keylane.adapters.registry.http import RegistrySettings
    from keylane.model.clusters import Clusters, Named

MAX_VALUE_BYTES = 512 * 1024 * 1024
"""More than any function or broker takes: a bound that a slip of the finger meets."""


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """What the query function runs with. `state_timeout_ms` bounds one read, `wait_max_ms` one waiting.

    `registry_timeout_ms` bounds all that one request asks of the Schema Registry.
    """

    redis: RedisSettings
    state_timeout_ms: int = 1_000
    wait_default_ms: int = 5_000
    wait_max_ms: int = 20_000
    layout_ttl_s: int = 30
    registry_timeout_ms: int = 2_000

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read all at once. Raises SettingsError."""
        wait_max_ms = number(environment, "KEYLANE_WAIT_MAX_MS", 20_000, least=0)
        return cls(
            redis=redis_settings(environment),
            state_timeout_ms=number(environment, "KEYLANE_STATE_TIMEOUT_MS", 1_000),
            wait_default_ms=min(number(environment, "KEYLANE_WAIT_DEFAULT_MS", 5_000, least=0), wait_max_ms),
            wait_max_ms=wait_max_ms,
            layout_ttl_s=number(environment, "KEYLANE_LAYOUT_TTL_S", 30, least=0),
            registry_timeout_ms=number(environment, "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS", 2_000),
        )


@dataclass(frozen=True, slots=True)
class ProduceSettings:
    """What the produce function runs with. `timeout_ms` bounds one request.

    `kafka` is the cluster of all topics that are none of the `others`'.
    """

    kafka: KafkaSettings
    timeout_ms: int = 5_000
    value_limit_bytes: int = 1_048_576
    others: tuple[Named[KafkaSettings], ...] = ()

    @property
    def clusters(self) -> Clusters[KafkaSettings]:
        """All clusters."""
        from keylane.model.clusters import Clusters  # noqa: PLC0415

        return Clusters(self.kafka, self.others)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read all at once. Raises SettingsError."""
        from keylane.adapters.kafka.options import KafkaSettings  # noqa: PLC0415
        from keylane.config import kafka as kafka_config  # noqa: PLC0415
        from keylane.config import producer  # noqa: PLC0415

        timeout_ms = number(environment, "KEYLANE_PRODUCE_TIMEOUT_MS", 5_000)
        limit_bytes = number(environment, "KEYLANE_MAX_VALUE_BYTES", 1_048_576, most=MAX_VALUE_BYTES)

        def read(environment: Mapping[str, str]) -> KafkaSettings:
            return KafkaSettings(
                kafka_config.bootstrap(environment),
                producer.partitioner(environment),
                limit_bytes,
                timeout_ms,
                producer.partition_by(environment),
                producer.partitioners(environment),
                kafka_config.security(environment),
                kafka_config.client_options(environment),
                producer.producer_options(environment),
            )

        clusters = kafka_config.clusters(environment, read)
        return cls(clusters.default, timeout_ms, limit_bytes, clusters.named)


@dataclass(frozen=True, slots=True)
class ExploreSettings:
    """What the explore function runs with; without `redis` it knows no shards.

    `timeout_ms` bounds what one request asks of Kafka, `health_timeout_ms` the same for its health.
    `kafka` is the cluster of all topics that are none of the `others`'.
    """

    kafka: ReaderSettings
    redis: RedisSettings | None = None
    timeout_ms: int = 5_000
    health_timeout_ms: int = 2_000
    state_timeout_ms: int = 1_000
    others: tuple[Named[ReaderSettings], ...] = ()

    @property
    def clusters(self) -> Clusters[ReaderSettings]:
        """All clusters."""
        from keylane.model.clusters import Clusters  # noqa: PLC0415

        return Clusters(self.kafka, self.others)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read all at once. Raises SettingsError."""
        from keylane.adapters.kafka.admin import ReaderSettings  # noqa: PLC0415
        from keylane.config import kafka as kafka_config  # noqa: PLC0415

        timeout_ms = number(environment, "KEYLANE_EXPLORE_TIMEOUT_MS", 5_000)

        def read(environment: Mapping[str, str]) -> ReaderSettings:
            return ReaderSettings(
                kafka_config.bootstrap(environment),
                timeout_ms,
                security=kafka_config.security(environment),
                client=kafka_config.client_options(environment),
            )

        clusters = kafka_config.clusters(environment, read)
        has_redis = environment.get("KEYLANE_REDIS_NODES", "").strip()
        return cls(
            clusters.default,
            redis_settings(environment) if has_redis else None,
            timeout_ms,
            number(environment, "KEYLANE_HEALTH_TIMEOUT_MS", 2_000),
            number(environment, "KEYLANE_STATE_TIMEOUT_MS", 1_000),
            clusters.named,
        )


def redis_settings(environment: Mapping[str, str]) -> RedisSettings:
    """KEYLANE_REDIS_NODES, _USERNAME, _PASSWORD, _TLS, and _TLS_CA_FILE for a private authority."""
    from keylane.adapters.redis.cluster import Node, RedisSettings  # noqa: PLC0415

    return RedisSettings(
        nodes=tuple(Node(host, port) for host, port in nodes(environment, "KEYLANE_REDIS_NODES")),
        username=environment.get("KEYLANE_REDIS_USERNAME") or None,
        password=environment.get("KEYLANE_REDIS_PASSWORD") or None,
        tls=switch(environment, "KEYLANE_REDIS_TLS"),
        tls_ca_file=environment.get("KEYLANE_REDIS_TLS_CA_FILE") or None,
    )


def registry_settings(environment: Mapping[str, str]) -> RegistrySettings:
    """KEYLANE_SCHEMA_REGISTRY_URL, _USERNAME, _PASSWORD, and _CA_FILE for a private authority.

    Read when the first value needs a schema: a function that meets none does without them.
    """
    from urllib.parse import urlsplit  # noqa: PLC0415

    from keylane.adapters.registry.http import RegistrySettings  # noqa: PLC0415

    variable = "KEYLANE_SCHEMA_REGISTRY_URL"
    url = environment.get(variable, "").strip()
    if not url:
        raise SettingsError(variable, 'is not set: topics with value_format = "registry" need it')
    fault = "is no http or https URL of host, port and path alone"
    try:
        parts = urlsplit(url)
        # The URL isn't shown: one with a password in it is a likely mistake.
        if parts.port == 0 or parts.scheme not in {"http", "https"} or not parts.hostname:
            raise SettingsError(variable, fault)
    except ValueError as error:
        raise SettingsError(variable, fault) from error
    if parts.username or parts.password or parts.query or parts.fragment:
        raise SettingsError(variable, f"{fault}; credentials have variables of their own")
    return RegistrySettings(
        url=url,
        username=environment.get("KEYLANE_SCHEMA_REGISTRY_USERNAME") or None,
        password=environment.get("KEYLANE_SCHEMA_REGISTRY_PASSWORD") or None,
        ca_file=environment.get("KEYLANE_SCHEMA_REGISTRY_CA_FILE") or None,
    )
