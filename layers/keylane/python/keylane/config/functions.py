"""Settings of the functions as values: each is read in one call, which names the variable at fault.

Each reader imports its adapter where it is called, so that a function loads no client but its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from keylane.config.settings import is_set
from keylane.config.table import REDIS, SETTINGS
from keylane.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.adapters.kafka.admin import ReaderSettings
    from keylane.adapters.kafka.options import KafkaSettings
    from keylane.adapters.redis.cluster import RedisSettings
    from keylane.adapters.registry.login import RegistrySettings
    from keylane.model.clusters import Clusters

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """Settings of the query function.

    `state_timeout_ms` bounds one read, `registry_timeout_ms` all that one request asks the Schema Registry.
    """

    state_timeout_ms: int
    wait_default_ms: int
    wait_max_ms: int
    layout_ttl_s: int
    registry_timeout_ms: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read all settings. Raises SettingsError."""
        wait_max_ms = SETTINGS.read(environment, "KEYLANE_WAIT_MAX_MS")
        return cls(
            state_timeout_ms=SETTINGS.read(environment, "KEYLANE_STATE_TIMEOUT_MS"),
            wait_default_ms=min(SETTINGS.read(environment, "KEYLANE_WAIT_DEFAULT_MS"), wait_max_ms),
            wait_max_ms=wait_max_ms,
            layout_ttl_s=SETTINGS.read(environment, "KEYLANE_LAYOUT_TTL_S"),
            registry_timeout_ms=SETTINGS.read(environment, "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS"),
        )


@dataclass(frozen=True, slots=True)
class ProduceSettings:
    """Settings of the functions that write. `timeout_ms` bounds one request.

    `pushes_as_kprf`: failed pushes are answered as kprf answers them.
    """

    clusters: Clusters[KafkaSettings]
    timeout_ms: int
    value_limit_bytes: int
    pushes_as_kprf: bool

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read all settings. Raises SettingsError."""
        from keylane.config import kafka  # noqa: PLC0415

        clusters = kafka.clusters(environment, _kafka_settings)
        return cls(
            clusters,
            clusters.default.timeout_ms,
            clusters.default.value_limit_bytes,
            SETTINGS.read(environment, "KEYLANE_PUSH_COMPATIBILITY") == "kprf",
        )


def _kafka_settings(environment: Mapping[str, str]) -> KafkaSettings:
    from keylane.adapters.kafka.options import KafkaSettings  # noqa: PLC0415
    from keylane.config import kafka  # noqa: PLC0415

    return KafkaSettings(
        kafka.bootstrap(environment),
        kafka.partitioner(environment),
        SETTINGS.read(environment, "KEYLANE_MAX_VALUE_BYTES"),
        SETTINGS.read(environment, "KEYLANE_PRODUCE_TIMEOUT_MS"),
        kafka.partition_by(environment),
        kafka.partitioners(environment),
        kafka.security(environment),
        kafka.client_options(environment),
        kafka.producer_options(environment),
    )


@dataclass(frozen=True, slots=True)
class ExploreSettings:
    """Settings of the explore function; without a Redis it knows no shards.

    `timeout_ms` bounds what one request asks of Kafka, `health_timeout_ms` the same for its health.
    """

    clusters: Clusters[ReaderSettings]
    has_redis: bool
    has_registry: bool
    timeout_ms: int
    health_timeout_ms: int
    state_timeout_ms: int
    registry_timeout_ms: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read all settings. Raises SettingsError."""
        from keylane.config import kafka  # noqa: PLC0415

        clusters = kafka.clusters(environment, _reader_settings)
        return cls(
            clusters,
            is_set(environment, "KEYLANE_REDIS_NODES"),
            is_set(environment, "KEYLANE_SCHEMA_REGISTRY_URL"),
            clusters.default.timeout_ms,
            SETTINGS.read(environment, "KEYLANE_HEALTH_TIMEOUT_MS"),
            SETTINGS.read(environment, "KEYLANE_STATE_TIMEOUT_MS"),
            SETTINGS.read(environment, "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS"),
        )


def _reader_settings(environment: Mapping[str, str]) -> ReaderSettings:
    from keylane.adapters.kafka.admin import ReaderSettings  # noqa: PLC0415
    from keylane.config import kafka  # noqa: PLC0415

    timeout_ms = SETTINGS.read(environment, "KEYLANE_EXPLORE_TIMEOUT_MS")
    found = kafka.connection(environment)
    return ReaderSettings(found.bootstrap, timeout_ms, found.security, found.client)


def redis_settings(environment: Mapping[str, str]) -> RedisSettings:
    """Read how to connect to Redis. Raises SettingsError."""
    from keylane.adapters.redis.cluster import Node, RedisSettings  # noqa: PLC0415

    fields = REDIS.fields(environment, "KEYLANE_REDIS_")
    fields["nodes"] = tuple(Node(*address) for address in fields["nodes"])
    return RedisSettings(**fields)


def renewable_redis(environment: Mapping[str, str]) -> RedisSettings:
    """Read how to connect to Redis, and again where a node rejects the credentials.

    The environment is copied, as far as Redis needs it: the job's settings travel to Spark's workers.
    Raises SettingsError, SettingsUnavailable.
    """
    return _renewable(redis_settings, {name: environment[name] for name in REDIS if name in environment})


def registry_settings(environment: Mapping[str, str]) -> RegistrySettings:
    """Read how to connect to the Schema Registry. Raises SettingsError.

    It is called when the first value needs a schema: a function that meets none works without a registry.
    """
    from urllib.parse import urlsplit  # noqa: PLC0415

    from keylane.adapters.registry.login import RegistrySettings  # noqa: PLC0415

    variable = "KEYLANE_SCHEMA_REGISTRY_URL"
    url = SETTINGS.read(environment, variable)
    if not url:
        raise SettingsError(variable, 'is not set: topics with value_format = "registry" need it')
    fault = "is not an http or https URL of host, port and path alone"
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
        username=SETTINGS.read(environment, "KEYLANE_SCHEMA_REGISTRY_USERNAME"),
        password=SETTINGS.read(environment, "KEYLANE_SCHEMA_REGISTRY_PASSWORD"),
        ca_file=SETTINGS.read(environment, "KEYLANE_SCHEMA_REGISTRY_CA_FILE"),
    )


def renewable_registry(environment: Mapping[str, str]) -> RegistrySettings:
    """Read how to connect to the Schema Registry, and again where it rejects the login.

    Raises SettingsError, SettingsUnavailable.
    """
    own = {name: value for name, value in environment.items() if name.startswith("KEYLANE_SCHEMA_REGISTRY_")}
    return _renewable(registry_settings, own)


def _renewable(read: Callable[[Mapping[str, str]], T], environment: Mapping[str, str]) -> T:
    """Read a login. Where it refers to secrets, it can be read again, with their present values."""
    from keylane.adapters.aws import references  # noqa: PLC0415

    found: Any = _read_resolved(read, environment)
    if references.has_references(environment):
        found = replace(found, renewed=partial(_read_resolved, read, environment))
    return cast("T", found)


def _read_resolved(read: Callable[[Mapping[str, str]], T], environment: Mapping[str, str]) -> T:
    from keylane.adapters.aws import references  # noqa: PLC0415

    return read(references.resolved(environment))
