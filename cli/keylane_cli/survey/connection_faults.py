"""Why a Kafka or a Redis Cluster can't be reached: what the client says of the connection, with the address.

The service names no addresses to its callers, and waits for brokers that come back. Whoever runs a command
wants the opposite: the cause, as soon as it is known.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING

import redis
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from redis.backoff import NoBackoff
from redis.retry import Retry

from keylane.adapters.kafka.api_versions import fetch_api_versions
from keylane.adapters.kafka.clients import RejectionListener, make_client
from keylane.adapters.kafka.errors import SASL_FAILED
from keylane.errors import LogUnavailable
from keylane.model.kafka import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane.adapters.kafka.admin import ReaderSettings
    from keylane.adapters.kafka.options import Security
    from keylane.adapters.redis.connections import RedisSettings
    from keylane.ports import Deadline

_LOOK_S = 0.25
_ALL_DOWN = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 (librdkafka's own codes begin with an underscore)
_UNKNOWN_HOST = KafkaError._RESOLVE  # noqa: SLF001
_LOGIN = "KEYLANE_KAFKA_SASL_MECHANISM, ..._USERNAME and ..._PASSWORD"
_NOT_OF_HOST = "Name the broker in {option} as its certificate does"
_CERTIFICATES = {
    9: "Is this machine's clock right?",
    10: "Whoever runs the broker has to renew it",
    62: _NOT_OF_HOST,
    64: _NOT_OF_HOST,
}
"""What to do, by OpenSSL's numbers: not valid yet, expired, of another host name, of another address."""


class _Faults(RejectionListener):
    """Keeps the first error of a connection, and whether no broker is left to try."""

    def __init__(self, security: Security) -> None:
        super().__init__(security)
        self._security = security
        self.all_down = False
        self.code, self.words = 0, ""

    def __call__(self, error: KafkaError) -> None:
        super().__call__(error)
        if error.code() == _ALL_DOWN:
            self.all_down = True
        elif not self.words:
            self.code, self.words = error.code(), self._security.masked(error.str())


def find_kafka_fault(settings: ReaderSettings, option: str, deadline: Deadline) -> str:
    """Return why no broker answers and what to look at, "" if one does. `option`: what named the address.

    Raises BadConfig.
    """
    faults = _Faults(settings.security)
    client = make_client(AdminClient, settings.configuration(), settings.security, faults)
    while deadline.remaining_s:
        with contextlib.suppress(KafkaException):
            client.list_topics(timeout=_LOOK_S)
            return ""
        client.poll(0)
        if rejected := faults.error():
            login = rejected.code == SASL_FAILED
            what = f"Do {_LOGIN} fit?" if login else _certificate_fault(settings, option, deadline)
            return f"{rejected} at {settings.bootstrap} ({faults.words}). {what}"
        if faults.all_down:
            break
    if faults.code == _UNKNOWN_HOST:
        return f"{faults.words}. Is {option} right?"
    if not faults.all_down:
        return f"{settings.bootstrap} does not answer. Is {option} right, and is nothing between it and here?"
    secured = f"do KEYLANE_KAFKA_SECURITY_PROTOCOL, {_LOGIN} fit?"
    if not faults.words:
        return (
            f"{settings.bootstrap} takes connections and does not answer: it demands TLS or a login, or is no"
            f" Kafka. Is {option} right, and {secured}"
        )
    return f"{faults.words}. Is {option} right, does the broker run, and {secured}"


def _certificate_fault(settings: ReaderSettings, option: str, deadline: Deadline) -> str:
    """Return what is wrong with a broker's certificate, and what to look at: librdkafka does not say it."""
    for address in settings.bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            fetch_api_versions(Broker(0, host.strip("[]"), int(port)), settings.security, deadline)
        except (LogUnavailable, ValueError) as error:
            if isinstance(cause := error.__cause__, ssl.SSLCertVerificationError):
                advice = _CERTIFICATES.get(cause.verify_code, "Does KEYLANE_KAFKA_SSL_CA fit?")
                return f"TLS says: {cause.verify_message.rstrip('.')}. {advice.format(option=option)}"
    return "Does KEYLANE_KAFKA_SSL_CA fit?"


def find_redis_fault(settings: RedisSettings, option: str) -> str:
    """Return why no node says where the slots are, and what to look at; "" if one does."""
    faults = list(_redis_faults(settings))
    if len(faults) < len(settings.nodes):
        return ""
    return (
        f"{'; '.join(dict.fromkeys(faults))}. Is {option} a node of a Redis Cluster, and do "
        "KEYLANE_REDIS_TLS, ..._TLS_CA_FILE, ..._USERNAME and ..._PASSWORD fit?"
    )


def _redis_faults(settings: RedisSettings) -> Iterator[str]:
    for node in settings.nodes:
        try:
            with redis.Redis(
                host=node.host,
                port=node.port,
                username=settings.username,
                password=settings.password,
                ssl=settings.tls,
                ssl_ca_certs=settings.tls_ca_file,
                socket_connect_timeout=settings.connect_timeout_s,
                socket_timeout=settings.connect_timeout_s,
                retry=Retry(NoBackoff(), 0),
            ) as client:
                client.execute_command("CLUSTER SLOTS")
        except (redis.RedisError, OSError) as error:
            yield f"{node.host}:{node.port}: {' '.join(str(error).split()).rstrip('.')}"
