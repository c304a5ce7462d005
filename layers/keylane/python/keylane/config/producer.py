"""How records are written to Kafka, from the environment: the producer's options, and where records go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane import routing
from keylane.adapters.kafka import options as kafka
from keylane.adapters.kafka.options import ProducerOptions
from keylane.config import env
from keylane.config.kafka import HOUR_MS, MOST, some
from keylane.errors import SettingsError
from keylane.model.records import WHOLE_KEY, is_topic_name

if TYPE_CHECKING:
    from collections.abc import Mapping


def producer_options(environment: Mapping[str, str]) -> ProducerOptions:
    """How records are written.

    Idempotence gives way to `acks` and `retries` that it can't have, unless it was asked for by name.
    """
    acks = {"-1": "all"}.get(
        given := env.choice(environment, "KEYLANE_KAFKA_ACKS", ("all", "-1", "1"), "all"), given
    )
    retries = some(environment, "KEYLANE_KAFKA_RETRIES", 0, MOST)
    is_possible = acks == "all" and retries != 0
    idempotence = env.switch(environment, "KEYLANE_KAFKA_IDEMPOTENCE", default=is_possible)
    if idempotence and not is_possible:
        other = "KEYLANE_KAFKA_ACKS=all" if acks != "all" else "KEYLANE_KAFKA_RETRIES above 0"
        raise SettingsError("KEYLANE_KAFKA_IDEMPOTENCE", f"is true, which needs {other}")
    found = ProducerOptions(
        acks=acks,
        idempotence=idempotence,
        retries=retries,
        linger_ms=env.number(environment, "KEYLANE_KAFKA_LINGER_MS", 5, 0, 900_000),
        batch_records=some(environment, "KEYLANE_KAFKA_BATCH_RECORDS", 1, 1_000_000),
        batch_bytes=some(environment, "KEYLANE_KAFKA_BATCH_BYTES", 1, MOST),
        queue_records=some(environment, "KEYLANE_KAFKA_QUEUE_RECORDS", 1, MOST),
        queue_kbytes=some(environment, "KEYLANE_KAFKA_QUEUE_KBYTES", 1, MOST),
        queue_full=env.choice(environment, "KEYLANE_KAFKA_QUEUE_FULL", (kafka.WAIT, kafka.ERROR), kafka.WAIT),
        message_timeout_ms=some(environment, "KEYLANE_KAFKA_MESSAGE_TIMEOUT_MS", 1, HOUR_MS),
        request_timeout_ms=some(environment, "KEYLANE_KAFKA_REQUEST_TIMEOUT_MS", 1, 900_000),
        compression=env.choice(environment, "KEYLANE_KAFKA_COMPRESSION", kafka.COMPRESSIONS, "none"),
    )
    if found.message_timeout_ms is not None and found.message_timeout_ms <= found.linger_ms:
        raise SettingsError("KEYLANE_KAFKA_LINGER_MS", "is not below KEYLANE_KAFKA_MESSAGE_TIMEOUT_MS")
    return found


def partitioner(environment: Mapping[str, str]) -> str:
    """KEYLANE_PARTITIONER: of all topics that have none of their own."""
    return env.choice(environment, "KEYLANE_PARTITIONER", tuple(kafka.BUILT_IN), "murmur2")


def partitioners(environment: Mapping[str, str]) -> dict[str, str]:
    """KEYLANE_PARTITIONERS, a JSON object: {"clicks": "round_robin"}."""
    variable = "KEYLANE_PARTITIONERS"
    given = env.json_object(environment, variable, '{"clicks": "round_robin"}')
    for topic, name in given.items():
        _check_topic(variable, topic)
        if name not in kafka.PARTITIONERS:
            raise SettingsError(variable, f"has for {topic!r} none of {', '.join(kafka.PARTITIONERS)}")
    return given


def partition_by(environment: Mapping[str, str]) -> dict[str, str]:
    """KEYLANE_PARTITION_BY, a JSON object: {"bookings": "prefix:|"}."""
    variable = "KEYLANE_PARTITION_BY"
    given = env.json_object(environment, variable, '{"bookings": "prefix:|"}')
    for topic, by in given.items():
        _check_topic(variable, topic)
        try:
            routing.separator_of(str(by))
        except ValueError as error:
            raise SettingsError(variable, f"has for {topic!r}: {error}") from error
    return {topic: by for topic, by in given.items() if by != WHOLE_KEY}


def _check_topic(variable: str, topic: str) -> None:
    if not is_topic_name(topic):
        raise SettingsError(variable, f"names {topic[:250]!r}, which is no topic's name")
