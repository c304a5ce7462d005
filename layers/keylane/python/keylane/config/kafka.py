"""How to connect to Kafka, from the environment: which clusters, and who we are there.

KEYLANE_KAFKA_CLUSTERS names further clusters, each with the topics that are its own:
`{"payments": {"topics": ["payments.*"], "bootstrap": "one:9096", "sasl_username": ...}}`. Its fields are the
variables KEYLANE_KAFKA_... without that beginning. How to connect is never taken over from the default
cluster: its password is not for others. How to write is, where a cluster says nothing else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from keylane.adapters.kafka import options as kafka
from keylane.adapters.kafka.options import ClientOptions, Connection, Security
from keylane.config import env
from keylane.errors import SettingsError
from keylane.model.clusters import DEFAULT, Clusters, Named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

PREFIX = "KEYLANE_KAFKA_"
CLUSTERS = "KEYLANE_KAFKA_CLUSTERS"
CONNECTION = (
    "KEYLANE_KAFKA_BOOTSTRAP",
    "KEYLANE_KAFKA_SECURITY_PROTOCOL",
    "KEYLANE_KAFKA_SASL_MECHANISM",
    "KEYLANE_KAFKA_SASL_USERNAME",
    "KEYLANE_KAFKA_SASL_PASSWORD",
    "KEYLANE_KAFKA_SASL_REGION",
    "KEYLANE_KAFKA_SSL_CA",
    "KEYLANE_KAFKA_SSL_CERTIFICATE",
    "KEYLANE_KAFKA_SSL_KEY",
    "KEYLANE_KAFKA_SSL_KEY_PASSWORD",
    "KEYLANE_KAFKA_SSL_VERIFY",
)
OPTIONS = (
    "KEYLANE_KAFKA_CLIENT_ID",
    "KEYLANE_KAFKA_SOCKET_TIMEOUT_MS",
    "KEYLANE_KAFKA_CONNECT_TIMEOUT_MS",
    "KEYLANE_KAFKA_IDLE_TIMEOUT_MS",
    "KEYLANE_KAFKA_METADATA_REFRESH_MS",
    "KEYLANE_KAFKA_RETRY_BACKOFF_MS",
    "KEYLANE_KAFKA_RETRY_BACKOFF_MAX_MS",
    "KEYLANE_KAFKA_ACKS",
    "KEYLANE_KAFKA_IDEMPOTENCE",
    "KEYLANE_KAFKA_RETRIES",
    "KEYLANE_KAFKA_LINGER_MS",
    "KEYLANE_KAFKA_BATCH_RECORDS",
    "KEYLANE_KAFKA_BATCH_BYTES",
    "KEYLANE_KAFKA_QUEUE_RECORDS",
    "KEYLANE_KAFKA_QUEUE_KBYTES",
    "KEYLANE_KAFKA_QUEUE_FULL",
    "KEYLANE_KAFKA_MESSAGE_TIMEOUT_MS",
    "KEYLANE_KAFKA_REQUEST_TIMEOUT_MS",
    "KEYLANE_KAFKA_COMPRESSION",
)
MOST = 2_147_483_647
HOUR_MS = 3_600_000
_RETRY_BACKOFF_MAX_MS = 1_000
"""librdkafka's default."""
_CLUSTER_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PATTERN = re.compile(r"[a-zA-Z0-9._*-]{1,249}")
_CLUSTERS_EXAMPLE = '{"payments": {"topics": ["payments.*"], "bootstrap": "one:9092"}}'


def bootstrap(environment: Mapping[str, str]) -> str:
    """KEYLANE_KAFKA_BOOTSTRAP, checked: "host:port,host:port"."""
    env.nodes(environment, "KEYLANE_KAFKA_BOOTSTRAP")
    return environment["KEYLANE_KAFKA_BOOTSTRAP"].replace(" ", "")


def security(environment: Mapping[str, str]) -> Security:
    """KEYLANE_KAFKA_SECURITY_PROTOCOL, _SASL_... and _SSL_...; what does not go together is refused."""
    protocol = env.choice(
        environment, "KEYLANE_KAFKA_SECURITY_PROTOCOL", kafka.PROTOCOLS, _protocol(environment)
    )
    found = Security(
        protocol,
        _mechanism(environment, protocol),
        env.text(environment, "KEYLANE_KAFKA_SASL_USERNAME"),
        # A password may begin or end with a space.
        environment.get("KEYLANE_KAFKA_SASL_PASSWORD", ""),
        _region(environment),
        env.text(environment, "KEYLANE_KAFKA_SSL_CA"),
        env.text(environment, "KEYLANE_KAFKA_SSL_CERTIFICATE"),
        env.text(environment, "KEYLANE_KAFKA_SSL_KEY"),
        environment.get("KEYLANE_KAFKA_SSL_KEY_PASSWORD", ""),
        env.choice(environment, "KEYLANE_KAFKA_SSL_VERIFY", kafka.VERIFY, kafka.FULL),
    )
    _check_sasl(found)
    _check_tls(found, environment)
    return found


def client_options(environment: Mapping[str, str]) -> ClientOptions:
    """What all of a function's clients have in common."""
    least = some(environment, "KEYLANE_KAFKA_RETRY_BACKOFF_MS", 1, 300_000)
    most = some(environment, "KEYLANE_KAFKA_RETRY_BACKOFF_MAX_MS", 1, 300_000)
    if least is not None and most is None:
        most = max(least, _RETRY_BACKOFF_MAX_MS)
    if (least or 0) > (most or _RETRY_BACKOFF_MAX_MS):
        raise SettingsError("KEYLANE_KAFKA_RETRY_BACKOFF_MAX_MS", "is below KEYLANE_KAFKA_RETRY_BACKOFF_MS")
    return ClientOptions(
        env.text(environment, "KEYLANE_KAFKA_CLIENT_ID") or None,
        some(environment, "KEYLANE_KAFKA_SOCKET_TIMEOUT_MS", 10, 300_000),
        some(environment, "KEYLANE_KAFKA_CONNECT_TIMEOUT_MS", 1_000, MOST),
        some(environment, "KEYLANE_KAFKA_IDLE_TIMEOUT_MS", 0, MOST),
        some(environment, "KEYLANE_KAFKA_METADATA_REFRESH_MS", 10, HOUR_MS),
        least,
        most,
    )


def connection(environment: Mapping[str, str]) -> Connection:
    """How to reach the cluster."""
    return Connection(bootstrap(environment), security(environment), client_options(environment))


def clusters(environment: Mapping[str, str], read: Callable[[Mapping[str, str]], T]) -> Clusters[T]:
    """What `read` finds in the environment, and in that of each cluster of KEYLANE_KAFKA_CLUSTERS."""
    named = env.json_object(environment, CLUSTERS, _CLUSTERS_EXAMPLE)
    return Clusters(read(environment), tuple(_named(environment, *each, read) for each in named.items()))


def _named(
    environment: Mapping[str, str], name: str, fields: object, read: Callable[[Mapping[str, str]], T]
) -> Named[T]:
    if not _CLUSTER_NAME.fullmatch(name) or name == DEFAULT:
        raise SettingsError(CLUSTERS, f"has {name[:80]!r}, no name of 1 to 64 letters, digits, _ and -")
    if not isinstance(fields, dict):
        raise SettingsError(CLUSTERS, f"has for {name!r} no object like {_CLUSTERS_EXAMPLE}")
    fields = dict(fields)
    patterns = fields.pop("topics", None)
    is_list = isinstance(patterns, list) and patterns
    if not is_list or not all(isinstance(each, str) and _PATTERN.fullmatch(each) for each in patterns):
        raise SettingsError(CLUSTERS, f'has for {name!r} no "topics" like ["orders", "payments.*"]')
    given: dict[str, str] = {}
    for field, value in fields.items():
        variable = PREFIX + field.upper()
        if variable not in (*CONNECTION, *OPTIONS) or field != field.lower():
            raise SettingsError(CLUSTERS, f"has for {name!r} a field {field[:80]!r}, which there is not")
        if not isinstance(value, str | int | bool):
            raise SettingsError(CLUSTERS, f"has for {name!r} as {field} no text, number or switch")
        given[variable] = str(value).lower() if isinstance(value, bool) else str(value)
    inherited = {each: value for each, value in environment.items() if each not in CONNECTION}
    try:
        return Named(name, tuple(patterns), read(inherited | given))
    except SettingsError as error:
        field = error.variable.removeprefix(PREFIX).lower()
        raise SettingsError(CLUSTERS, f"has for {name!r}: {field} {error.fault}") from error


def _protocol(environment: Mapping[str, str]) -> str:
    """Where none is named: credentials alone, without encryption, must be asked for."""
    return "SASL_SSL" if env.text(environment, "KEYLANE_KAFKA_SASL_MECHANISM") else kafka.PLAINTEXT


def _mechanism(environment: Mapping[str, str], protocol: str) -> str:
    variable = "KEYLANE_KAFKA_SASL_MECHANISM"
    given = env.text(environment, variable)
    if not protocol.startswith("SASL"):
        if given:
            raise SettingsError(variable, f"is set, and KEYLANE_KAFKA_SECURITY_PROTOCOL is {protocol}")
        return ""
    if not given:
        raise SettingsError(variable, f"is not set: one of {', '.join(kafka.MECHANISMS)}")
    return env.choice(environment, variable, kafka.MECHANISMS, "")


def _region(environment: Mapping[str, str]) -> str:
    return env.text(environment, "KEYLANE_KAFKA_SASL_REGION") or env.text(environment, "AWS_REGION")


def _check_sasl(found: Security) -> None:
    if not found.has_sasl:
        if found.username or found.password:
            raise SettingsError("KEYLANE_KAFKA_SASL_USERNAME", "or _PASSWORD is set, but no _SASL_MECHANISM")
        return
    if found.mechanism == kafka.AWS_MSK_IAM:
        if not found.region:
            raise SettingsError("KEYLANE_KAFKA_SASL_REGION", "is not set, nor is AWS_REGION")
        return
    if not found.username:
        raise SettingsError("KEYLANE_KAFKA_SASL_USERNAME", f"is not set: {found.mechanism} needs it")
    if not found.password:
        raise SettingsError("KEYLANE_KAFKA_SASL_PASSWORD", f"is not set: {found.mechanism} needs it")


def _check_tls(found: Security, environment: Mapping[str, str]) -> None:
    names = ("CA", "CERTIFICATE", "KEY", "KEY_PASSWORD", "VERIFY")
    given = [f"{PREFIX}SSL_{name}" for name in names if env.text(environment, f"{PREFIX}SSL_{name}")]
    if given and not found.has_tls:
        raise SettingsError(given[0], f"is set, and KEYLANE_KAFKA_SECURITY_PROTOCOL is {found.protocol}")
    if bool(found.certificate) != bool(found.key):
        missing = "KEY" if found.certificate else "CERTIFICATE"
        raise SettingsError(f"{PREFIX}SSL_{missing}", "is not set: a certificate and its key go together")


def some(environment: Mapping[str, str], variable: str, least: int, most: int) -> int | None:
    """A number within bounds, None where none is given."""
    return env.number(environment, variable, 0, least, most) if env.text(environment, variable) else None
