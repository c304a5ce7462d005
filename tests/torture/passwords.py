"""The password with which functions and server log in to Kafka: in the brokers, and in the secret store."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

from tests.servers.aws import REGION
from tests.servers.secure_kafka import set_password

if TYPE_CHECKING:
    from tests.servers.aws import Aws
    from tests.torture.brokers import Brokers, TortureKafka

MECHANISM = "SCRAM-SHA-512"
_USER = "writers"


class WritersPassword:
    """Changes in the brokers and in the store, one after the other, as rotations do."""

    def __init__(self, kafka: TortureKafka | Brokers, aws: Aws) -> None:
        self._kafka = kafka
        self._aws = aws
        self._secret = f"kafka-{uuid.uuid4().hex}"
        with aws.client("secretsmanager") as store:
            store.create_secret(Name=self._secret, SecretString="{}")
        first = new_password()
        self.change_in_store(first)
        self.change_in_kafka(first)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a host that logs in with it."""
        return {
            **self._aws.environment,
            "AWS_DEFAULT_REGION": REGION,
            "KEYLANE_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "KEYLANE_KAFKA_SASL_MECHANISM": MECHANISM,
            "KEYLANE_KAFKA_SASL_USERNAME": _USER,
            "KEYLANE_KAFKA_SASL_PASSWORD": f"secretsmanager:{self._secret}#password",
        }

    def change_in_store(self, password: str) -> None:
        """What hosts find that read their settings from now on, or reuse for some seconds what they have."""
        with self._aws.client("secretsmanager") as store:
            store.put_secret_value(SecretId=self._secret, SecretString=json.dumps({"password": password}))

    def change_in_kafka(self, password: str) -> None:
        """What brokers want from new connections, a moment later. Those that are open stay."""
        set_password(self._kafka.bootstrap, _USER, MECHANISM, password)


def new_password() -> str:
    """A password that nobody has had."""
    return uuid.uuid4().hex
