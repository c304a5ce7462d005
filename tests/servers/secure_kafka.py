"""A broker that requires a password, a token or a certificate, with a listener for each method."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from typing import TYPE_CHECKING

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from tests.servers.own import guarded, wait_writable
from tests.support.certificates import Authority

from keylane_local.process.ports import HOST, Ports
from keylane_local.servers.kafka import Kafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSWORD = 'plain "quoted" \\ secret'
LISTENERS = ("SECURE", "UNENCRYPTED", "MUTUAL", "ELSEWHERE", "EXPIRED")
SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
_MODULES = "org.apache.kafka.common.security"


class SecureKafka(Kafka):
    """The local stack's broker with further listeners.

    SECURE accepts all SASL mechanisms over TLS, UNENCRYPTED the same without TLS, MUTUAL client certificates.
    ELSEWHERE has a certificate for another host name, EXPIRED an expired one. A topic without an access
    control list is anybody's.
    """

    def __init__(self, data: Path) -> None:
        ports = Ports()
        super().__init__(
            data / "kafka",
            run=data / "run",
            log=data / "logs" / "kafka.log",
            port=ports.any(),
            controller_port=ports.any(),
        )
        self.listener_ports = {name: ports.any() for name in LISTENERS}
        self.authority = Authority(data / "authority")
        self.client = self.authority.certify("client", password=b"key-secret")
        self._server = self.authority.certify("server")
        self._elsewhere = self.authority.certify("elsewhere", x509.DNSName("kafka.example.org"))
        self._expired = self.authority.certify("expired", days=-1)

    def at(self, listener: str) -> str:
        """The address of a listener, "host:port"."""
        return f"{HOST}:{self.listener_ports[listener]}"

    def set_password(self, user: str, mechanism: str, password: str) -> None:
        """Set the user's SCRAM password."""
        set_password(self.bootstrap, user, mechanism, password)

    def more_settings(self) -> str:
        quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
        plain = f'{_MODULES}.plain.PlainLoginModule required user_alice="{quoted}";'.replace("\\", "\\\\")
        token = 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker"'
        sasl = {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "plain.sasl.jaas.config": plain,
            "scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
            "scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
            "oauthbearer.sasl.jaas.config": f"{_MODULES}.{token};",
            # Without it a broker reports a token's expiry, but rejects the next token on the same connection.
            "oauthbearer.connections.max.reauth.ms": 3_600_000,
        }
        mutual = {
            "ssl.client.auth": "required",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.file,
        }
        listeners = {
            "SECURE": ("SASL_SSL", self._server, sasl),
            "UNENCRYPTED": ("SASL_PLAINTEXT", None, sasl),
            "MUTUAL": ("SSL", self._server, mutual),
            "ELSEWHERE": ("SASL_SSL", self._elsewhere, sasl),
            "EXPIRED": ("SASL_SSL", self._expired, sasl),
        }
        addresses = {"PLAINTEXT": self.bootstrap, **{name: self.at(name) for name in LISTENERS}}
        advertised = [f"{name}://{address}" for name, address in addresses.items()]
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        protocols |= {name: protocol for name, (protocol, _, _) in listeners.items()}
        lines = {
            "listeners": ",".join([*advertised, f"CONTROLLER://{HOST}:{self.controller_port}"]),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(":".join(pair) for pair in protocols.items()),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "super.users": "User:ANONYMOUS",
        }
        for name, (_, pair, options) in listeners.items():
            tls = {"ssl.keystore.type": "PEM", "ssl.keystore.location": pair.both} if pair else {}
            for option, value in {**tls, **options}.items():
                lines[f"listener.name.{name.lower()}.{option}"] = value
        return "".join(f"{name}={value}\n" for name, value in lines.items())


def allow_only(bootstrap: str, user: str, topic: str, operation: AclOperation) -> None:
    """Let this user do this to a topic, and all others nothing."""
    allowed = (f"User:{user}", "*", operation, AclPermissionType.ALLOW)
    binding = AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, *allowed)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_acls([binding])[binding].result(20)


def set_password(bootstrap: str, user: str, mechanism: str, password: str) -> None:
    """Set a SCRAM password. Connections that are open stay so; a broker has it a moment later."""
    info = ScramCredentialInfo(SCRAM[mechanism], 4096)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.alter_user_scram_credentials([change])[user].result(20)


@contextlib.contextmanager
def secure_kafka(data: Path) -> Iterator[SecureKafka]:
    """Yield a running broker with the SCRAM user "bob", whose password is "scram-secret"."""
    with guarded(data):
        broker = SecureKafka(data)
        broker.start()
        wait_writable(broker)
        broker.set_password("bob", "SCRAM-SHA-256", "scram-secret")
        broker.set_password("bob", "SCRAM-SHA-512", "scram-secret")
        yield broker
        broker.stop()


def unsecured_token(subject: str = "dora", lifetime_s: float = 300) -> tuple[str, float]:
    """Return a token for Kafka's unsecured validator, and its expiry (ms since 1970)."""
    now_s = time.time()
    claims = {"sub": subject, "iat": now_s, "exp": now_s + lifetime_s}
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    token = ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."
    return token, (now_s + lifetime_s) * 1000
