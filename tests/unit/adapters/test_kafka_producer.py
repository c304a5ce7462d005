"""Kafka's producer where its client cannot be replaced in the middle of a request."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.builders import kafka_settings
from tests.support.fakes import FakeTime

from keylane.adapters.kafka.clients import RejectionListener
from keylane.adapters.kafka.producer import KafkaProducer, OpenClient
from keylane.adapters.kafka.shipment import Shipment
from keylane.errors import ConnectionRejected, SettingsError
from keylane.model.records import NewRecord, Position
from keylane.ports import Deadline

RECORDS = [NewRecord("t", b"1", b"v"), NewRecord("t", b"2", b"v")]
WRONG = SettingsError("KEYLANE_KAFKA_SASL_PASSWORD", "is empty")


class Rotated(KafkaProducer):
    """Its client writes so many records, then a broker rejects it; the settings have become invalid."""

    written = 1

    def _attempt(self, shipment: Shipment, *_: Any) -> OpenClient:
        if self.written == 0 or shipment.reports[0] is not None:
            raise WRONG
        shipment.fail(1, ConnectionRejected("SASL_AUTHENTICATION_FAILED", "no"))
        shipment.reports[0] = Position(0, 7)
        client: Any = None
        self._open[False] = OpenClient(client, RejectionListener(self._settings.security))
        return self._open[False]


@pytest.fixture
def producer() -> Rotated:
    producer = Rotated(kafka_settings("localhost:1"))
    client: Any = ()
    producer._open[False] = OpenClient(client, RejectionListener(producer._settings.security))
    return producer


def test_what_was_written_before_settings_became_invalid_is_reported_as_written(producer: Rotated):
    written, rejected = producer.append_all(RECORDS, Deadline.after_ms(1000, FakeTime().clock))
    assert written == Position(0, 7)
    assert isinstance(rejected, ConnectionRejected)
    assert not rejected.uncertain


def test_settings_with_which_nothing_was_sent_are_the_error_of_the_request(producer: Rotated):
    producer.written = 0
    with pytest.raises(SettingsError):
        producer.append_all(RECORDS, Deadline.after_ms(1000, FakeTime().clock))
