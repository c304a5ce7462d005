"""librdkafka's errors as Keylane's: what a client may read of them."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from keylane.adapters.kafka.errors import translate_kafka_errors
from keylane.errors import ConnectionRejected

HANDSHAKE = "ssl://broker-1:9093/bootstrap: SSL handshake failed: "
UNVERIFIED = (
    "error:0A000086:SSL routines::certificate verify failed: broker certificate could not be verified, "
    "verify that ssl.ca.location is correctly configured (after 5ms in state SSL_HANDSHAKE)"
)
ALERT = "error:0A000412:SSL routines::ssl/tls alert bad certificate: SSL alert number 42"


@pytest.mark.parametrize(
    ("code", "words", "sentence"),
    [
        (
            KafkaError._SSL,
            HANDSHAKE + UNVERIFIED,
            (
                "SSL_HANDSHAKE_FAILED: Kafka's certificate could not be verified: no trusted authority has "
                "signed it, it has expired, or it is for another host name"
            ),
        ),
        (
            KafkaError._SSL,
            HANDSHAKE + ALERT,
            (
                "SSL_HANDSHAKE_FAILED: Kafka broke off the TLS handshake: "
                "it may require a client certificate that it trusts"
            ),
        ),
        (
            KafkaError._SSL,
            HANDSHAKE + "Disconnected",
            "SSL_HANDSHAKE_FAILED: the TLS handshake with Kafka failed",
        ),
        (
            KafkaError._AUTHENTICATION,
            "sasl_plaintext://broker-1:9092/bootstrap: SASL authentication error",
            "SASL_AUTHENTICATION_FAILED: Kafka rejected the credentials",
        ),
    ],
)
def test_a_rejected_connection_says_who_rejected_what_and_shows_no_address(
    code: int, words: str, sentence: str
):
    with pytest.raises(ConnectionRejected) as caught, translate_kafka_errors():
        raise KafkaException(KafkaError(code, words))
    assert str(caught.value) == sentence
    assert isinstance(caught.value.__cause__, KafkaException)
