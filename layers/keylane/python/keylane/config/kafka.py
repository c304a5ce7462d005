"""Settings of Kafka: which clusters there are, how to connect to them, how to write.

KEYLANE_KAFKA_CLUSTERS names further clusters, each with its own topics:
`{"payments": {"topics": ["payments.*"], "bootstrap": "one:9096", "sasl_username": ...}}`. The other fields
are the variables KEYLANE_KAFKA_... without that beginning. A cluster inherits how to write from the default
cluster, but not how to connect: the password of one cluster is not for others.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from keylane import routing
from keylane.adapters.kafka import options as kafka
from keylane.adapters.kafka.options import ClientOptions, Connection, ProducerOptions, Security
from keylane.config.kafka_table import BOOTSTRAP, CLIENT, CLUSTERS, PARTITIONING, PREFIX, PRODUCER, SECURITY
from keylane.config.settings import is_set
from keylane.errors import SettingsError
from keylane.model.clusters import DEFAULT, Clusters, Named
from keylane.model.records import WHOLE_KEY, is_topic_name

T = TypeVar("T")

_NAMED = "KEYLANE_KAFKA_CLUSTERS"
_CONNECTION = BOOTSTRAP.keys() | SECURITY.keys()
_OF_A_CLUSTER = _CONNECTION | CLIENT.keys() | PRODUCER.keys()
_RETRY_BACKOFF_MAX_MS = 1_000
"""librdkafka's default."""
_CLUSTER_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PATTERN = re.compile(r"[a-zA-Z0-9._*-]{1,249}")


def bootstrap(environment: Mapping[str, str]) -> str:
    """Return KEYLANE_KAFKA_BOOTSTRAP, checked: "host:port,host:port". Raises SettingsError."""
    BOOTSTRAP.read(environment, "KEYLANE_KAFKA_BOOTSTRAP")
    return environment["KEYLANE_KAFKA_BOOTSTRAP"].replace(" ", "")


def security(environment: Mapping[str, str]) -> Security:
    """Return how to authenticate and encrypt. Raises SettingsError where settings contradict each other."""
    found = Security(**SECURITY.fields(environment, PREFIX, "SECURITY_", "SASL_", "SSL_"))
    # Credentials without encryption must be asked for.
    protocol = found.protocol or ("SASL_SSL" if found.mechanism else kafka.PLAINTEXT)
    region = found.region or environment.get("AWS_REGION", "").strip()
    found = replace(found, protocol=protocol, region=region)
    _check_sasl(found)
    _check_tls(found, environment)
    return found


def _check_sasl(found: Security) -> None:
    mechanism = f"{PREFIX}SASL_MECHANISM"
    if not found.has_sasl:
        if found.mechanism:
            raise SettingsError(mechanism, f"is set, but {PREFIX}SECURITY_PROTOCOL is {found.protocol}")
        if found.username or found.password:
            raise SettingsError(f"{PREFIX}SASL_USERNAME", "or _PASSWORD is set, but no _SASL_MECHANISM")
        return
    needed = {"USERNAME": found.username, "PASSWORD": found.password}
    if found.mechanism in {"", kafka.AWS_MSK_IAM}:
        needed = {"REGION": found.region} if found.mechanism else {"MECHANISM": ""}
    for name, given in needed.items():
        if not given:
            raise SettingsError(
                f"{PREFIX}SASL_{name}", f"is not set: {found.mechanism or found.protocol} needs it"
            )


def _check_tls(found: Security, environment: Mapping[str, str]) -> None:
    given = [name for name in SECURITY if name.startswith(f"{PREFIX}SSL_") and is_set(environment, name)]
    if given and not found.has_tls:
        raise SettingsError(given[0], f"is set, but {PREFIX}SECURITY_PROTOCOL is {found.protocol}")
    if bool(found.certificate) != bool(found.key):
        missing = "KEY" if found.certificate else "CERTIFICATE"
        raise SettingsError(f"{PREFIX}SSL_{missing}", "is not set: a certificate and its key go together")


def client_options(environment: Mapping[str, str]) -> ClientOptions:
    """Return what all clients of a function have in common. Raises SettingsError."""
    found = ClientOptions(**CLIENT.fields(environment, PREFIX))
    first_ms, longest_ms = found.retry_backoff_ms or 0, found.retry_backoff_max_ms
    if first_ms > (longest_ms or max(first_ms, _RETRY_BACKOFF_MAX_MS)):
        raise SettingsError(f"{PREFIX}RETRY_BACKOFF_MAX_MS", f"is below {PREFIX}RETRY_BACKOFF_MS")
    if first_ms and longest_ms is None:
        return replace(found, retry_backoff_max_ms=max(first_ms, _RETRY_BACKOFF_MAX_MS))
    return found


def connection(environment: Mapping[str, str]) -> Connection:
    """Return how to reach the cluster. Raises SettingsError."""
    return Connection(bootstrap(environment), security(environment), client_options(environment))


def producer_options(environment: Mapping[str, str]) -> ProducerOptions:
    """Return how records are written. Raises SettingsError.

    Idempotence is turned off by `acks` and `retries` that rule it out, unless it is set by name.
    """
    given = PRODUCER.fields(environment, PREFIX)
    if given["acks"] == "-1":
        given["acks"] = "all"
    is_possible = given["acks"] == "all" and given["retries"] != 0
    if given["idempotence"] is None:
        given["idempotence"] = is_possible
    elif given["idempotence"] and not is_possible:
        other = "RETRIES above 0" if given["acks"] == "all" else "ACKS=all"
        raise SettingsError(f"{PREFIX}IDEMPOTENCE", f"is true, which needs {PREFIX}{other}")
    found = ProducerOptions(**given)
    if found.message_timeout_ms is not None and found.message_timeout_ms <= found.linger_ms:
        raise SettingsError(f"{PREFIX}LINGER_MS", f"is not below {PREFIX}MESSAGE_TIMEOUT_MS")
    return found


def partitioner(environment: Mapping[str, str]) -> str:
    """Return the default partitioner, for topics without their own. Raises SettingsError."""
    found: str = PARTITIONING.read(environment, "KEYLANE_PARTITIONER")
    return found


def partitioners(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the partitioners of topics that have their own. Raises SettingsError."""
    given = _by_topic(environment, "KEYLANE_PARTITIONERS")
    for topic, name in given.items():
        if name not in kafka.PARTITIONERS:
            what = f"has a value for {topic!r} that is not one of {', '.join(kafka.PARTITIONERS)}"
            raise SettingsError("KEYLANE_PARTITIONERS", what)
    return given


def partition_by(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what decides on a partition, by topic, where that is not the key. Raises SettingsError."""
    given = _by_topic(environment, "KEYLANE_PARTITION_BY")
    for topic, by in given.items():
        try:
            routing.separator_of(str(by))
        except ValueError as error:
            raise SettingsError(
                "KEYLANE_PARTITION_BY", f"has an invalid value for {topic!r}: {error}"
            ) from error
    return {topic: by for topic, by in given.items() if by != WHOLE_KEY}


def _by_topic(environment: Mapping[str, str], variable: str) -> dict[str, str]:
    given: dict[str, str] = PARTITIONING.read(environment, variable)
    for topic in given:
        if not is_topic_name(topic):
            raise SettingsError(variable, f"has {topic[:250]!r}, which is not the name of a topic")
    return given


def clusters(environment: Mapping[str, str], read: Callable[[Mapping[str, str]], T]) -> Clusters[T]:
    """Return what `read` makes of the environment, and of that of each cluster. Raises SettingsError."""
    named: dict[str, object] = CLUSTERS.read(environment, _NAMED)
    found = (_named(environment, name, fields, read) for name, fields in named.items())
    return Clusters(read(environment), tuple(found))


def _named(
    environment: Mapping[str, str], name: str, fields: object, read: Callable[[Mapping[str, str]], T]
) -> Named[T]:
    if not _CLUSTER_NAME.fullmatch(name) or name == DEFAULT:
        raise SettingsError(_NAMED, f"has {name[:80]!r}: a name has 1 to 64 letters, digits, _ and -")
    if not isinstance(fields, dict):
        raise SettingsError(
            _NAMED, f"has a cluster {name!r} that is not an object: it must be {CLUSTERS[_NAMED].accepts}"
        )
    given: dict[str, str] = {}
    for field, value in fields.items():
        variable = PREFIX + field.upper()
        if field == "topics":
            continue
        if variable not in _OF_A_CLUSTER or field != field.lower():
            raise SettingsError(_NAMED, f"has a cluster {name!r} with an unknown field {field[:80]!r}")
        if not isinstance(value, str | int | bool):
            raise SettingsError(
                _NAMED, f"has a cluster {name!r} whose {field} is not a string, number or boolean"
            )
        given[variable] = str(value).lower() if isinstance(value, bool) else str(value)
    inherited = {each: value for each, value in environment.items() if each not in _CONNECTION}
    try:
        return Named(name, _patterns(name, fields.get("topics")), read(inherited | given))
    except SettingsError as error:
        if error.variable == _NAMED:
            raise
        field = error.variable.removeprefix(PREFIX).lower()
        raise SettingsError(_NAMED, f"has an invalid cluster {name!r}: {field} {error.fault}") from error


def _patterns(name: str, given: object) -> tuple[str, ...]:
    if isinstance(given, list) and given:
        patterns = tuple(each for each in given if isinstance(each, str) and _PATTERN.fullmatch(each))
        if len(patterns) == len(given):
            return patterns
    raise SettingsError(_NAMED, f'has a cluster {name!r} without "topics" like ["orders", "payments.*"]')
