"""How to reach a Kafka cluster and how to write to it: plain values, and librdkafka's options for them.

An option that is None keeps the function's default, or librdkafka's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
AWS_MSK_IAM = "AWS_MSK_IAM"
"""OAUTHBEARER with tokens signed by the function's own role."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", AWS_MSK_IAM)
FULL, CHAIN, NONE = "full", "chain", "none"
VERIFY = (FULL, CHAIN, NONE)
"""What is checked of a broker's certificate: authority and host name, the authority alone, nothing."""

BUILT_IN = {"murmur2": "murmur2_random", "crc32": "consistent_random", "fnv1a": "fnv1a_random"}
"""Keylane's name of a partitioner -> librdkafka's; it puts records without a key into any partition."""
RANDOM, ROUND_ROBIN, EXPLICIT = "random", "round_robin", "explicit"
PARTITIONERS = (*BUILT_IN, RANDOM, ROUND_ROBIN, EXPLICIT)
"""The last three ignore the key: readers find such records as strays."""
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
WAIT, ERROR = "wait", "error"
"""What to do with a record while the client's queue is full: wait for room, or fail it."""
GROWTH_NOTICED_MS = 10_000
"""How soon a topic's new partitions are noticed. Until then writers disagree; librdkafka takes 5 minutes."""
OVERHEAD_BYTES = 128 * 1024
"""Bytes of a produce request beside the value: a key of 64 KiB, and the batch around both."""
_PEM = "-----BEGIN "


@dataclass(frozen=True, slots=True)
class Security:
    """The client's credentials, and the authorities that it trusts. The repr shows no secret.

    `ca`, `certificate` and `key` are paths of PEM files, or their text; an empty `ca` means the system's
    authorities. `region` is the cluster's, for AWS_MSK_IAM.
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
        """Whether the client sends credentials."""
        return self.protocol.startswith("SASL")

    def configuration(self) -> dict[str, Any]:
        """Options of librdkafka; for AWS_MSK_IAM the caller adds `oauth_cb`."""
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
        """The text with all secrets replaced."""
        for secret in (self.password, self.key, self.key_password):
            text = text.replace(secret, "***") if secret else text
        return text


def is_pem(text: str) -> bool:
    """Whether this is the text of a PEM file rather than its path."""
    return text.lstrip().startswith(_PEM)


def _option(name: str) -> Any:
    """Return the field of an option that may be None; `name`: librdkafka's."""
    return field(default=None, metadata={"name": name})


def _configuration(options: Any) -> dict[str, Any]:
    given = {each.metadata["name"]: getattr(options, each.name) for each in fields(options) if each.metadata}
    return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Options that producers, readers and admin clients share. An `idle_timeout_ms` of 0 means none."""

    client_id: str | None = _option("client.id")
    client_rack: str | None = _option("client.rack")
    socket_timeout_ms: int | None = _option("socket.timeout.ms")
    connect_timeout_ms: int | None = _option("socket.connection.setup.timeout.ms")
    idle_timeout_ms: int | None = _option("connections.max.idle.ms")
    metadata_refresh_ms: int | None = _option("topic.metadata.refresh.interval.ms")
    retry_backoff_ms: int | None = _option("retry.backoff.ms")
    retry_backoff_max_ms: int | None = _option("retry.backoff.max.ms")

    def configuration(self) -> dict[str, Any]:
        """Options of librdkafka, without those that are None."""
        return _configuration(self)


@dataclass(frozen=True, slots=True)
class Connection:
    """How readers reach a cluster. `bootstrap`: "host:port,host:port"."""

    bootstrap: str
    security: Security = field(default_factory=Security)
    client: ClientOptions = field(default_factory=ClientOptions)

    def configuration(self) -> dict[str, Any]:
        """Return the options by their names in librdkafka, without those of `security`."""
        return {
            "bootstrap.servers": self.bootstrap,
            "log_level": 3,
            "socket.timeout.ms": 10_000,
            **self.client.configuration(),
        }


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """How records are sent. `idempotence` requires `acks` "all" and `retries` above 0."""

    acks: str = field(metadata={"name": "acks"})
    idempotence: bool = field(metadata={"name": "enable.idempotence"})
    linger_ms: int = field(metadata={"name": "linger.ms"})
    queue_full: str
    compression: str = field(metadata={"name": "compression.type"})
    retries: int | None = _option("message.send.max.retries")
    batch_records: int | None = _option("batch.num.messages")
    batch_bytes: int | None = _option("batch.size")
    queue_records: int | None = _option("queue.buffering.max.messages")
    queue_kbytes: int | None = _option("queue.buffering.max.kbytes")
    message_timeout_ms: int | None = _option("message.timeout.ms")
    request_timeout_ms: int | None = _option("request.timeout.ms")

    def configuration(self) -> dict[str, Any]:
        """Options of librdkafka, without those that are None."""
        return _configuration(self)


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach the brokers (`bootstrap`: "host:port,host:port"), and how to write.

    `partition_by`: topic -> the part of a key that its partition is computed from, if not the whole key.
    `partitioners`: topic -> one of PARTITIONERS, if not `partitioner`.
    """

    bootstrap: str
    partitioner: str
    value_limit_bytes: int
    timeout_ms: int
    partition_by: Mapping[str, str]
    partitioners: Mapping[str, str]
    security: Security
    client: ClientOptions
    producer: ProducerOptions

    def configuration(self) -> dict[str, Any]:
        """Options of librdkafka, without those of `security`."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "keylane-produce",
            "partitioner": BUILT_IN[self.partitioner],
            "socket.nagle.disable": True,
            # A connection that died while the function was frozen times out early enough for another attempt.
            "socket.timeout.ms": max(2_000, self.timeout_ms // 2),
            "message.max.bytes": self.value_limit_bytes + OVERHEAD_BYTES,
            "message.timeout.ms": self.timeout_ms,
            "request.timeout.ms": self.timeout_ms,
            "allow.auto.create.topics": False,
            # Don't wait for an unknown topic to appear: this function doesn't create topics.
            "topic.metadata.propagation.max.ms": 0,
            "topic.metadata.refresh.interval.ms": GROWTH_NOTICED_MS,
            # Reconnect to a broker within a fraction of a second.
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": 20,
            **self.client.configuration(),
            **self.producer.configuration(),
        }
