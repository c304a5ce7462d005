"""How to reach a Kafka cluster and how to write to it, as librdkafka's configuration. Pure values.

A default of None leaves it to the function, or to librdkafka.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
AWS_MSK_IAM = "AWS_MSK_IAM"
"""OAUTHBEARER with tokens that are signed by the function's own role."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", AWS_MSK_IAM)
FULL, CHAIN, NONE = "full", "chain", "none"
VERIFY = (FULL, CHAIN, NONE)
"""What of a broker's certificate is checked: authority and host name, the authority alone, nothing."""

BUILT_IN = {"murmur2": "murmur2_random", "crc32": "consistent_random", "fnv1a": "fnv1a_random"}
"""Keylane's name of a partitioner by key -> librdkafka's; records without a key go anywhere."""
RANDOM, ROUND_ROBIN, EXPLICIT = "random", "round_robin", "explicit"
PARTITIONERS = (*BUILT_IN, RANDOM, ROUND_ROBIN, EXPLICIT)
"""Of the last three, none looks at the key: readers find such keys as strays."""
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
WAIT, ERROR = "wait", "error"
"""What becomes of a record that finds the client's queue full."""
_PEM = "-----BEGIN "


@dataclass(frozen=True, slots=True)
class Security:
    """Who the client is, and whom it trusts. No repr shows a secret.

    `ca`, `certificate` and `key` are paths of PEM files, or their text; an empty `ca` stands for the system's
    authorities. `region`: of the cluster, for AWS_MSK_IAM.
    """

    protocol: str = PLAINTEXT
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    region: str = ""
    ca: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    verify: str = FULL

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether the client gives credentials."""
        return self.protocol.startswith("SASL")

    def configuration(self) -> dict[str, Any]:
        """As librdkafka takes it; for AWS_MSK_IAM the caller adds `oauth_cb`."""
        found: dict[str, Any] = {}
        if self.protocol != PLAINTEXT:
            found["security.protocol"] = self.protocol
        if self.mechanism == AWS_MSK_IAM:
            found["sasl.mechanisms"] = "OAUTHBEARER"
        elif self.has_sasl:
            found["sasl.mechanisms"] = self.mechanism
            found["sasl.username"] = self.username
            found["sasl.password"] = self.password
        if self.has_tls:
            for name, given in (("ca", self.ca), ("certificate", self.certificate), ("key", self.key)):
                if given:
                    found[f"ssl.{name}.{'pem' if is_pem(given) else 'location'}"] = given
            if self.key_password:
                found["ssl.key.password"] = self.key_password
            if self.verify != FULL:
                found["ssl.endpoint.identification.algorithm"] = "none"
            if self.verify == NONE:
                found["enable.ssl.certificate.verification"] = False
        return found

    def masked(self, text: str) -> str:
        """The text without any of the secrets."""
        for secret in (self.password, self.key, self.key_password):
            text = text.replace(secret, "***") if secret else text
        return text


def is_pem(text: str) -> bool:
    """Whether it is the text of a PEM file, not its path."""
    return text.lstrip().startswith(_PEM)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What producers, readers and admin clients have in common. Times in ms; `idle_timeout_ms` 0: none."""

    client_id: str | None = None
    socket_timeout_ms: int | None = None
    connect_timeout_ms: int | None = None
    idle_timeout_ms: int | None = None
    metadata_refresh_ms: int | None = None
    retry_backoff_ms: int | None = None
    retry_backoff_max_ms: int | None = None

    def configuration(self) -> dict[str, Any]:
        """As librdkafka takes it: what is set alone."""
        return _set(
            {
                "client.id": self.client_id,
                "socket.timeout.ms": self.socket_timeout_ms,
                "socket.connection.setup.timeout.ms": self.connect_timeout_ms,
                "connections.max.idle.ms": self.idle_timeout_ms,
                "topic.metadata.refresh.interval.ms": self.metadata_refresh_ms,
                "retry.backoff.ms": self.retry_backoff_ms,
                "retry.backoff.max.ms": self.retry_backoff_max_ms,
            }
        )


@dataclass(frozen=True, slots=True)
class Connection:
    """A cluster, as all that only reads it reaches it. `bootstrap`: "host:port,host:port"."""

    bootstrap: str
    security: Security = field(default_factory=Security)
    client: ClientOptions = field(default_factory=ClientOptions)


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """How records are sent. `idempotence` needs `acks` "all" and `retries` above 0."""

    acks: str = "all"
    idempotence: bool = True
    retries: int | None = None
    linger_ms: int = 5
    batch_records: int | None = None
    batch_bytes: int | None = None
    queue_records: int | None = None
    queue_kbytes: int | None = None
    queue_full: str = WAIT
    message_timeout_ms: int | None = None
    request_timeout_ms: int | None = None
    compression: str = "none"

    def configuration(self) -> dict[str, Any]:
        """As librdkafka takes it: what is set alone."""
        return {
            "acks": self.acks,
            "enable.idempotence": self.idempotence,
            "linger.ms": self.linger_ms,
            "compression.type": self.compression,
        } | _set(
            {
                "message.send.max.retries": self.retries,
                "batch.num.messages": self.batch_records,
                "batch.size": self.batch_bytes,
                "queue.buffering.max.messages": self.queue_records,
                "queue.buffering.max.kbytes": self.queue_kbytes,
                "message.timeout.ms": self.message_timeout_ms,
                "request.timeout.ms": self.request_timeout_ms,
            }
        )


def _set(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
